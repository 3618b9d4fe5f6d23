/* Measures one thing many times; scripts/bench.sh calls it and makes the table.
 *
 *   bench start N ENV... -- ENV... -- ...   microseconds of a start of /bin/true in each environment, in shuffled order, pinned
 *   bench get N [THREADS]                   nanoseconds of cuDeviceGet after the first; with threads of processor time, since
 *                                           more threads than processors mostly wait
 *   bench faults ENV...                     page faults of a start of /bin/true, the fewest of 20
 *   bench dlsym N                           nanoseconds of dlsym of a name that is nobody's hook
 *   bench init N                            microseconds of cuInit (with calls = "all": one event each) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double now(void) { return read_clock(CLOCK_MONOTONIC); }

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the lowest 60 %. */
static double low_mean(double *v, int n) {
    qsort(v, n, sizeof *v, by_size);
    double sum = 0;
    int kept = n * 6 / 10;
    for (int k = 0; k < kept; k++) sum += v[k];
    return sum / kept;
}

static int start(int argc, char **argv) {
    int n = atoi(argv[2]), variants = 1;
    char **environments[32] = {argv + 3};
    for (int k = 3; k < argc; k++)
        if (!strcmp(argv[k], "--")) {
            argv[k] = NULL;
            environments[variants++] = argv + k + 1;
        }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    double *times = calloc((size_t)n * variants, sizeof *times);
    srand(1);
    for (int round = 0; round < n; round++) {
        int order[32];
        for (int k = 0; k < variants; k++) order[k] = k;
        for (int k = variants - 1; k > 0; k--) {
            int other = rand() % (k + 1), kept = order[k];
            order[k] = order[other];
            order[other] = kept;
        }
        for (int k = 0; k < variants; k++) {
            char *command[] = {"/bin/true", NULL};
            pid_t pid;
            double before = now();
            if (posix_spawn(&pid, "/bin/true", NULL, NULL, command, environments[order[k]])) return 1;
            waitpid(pid, NULL, 0);
            times[order[k] * n + round] = now() - before;
        }
    }
    for (int k = 0; k < variants; k++) printf("%.2f\n", low_mean(times + (size_t)k * n, n) / 1000);
    return 0;
}

static int faults(char **environment) {
    long fewest = 0;
    for (int k = 0; k < 20; k++) {
        char *command[] = {"/bin/true", NULL};
        struct rusage usage;
        pid_t pid;
        int status;
        if (posix_spawn(&pid, "/bin/true", NULL, NULL, command, environment) || wait4(pid, &status, 0, &usage) != pid) return 1;
        if (!k || usage.ru_minflt < fewest) fewest = usage.ru_minflt;
    }
    printf("%ld\n", fewest);
    return 0;
}

static int (*get)(int *, int);
static int loops;
static void *get_loop(void *out) {
    int d;
    double before = read_clock(CLOCK_THREAD_CPUTIME_ID);
    for (int k = 0; k < loops; k++) get(&d, 0);
    *(double *)out = (read_clock(CLOCK_THREAD_CPUTIME_ID) - before) / loops;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 9;
    int n = loops = atoi(argv[2]);
    if (!strcmp(argv[1], "start")) return start(argc, argv);
    if (!strcmp(argv[1], "faults")) return faults(argv + 2);
    void *h = dlopen("libcuda.so.1", RTLD_NOW);
    if (!h) return 9;
    double best[9];
    if (!strcmp(argv[1], "dlsym")) {
        for (int round = 0; round < 9; round++) {
            double before = now();
            for (int k = 0; k < n; k++) dlsym(h, "cuDriverGetVersion");
            best[round] = (now() - before) / n;
        }
        printf("%.2f\n", low_mean(best, 9));
        return 0;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(h, "cuInit");
    get = (int (*)(int *, int))dlsym(h, "cuDeviceGet");
    int d;
    init(0);
    get(&d, 0);
    if (!strcmp(argv[1], "init")) {
        for (int round = 0; round < 9; round++) {
            double before = now();
            for (int k = 0; k < n; k++) init(0);
            best[round] = (now() - before) / n / 1000;
        }
        printf("%.2f\n", low_mean(best, 9));
        return 0;
    }
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    for (int round = 0; round < 9; round++) {
        pthread_t t[64];
        double each[64], sum = 0;
        for (int k = 0; k < threads; k++) pthread_create(&t[k], NULL, get_loop, &each[k]);
        for (int k = 0; k < threads; k++) pthread_join(t[k], NULL), sum += each[k];
        best[round] = sum / threads;
    }
    printf("%.2f\n", low_mean(best, 9));
    return 0;
}
