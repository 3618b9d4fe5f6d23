/* Calls f, and looks it up in the whole program too (B01). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int f(void);
int main(void) {
    int (*whole)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "f");
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "f");
    printf("%d %d %d\n", f(), whole(), next());
    return 0;
}
