/* Writes an audit log as jobs of 40 users on 8 GPUs write it, each with four lines: scripts/bench.sh measures the report of it.
 *
 *   log LINES     at least so many lines, on stdout; the same ones each time */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t state = 1;

/* A number below `most`, by a linear congruential generator (Knuth's MMIX constants). */
static unsigned below(unsigned most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % most;
}

static void stamp(char *text, size_t size, time_t second) {
    struct tm parts;
    strftime(text, size, "%Y-%m-%dT%H:%M:%S.000000Z", gmtime_r(&second, &parts));
}

int main(int argc, char **argv) {
    long lines = argc > 1 ? atol(argv[1]) : 0;
    static char buffer[1 << 20];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    time_t second = 1793491200;
    char begin[40], next[40], then[40], end[40];
    for (long pid = 1001, written = 0; written < lines; pid++, written += 4) {
        unsigned uid = 1000 + below(40), gpu = below(8), script = below(60);
        char process[512], device[160];
        int ours = snprintf(process, sizeof process,
            "\"outcome\":\"enforced\",\"pid\":%ld,\"ppid\":1,\"start_time\":%ld,\"uid\":%u,\"euid\":%u,\"login_uid\":null,\"exe\":\"/usr/bin/python3.11\","
            "\"argv\":[\"python3\",\"/home/u/train_%u.py\",\"--lr\",\"0.001\",\"--epochs\",\"10\"],\"cwd\":\"/home/u/work\",\"container\":null,"
            "\"cgroup\":\"/user.slice\",\"policy\":\"/etc/cuvisor/policy.toml\",\"rule\":\"trainers\"", pid, pid, uid, uid, script);
        int its = snprintf(device, sizeof device, "{\"ordinal\":0,\"uuid\":\"GPU-%u1111111-0000-4000-8000-000000000001\",\"pci\":\"0000:1%u:00.0\"}", gpu, gpu);
        if (ours < 0 || its < 0) return 1;
        if (pid == 1001 || pid % 3 == 1) {
            stamp(begin, sizeof begin, second);
            stamp(next, sizeof next, second + 1);
            stamp(then, sizeof then, second + 2);
            stamp(end, sizeof end, second + 60);
        }
        const char *head = "{\"schema\":\"cuvisor.audit/1\",\"time\":\"%s\",\"event\":\"%s\",%s,";
        const char *call = "\"result\":0,\"result_name\":\"CUDA_SUCCESS\",\"call\":\"cuDeviceGet\",\"caller\":\"libcudart.so.13\",\"driver\":\"/usr/lib/libcuda.so.1\",\"device\":%s}\n";
        printf(head, begin, "init", process);
        printf("\"result\":0,\"request\":null,\"effective\":\"%u\",\"changed\":true,\"caller\":\"libcudart.so.13\",\"devices\":[%s]}\n", gpu, device);
        printf(head, next, "device", process);
        printf(call, device);
        printf(head, then, "context", process);
        printf(call, device);
        printf(head, end, "exit", process);
        printf("\"seconds\":60.0,\"calls\":{\"init\":1,\"device\":1,\"context\":1,\"denied\":0}}\n");
        second += pid % 3 == 0;
    }
    return fflush(stdout) != 0;
}
