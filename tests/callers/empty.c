/* A preload that does nothing: what every preload costs. */
__attribute__((constructor)) static void nothing(void) {}
