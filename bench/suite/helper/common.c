/* Times, seeded contents, calls that end the program when they fail, and settle. */
#include "helper.h"
#include <time.h>

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

void report(const char *name, double since) { printf("%s %.6f\n", name, now() - since); }

uint64_t points_apart(uint64_t count) { return count < POINTS ? 1 : count / POINTS; }

uint64_t mix(uint64_t n) {
    n += 0x9e3779b97f4a7c15;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
    n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
    return n ^ (n >> 31);
}

void fill(unsigned char *bytes, size_t count, uint64_t seed) {
    for (size_t at = 0; at < count; at += sizeof seed) {
        uint64_t word = mix(seed + at);
        memcpy(bytes + at, &word, count - at < sizeof word ? count - at : sizeof word);
    }
}

int open_or_die(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0) err(1, "open %s", path);
    return fd;
}

void write_or_die(int fd, const void *bytes, size_t count, const char *path) {
    ssize_t written = write(fd, bytes, count);
    if (written < 0) err(1, "write %s", path);
    if ((size_t)written != count) errx(1, "write %s: %zd of %zu bytes", path, written, count);
}

void sync_or_die(const char *path) {
    int fd = open_or_die(path, O_RDONLY);
    if (fsync(fd)) err(1, "fsync %s", path);
    close(fd);
}

void make_dir(const char *path) {
    if (mkdir(path, 0755)) err(1, "mkdir %s", path);
}

void start_thread(pthread_t *thread, void *(*run)(void *), void *argument) {
    if (pthread_create(thread, NULL, run, argument)) errx(1, "no thread");
}

/* syncfs alone is not enough: the kernel writes back its cache, but sends an ordinary FUSE daemon no request.
 * fsync of a directory alone is not enough: ext4 commits names, not data whose allocation it delays. A daemon
 * without fsync of directories gets fsync of a file. */
void settle(const char *dir, const char *file) {
    int fd = open_or_die(dir, O_RDONLY | O_DIRECTORY);
    if (syncfs(fd)) err(1, "syncfs %s", dir);
    close(fd);
    sync_or_die(dir);
    sync_or_die(file);
}
