/* The program that is linked to early.c's library. */
#include <stdio.h>
int early_is_linked(void);
int cuInit(unsigned);
int main(void) {
    int rc = cuInit(0);
    printf("main %d %d\n", early_is_linked(), rc);
    return 0;
}
