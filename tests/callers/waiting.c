/* A library that starts a thread when it is loaded, before a preload library's constructor runs, and a program that has this
 * thread try device nodes, as try_nodes.h does, and then asks for the driver.
 *
 *   waiting NODE... */
#define _GNU_SOURCE
#ifndef MAIN
#include <pthread.h>

#include "try_nodes.h"

static char **nodes;
static pthread_t thread;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *x) {
    pthread_mutex_lock(&turn);
    try_nodes(nodes);
    return x;
}

__attribute__((constructor)) static void begin(void) {
    pthread_mutex_lock(&turn);
    pthread_create(&thread, NULL, work, NULL);
}

void go_on(char **list) {
    nodes = list;
    pthread_mutex_unlock(&turn);
    pthread_join(thread, NULL);
}
#else
#include <dlfcn.h>
#include <stdio.h>

void go_on(char **);

int main(int argc, char **argv) {
    if (argc < 2) return 9;
    go_on(argv + 1);
    void *h = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = h ? (int (*)(unsigned))dlsym(h, "cuInit") : NULL;
    if (init) printf("init %d\n", init(0));
    return 0;
}
#endif
