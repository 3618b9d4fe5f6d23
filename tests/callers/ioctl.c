/* Tries devices, as try_nodes.h does.
 *
 *   ioctl [fork|vfork|spawn|thread|exec] NODE...   the same by a child or another thread */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "try_nodes.h"

extern char **environ;
static char **nodes;

static void *try_all(void *x) {
    try_nodes(nodes);
    return x;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 && argv[1][0] != '/' ? argv[1] : "";
    nodes = argv + (*how ? 2 : 1);
    if (!strcmp(how, "fork")) { if (!fork()) { try_all(NULL); _exit(0); } wait(NULL); }
    else if (!strcmp(how, "vfork")) { if (!vfork()) { argv[1] = argv[0]; execve("/proc/self/exe", argv + 1, environ); _exit(9); } wait(NULL); }
    else if (!strcmp(how, "spawn")) { pid_t p; argv[1] = argv[0]; posix_spawn(&p, "/proc/self/exe", NULL, NULL, argv + 1, environ); wait(NULL); }
    else if (!strcmp(how, "exec")) { char *none[] = {NULL}; argv[1] = argv[0]; execve("/proc/self/exe", argv + 1, none); }
    else if (!strcmp(how, "thread")) { pthread_t t; pthread_create(&t, NULL, try_all, NULL); pthread_join(t, NULL); }
    else try_all(NULL);
    return 0;
}
