/* A preload library that does nothing but seal: one Landlock rule for each entry of / and /dev that can be or hold a device.
 * scripts/bench.sh measures it as the least that a seal can cost. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* To send commands to devices, and to rename and link across folders, which every ruleset forbids but where it allows it. */
#define RIGHTS (1 << 15 | 1 << 13)

static int ruleset;

static void allow_entries(const char *path, const char *but) {
    char room[4096];
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long filled; (filled = syscall(SYS_getdents64, folder, room, sizeof room)) > 0;)
        for (long at = 0; at < filled;) {
            struct dirent64 *entry = (struct dirent64 *)(room + at);
            at += entry->d_reclen;
            if (entry->d_type == DT_LNK || entry->d_type == DT_REG || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !strcmp(entry->d_name, but)) continue;
            struct { unsigned long long allowed; int parent; } __attribute__((packed)) rule = {entry->d_type == DT_DIR ? RIGHTS : 1 << 15, openat(folder, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC)};
            syscall(SYS_landlock_add_rule, ruleset, 1, &rule, 0);
        }
}

__attribute__((constructor)) static void seal(void) {
    unsigned long long handled = RIGHTS;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    allow_entries("/", "dev");
    allow_entries("/dev", "");
    syscall(SYS_landlock_restrict_self, ruleset, 0);
    syscall(SYS_close_range, ruleset, ~0u, 0);
}
