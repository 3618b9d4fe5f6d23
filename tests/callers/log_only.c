/* A preload library that does nothing but log: it asks the kernel who the process is, as far as an event tells it, and
 * appends three lines of an event's length. scripts/bench.sh measures it as the least that a log can cost. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void ask(const char *path) {
    char room[2048];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (read(file, room, sizeof room) < 0) _exit(9);
    close(file);
}

__attribute__((constructor)) static void log_three(void) {
    char room[1024];
    ask("/proc/self/stat");
    ask("/proc/self/loginuid");
    ask("/proc/self/cgroup");
    const char *links[] = {"/proc/self/exe", "/proc/self/ns/pid", "/proc/self/ns/cgroup"};
    for (int k = 0; k < 3; k++)
        if (readlink(links[k], room, sizeof room) < 0) _exit(9);
    if (!getcwd(room, sizeof room)) _exit(9);
    char line[600] = "";
    line[sizeof line - 1] = '\n';
    for (int k = 0; k < 3; k++) {
        struct stat status;
        int file = open(getenv("LOG_ONLY"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
        if (fstat(file, &status) || write(file, line, sizeof line) != sizeof line) _exit(9);
        close(file);
    }
}
