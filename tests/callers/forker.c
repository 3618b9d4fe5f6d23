/* 8 threads call cuDeviceGet in a loop while main forks; each child calls it once (B19). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int (*get)(int *, int);
static volatile int stop;
static void *loop(void *x) { int d; while (!stop) get(&d, 0); return x; }
int main(int argc, char **argv) {
    int forks = atoi(argv[1]), good = 0, d;
    void *h = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(h, "cuInit");
    get = (int (*)(int *, int))dlsym(h, "cuDeviceGet");
    init(0);
    pthread_t t[8];
    for (int k = 0; k < 8; k++) pthread_create(&t[k], NULL, loop, NULL);
    for (int k = 0; k < forks; k++) {
        pid_t child = fork();
        if (!child) { alarm(5); _exit(get(&d, 0)); }
        int status;
        waitpid(child, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    stop = 1;
    for (int k = 0; k < 8; k++) pthread_join(t[k], NULL);
    printf("%d of %d\n", good, forks);
    return argc == 2 ? 0 : 1;
}
