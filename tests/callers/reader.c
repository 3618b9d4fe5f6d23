/* Reads values of CUDA_VISIBLE_DEVICES from a file, each ended by NUL, and prints for each what the driver makes of it:
 * cuInit's result and the first four bytes of each visible GPU's UUID. A child a value, since a good cuInit is final. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void one(const char *value) {
    setenv("CUDA_VISIBLE_DEVICES", value, 1);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) exit(9);
    int (*init)(unsigned) = dlsym(driver, "cuInit"), (*count)(int *) = dlsym(driver, "cuDeviceGetCount");
    int (*uuid)(void *, int) = dlsym(driver, "cuDeviceGetUuid");
    int rc = init(0), n = 0;
    printf("%d", rc);
    if (!rc && !count(&n))
        for (int k = 0; k < n; k++) {
            unsigned char id[16] = {0};
            uuid(id, k);
            printf(" %02x%02x%02x%02x", id[0], id[1], id[2], id[3]);
        }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
    char *value = NULL;
    size_t room = 0;
    if (!f) return 9;
    while (getdelim(&value, &room, 0, f) > 0) {
        pid_t child = fork();
        if (!child) { one(value); _exit(0); }
        int status;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) return 8;
    }
    return 0;
}
