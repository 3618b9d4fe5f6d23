/* Another preload that hooks cuInit, as a tracer does: counts, and forwards with RTLD_NEXT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int cuInit(unsigned flags) {
    int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
    printf("other\n");
    return next ? next(flags) : 999;
}
