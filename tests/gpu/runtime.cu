// The CUDA runtime, linked statically or shared: a kernel whose result can be compared.
#include <cstdio>
__global__ void add(float *x) { x[threadIdx.x] += 512; }
int main() {
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e) { printf("no GPU: %s\n", cudaGetErrorString(e)); return 0; }
    float *x, out = 0;
    e = cudaMalloc(&x, 256 * sizeof(float));
    if (e) { printf("no GPU: %s\n", cudaGetErrorString(e)); return 0; }
    cudaMemset(x, 0, 256 * sizeof(float));
    add<<<1, 256>>>(x);
    cudaMemcpy(&out, x + 7, sizeof(float), cudaMemcpyDeviceToHost);
    e = cudaGetLastError();
    if (e) printf("failed: %s\n", cudaGetErrorString(e)); else printf("ok %.1f\n", out);
    return 0;
}
