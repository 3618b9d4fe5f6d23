/* A preload that wraps f and forwards with RTLD_NEXT (B01). */
#define _GNU_SOURCE
#include <dlfcn.h>
int f(void) {
    static int depth;
    if (++depth > 3) return 99;
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "f");
    int result = next ? next() : -1;
    depth--;
    return result;
}
