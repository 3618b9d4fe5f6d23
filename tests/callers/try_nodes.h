/* Sends a command to each of the device nodes and prints errno: 0 done, 13 denied, 25 the device knows no such command. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void try_nodes(char **nodes) {
    for (char **node = nodes; *node; node++) {
        int fd = open(*node, O_RDWR | O_CLOEXEC), n, e = 0;
        if (fd < 0) printf("%s open %d\n", *node, errno);
        else {
            if (ioctl(fd, FIONREAD, &n)) e = errno;
            printf("%s %d\n", *node, e);
            close(fd);
        }
    }
    fflush(stdout);
}
