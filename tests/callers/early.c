/* A library whose constructor calls the driver, and which a program is linked to: it runs before a preload's constructor (B26). */
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned);
__attribute__((constructor)) static void early(void) {
    int rc = cuInit(0);
    const char *v = getenv("CUDA_VISIBLE_DEVICES");
    printf("early %d %s\n", rc, v ? v : "(unset)");
    fflush(stdout);
}
int early_is_linked(void) { return 1; }
