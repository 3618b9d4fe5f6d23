/* A program that reaches the driver by one route and takes the steps that it is told, printing what each gave.
 *
 *   prog ROUTE STEP...
 *
 * Routes: linked (compiled with -DLINKED and -lcuda), handle, global, whole, v1, v2, v1v1, v2v2, dlsym.
 * Steps are explained beside their code at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*v1_t)(const char *, void **, int, uint64_t);
typedef int (*v2_t)(const char *, void **, int, uint64_t, int *);
typedef void *(*dlsym_t)(void *, const char *);

#ifdef LINKED
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDeviceGetCount(int *);
int cuDeviceGetByPCIBusId(int *, const char *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxCreate(void **, unsigned, int);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxCreate_v3(void **, void *, int, unsigned, int);
int cuCtxCreate_v4(void **, void *, unsigned, int);
static void *linked(const char *name) {
    struct { const char *name; void *f; } all[] = {
        {"cuInit", cuInit}, {"cuDeviceGet", cuDeviceGet}, {"cuDeviceGetCount", cuDeviceGetCount},
        {"cuDeviceGetByPCIBusId", cuDeviceGetByPCIBusId}, {"cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain},
        {"cuCtxCreate", cuCtxCreate}, {"cuCtxCreate_v2", cuCtxCreate_v2}, {"cuCtxCreate_v3", cuCtxCreate_v3},
        {"cuCtxCreate_v4", cuCtxCreate_v4},
    };
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++)
        if (!strcmp(all[k].name, name)) return all[k].f;
    return NULL;
}
#endif

static char **arguments;
static const char *route;
static const char *library = "libcuda.so.1";

static void *open_driver(int flags) {
    void *handle = dlopen(library, flags);
    if (!handle) { printf("%s\n", dlerror()); exit(9); }
    return handle;
}

/* cuGetProcAddress knows one name for the context's versions. */
static void *by_proc_address(const char *name, int form, int levels) {
    void *handle = open_driver(RTLD_NOW);
    char base[64];
    int version = form == 1 ? 11030 : 12000;
    snprintf(base, sizeof base, "%s", name);
    if (!strncmp(name, "cuCtxCreate", 11)) {
        version = !strcmp(name, "cuCtxCreate") ? 2000 : strstr(name, "_v2") ? 4000 : strstr(name, "_v3") ? 11040 : 12050;
        base[11] = 0;
    }
    void *get = dlsym(handle, form == 1 ? "cuGetProcAddress" : "cuGetProcAddress_v2"), *found = NULL;
    int status = -1;
    if (!get) return NULL;
    while (levels--) {
        const char *wanted = levels ? "cuGetProcAddress" : base;
        int at = levels ? (form == 1 ? 11030 : 12000) : version;
        int rc = form == 1 ? ((v1_t)get)(wanted, &found, at, 0) : ((v2_t)get)(wanted, &found, at, 0, &status);
        if (rc) return NULL;
        get = found;
    }
    return found;
}

static void *find(const char *name) {
#ifdef LINKED
    if (!strcmp(route, "linked")) return linked(name);
#endif
    if (!strcmp(route, "handle")) return dlsym(open_driver(RTLD_NOW), name);
    if (!strcmp(route, "global")) return open_driver(RTLD_NOW | RTLD_GLOBAL), dlsym(RTLD_DEFAULT, name);
    if (!strcmp(route, "whole")) return open_driver(RTLD_NOW | RTLD_GLOBAL), dlsym(dlopen(NULL, RTLD_NOW), name);
    if (!strcmp(route, "v1")) return by_proc_address(name, 1, 1);
    if (!strcmp(route, "v2")) return by_proc_address(name, 2, 1);
    if (!strcmp(route, "v1v1")) return by_proc_address(name, 1, 2);
    if (!strcmp(route, "v2v2")) return by_proc_address(name, 2, 2);
    if (!strcmp(route, "dlsym")) {
        dlsym_t own = (dlsym_t)dlsym(dlopen("libc.so.6", RTLD_NOW), "dlsym");
        return own(open_driver(RTLD_NOW), name);
    }
    printf("no route %s\n", route);
    exit(9);
}

static void step(const char *text);

static void *in_thread(void *text) { step(text); return NULL; }

static void uuid_of(int device) {
    unsigned char id[16];
    int (*uuid)(void *, int) = dlsym(open_driver(RTLD_NOW), "cuDeviceGetUuid");
    if (!uuid || uuid(id, device)) { printf(" (no uuid)"); return; }
    printf(" GPU-");
    for (int k = 0; k < 4; k++) printf("%02x", id[k]);
}

static void context(const char *name, int device) {
    void *c = (void *)0x5a5a;
    void *f = find(name);
    int rc;
    if (!f) { printf("%s NULL\n", name); return; }
    if (strstr(name, "_v3")) rc = ((int (*)(void **, void *, int, unsigned, int))f)(&c, NULL, 0, 0, device);
    else if (strstr(name, "_v4")) rc = ((int (*)(void **, void *, unsigned, int))f)(&c, NULL, 0, device);
    else if (strstr(name, "Retain")) rc = ((int (*)(void **, int))f)(&c, device);
    else rc = ((int (*)(void **, unsigned, int))f)(&c, 0, device);
    printf("%s %d %d%s\n", name, device, rc, c == (void *)0x5a5a ? " untouched" : "");
}

static void step(const char *text) {
    char word[512], *argument;
    snprintf(word, sizeof word, "%s", text);
    argument = strchr(word, ':');
    if (argument) *argument++ = 0;
    int number = argument ? (int)strtol(argument, NULL, 0) : 0, value = 0x5a5a;
    if (!strcmp(word, "init")) { /* cuInit, with flags */
        int (*f)(unsigned) = find("cuInit");
        if (f) printf("init %d\n", f((unsigned)number)); else printf("init NULL\n");
    } else if (!strcmp(word, "count")) { /* cuDeviceGetCount */
        int (*f)(int *) = find("cuDeviceGetCount");
        int rc = f(&value);
        printf("count %d", rc);
        if (!rc) printf(" %d", value); else printf("%s", value == 0x5a5a ? " untouched" : " touched");
        printf("\n");
    } else if (!strcmp(word, "get")) { /* cuDeviceGet of an ordinal, and which GPU it is */
        int (*f)(int *, int) = find("cuDeviceGet");
        int rc = f(&value, number);
        printf("get %d %d", number, rc);
        if (!rc) uuid_of(value); else printf("%s", value == 0x5a5a ? " untouched" : " touched");
        printf("\n");
    } else if (!strcmp(word, "getnull")) { /* cuDeviceGet without a place for the answer */
        int (*f)(int *, int) = find("cuDeviceGet");
        printf("getnull %d\n", f(NULL, number));
    } else if (!strcmp(word, "pci")) { /* cuDeviceGetByPCIBusId */
        int (*f)(int *, const char *) = find("cuDeviceGetByPCIBusId");
        int rc = f(&value, argument);
        printf("pci %d%s\n", rc, rc && value == 0x5a5a ? " untouched" : "");
    } else if (!strcmp(word, "retain")) { context("cuDevicePrimaryCtxRetain", number);
    } else if (!strcmp(word, "create1")) { context("cuCtxCreate", number);
    } else if (!strcmp(word, "create2")) { context("cuCtxCreate_v2", number);
    } else if (!strcmp(word, "create3")) { context("cuCtxCreate_v3", number);
    } else if (!strcmp(word, "create4")) { context("cuCtxCreate_v4", number);
    } else if (!strcmp(word, "env")) { /* a variable's value */
        const char *v = getenv(argument);
        printf("%s=%s\n", argument, v ? v : "(unset)");
    } else if (!strcmp(word, "set")) { /* NAME=VALUE */
        char *eq = strchr(argument, '=');
        *eq = 0;
        setenv(argument, eq + 1, 1);
    } else if (!strcmp(word, "unset")) { unsetenv(argument);
    } else if (!strcmp(word, "clear")) { clearenv();
    } else if (!strcmp(word, "errno")) { errno = number;
    } else if (!strcmp(word, "showerrno")) { printf("errno %d\n", errno);
    } else if (!strcmp(word, "library")) { library = strdup(argument);
    } else if (!strcmp(word, "route")) { route = strdup(argument);
    } else if (!strcmp(word, "open")) { open_driver(RTLD_NOW);
    } else if (!strcmp(word, "behind")) { /* cuInit from a deep-bound library: no preload sees that call */
        int (*f)(void) = (int (*)(void))dlsym(dlopen("libdeep.so", RTLD_NOW | RTLD_DEEPBIND), "deep_init");
        printf("behind %d\n", f());
    } else if (!strcmp(word, "local")) { /* cuInit from a library that is linked to the driver and opened locally */
        int (*f)(void) = (int (*)(void))dlsym(dlopen("libdeep.so", RTLD_NOW | RTLD_LOCAL), "deep_init");
        printf("local %d\n", f());
    } else if (!strcmp(word, "versioned")) { /* cuInit by dlvsym, which is not hooked */
        int (*f)(unsigned) = (int (*)(unsigned))dlvsym(open_driver(RTLD_NOW), "cuInit", "NONE");
        printf("versioned %s\n", f ? "found" : "NULL");
    } else if (!strcmp(word, "namespace")) { /* the driver in a namespace of its own */
        void *h = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
        if (!h) { printf("%s\n", dlerror()); exit(9); }
        int (*f)(unsigned) = dlsym(h, "cuInit"), (*count)(int *) = dlsym(h, "cuDeviceGetCount");
        int rc = f(0), rc2 = count(&value);
        printf("namespace %d %d %d\n", rc, rc2, value);
    } else if (!strcmp(word, "table")) { /* cuGetExportTable, which must stay the driver's */
        int (*f)(const void **, const void *) = dlsym(open_driver(RTLD_NOW), "cuGetExportTable");
        const void *t = NULL;
        unsigned char id[16] = {0};
        Dl_info info;
        printf("table %d", f(&t, id));
        dladdr((void *)f, &info);
        printf(" %s\n", strrchr(info.dli_fname, '/') + 1);
    } else if (!strcmp(word, "find")) { /* dlsym of any name on the driver's handle, and dlerror after it */
        void *h = open_driver(RTLD_NOW);
        dlerror();
        void *f = dlsym(h, argument);
        const char *e = dlerror();
        Dl_info info;
        if (f) dladdr(f, &info);
        printf("find %s %s %s\n", argument, f ? strrchr(info.dli_fname, '/') + 1 : "NULL", e ? e : "(no error)");
        if (e) printf("again %s\n", dlerror() ? "text" : "NULL");
    } else if (!strcmp(word, "ask")) { /* NAME=VERSION of cuGetProcAddress_v2: code, pointer's library, status */
        char *eq = strchr(argument, '=');
        *eq = 0;
        v2_t get = (v2_t)dlsym(open_driver(RTLD_NOW), "cuGetProcAddress_v2");
        void *f = (void *)0x5a5a;
        int status = 77, rc = get(argument, &f, atoi(eq + 1), 0, &status);
        Dl_info info;
        const char *where = f == (void *)0x5a5a ? "untouched" : !f ? "NULL" : dladdr(f, &info) ? strrchr(info.dli_fname, '/') + 1 : "?";
        printf("ask %s %d %s %d\n", argument, rc, where, status);
    } else if (!strcmp(word, "asknull")) { /* cuGetProcAddress without name, without place, without status */
        v2_t get = (v2_t)dlsym(open_driver(RTLD_NOW), "cuGetProcAddress_v2");
        v1_t old = (v1_t)dlsym(open_driver(RTLD_NOW), "cuGetProcAddress");
        void *f = NULL;
        int a = get(NULL, &f, 12000, 0, NULL), b = get("cuInit", NULL, 12000, 0, NULL);
        int c = get("cuInit", &f, 12000, 0, NULL), d = old(NULL, &f, 11030, 0), e = old("cuInit", NULL, 11030, 0);
        printf("asknull %d %d %d %d %d\n", a, b, c, d, e);
    } else if (!strcmp(word, "ours")) { /* does this name lead into Cuvisor? */
        Dl_info info;
        void *f = find(argument);
        printf("ours %s %s\n", argument, !f ? "NULL" : dladdr(f, &info) ? strrchr(info.dli_fname, '/') + 1 : "?");
    } else if (!strcmp(word, "thread")) { /* a step in another thread */
        pthread_t t;
        pthread_create(&t, NULL, in_thread, argument);
        pthread_join(t, NULL);
    } else if (!strcmp(word, "fork")) { /* a step in a child; both leave by exit */
        fflush(stdout);
        pid_t child = fork();
        if (!child) { step(argument); exit(0); }
        waitpid(child, NULL, 0);
    } else if (!strcmp(word, "exec")) { /* this program again, with one step */
        fflush(stdout);
        pid_t child = fork();
        if (!child) { execl("/proc/self/exe", "prog", route, argument, NULL); _exit(9); }
        waitpid(child, NULL, 0);
    } else if (!strcmp(word, "mkdir")) { mkdir(argument, 0755);
    } else if (!strcmp(word, "closeall")) { for (int fd = 3; fd < 256; fd++) close(fd);
    } else if (!strcmp(word, "title")) { /* overwrite the command line, as setproctitle does */
        memset(arguments[0], 0, strlen(arguments[0]));
        strncpy(arguments[0], argument, strlen(arguments[0]));
        for (int k = 1; arguments[k] && k < 3; k++) memset(arguments[k], 'x', strlen(arguments[k]));
    } else if (!strcmp(word, "times")) { /* N:STEP */
        const char *what = strchr(text + 6, ':') + 1;
        for (int k = 0; k < number; k++) step(what);
    } else if (!strcmp(word, "wait")) { printf("waiting\n"); pause();
    } else if (!strcmp(word, "kill")) { fflush(stdout); kill(getpid(), 9);
    } else if (!strcmp(word, "_exit")) { fflush(stdout); _exit(number);
    } else { printf("no step %s\n", word); exit(9); }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) return 9;
    route = strdup(argv[1]);
    arguments = argv;
    for (int k = 2; k < argc; k++) step(argv[k]);
    return 0;
}
