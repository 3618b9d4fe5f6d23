/* The real f (B01). */
int f(void) { return 1; }
