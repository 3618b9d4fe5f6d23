/* A library that starts a thread when it is loaded, before a preload library's constructor runs, and a program that has this
 * thread open device nodes and send them a command, as ioctl.c does, and then asks for the driver.
 *
 *   waiting NODE... */
#define _GNU_SOURCE
#ifndef MAIN
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static char **nodes;
static pthread_t thread;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *x) {
    pthread_mutex_lock(&turn);
    for (char **node = nodes; *node; node++) {
        int fd = open(*node, O_RDWR | O_CLOEXEC), n, e = 0;
        if (fd < 0) printf("%s open %d\n", *node, errno);
        else {
            if (ioctl(fd, FIONREAD, &n)) e = errno;
            printf("%s %d\n", *node, e);
            close(fd);
        }
    }
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
