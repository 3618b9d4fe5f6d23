/* 8 threads read the environment while main calls cuInit many times (C22). Says whether the environment was ever replaced. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
extern char **environ;
static volatile int stop;
static void *loop(void *x) { while (!stop) getenv("NO_SUCH_VARIABLE"); return x; }
int main(void) {
    int (*init)(unsigned) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
    pthread_t t[8];
    for (int k = 0; k < 8; k++) pthread_create(&t[k], NULL, loop, NULL);
    char **array = environ, *list = getenv("CUDA_VISIBLE_DEVICES"), *order = getenv("CUDA_DEVICE_ORDER");
    int rc = 0;
    for (int k = 0; k < 10000; k++) rc |= init(0);
    stop = 1;
    for (int k = 0; k < 8; k++) pthread_join(t[k], NULL);
    printf("%d %s\n", rc, array == environ && list == getenv("CUDA_VISIBLE_DEVICES") && order == getenv("CUDA_DEVICE_ORDER") ? "same" : "replaced");
    return 0;
}
