/* The parts of the work that must not be dominated by an interpreter or by starting processes.
 *
 *   helper settle DIR FILE                    make all that was done in a file system durable
 *   helper tree DIR FILES                     directories for so many files, 128 entries in each
 *   helper create DIR FILES BYTES THREADS     the files, a file in each directory in turn
 *   helper check-files DIR FILES BYTES STEP   reads every STEP-th of them and compares
 *   helper write FILE BYTES                   sequentially, 1 MiB in a call, then fsync
 *   helper read FILE BYTES WRITES             the same way, comparing; so many 4-byte writes were made
 *   helper overwrite FILE BYTES WRITES        4 bytes at random places, then fsync
 *   helper rename FROM TO COUNT each|end      forth and back; fsync of the directories each time, or at the end
 *
 * What was measured is printed as "name seconds"; whatever fails says so and ends with 1. All contents follow
 * from their places, so that nothing has to be remembered for comparing. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FANOUT = 128, CALL_BYTES = 1 << 20, BLOCK_BYTES = 4096, STAMP_BYTES = 8 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void report(const char *name, double since) { printf("%s %.6f\n", name, now() - since); }

/* SplitMix64: a number that looks random for every number. */
static uint64_t mix(uint64_t n) {
    n += 0x9e3779b97f4a7c15;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
    n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
    return n ^ (n >> 31);
}

static void fill(unsigned char *bytes, size_t count, uint64_t seed) {
    for (size_t at = 0; at < count; at += sizeof seed) {
        uint64_t word = mix(seed + at);
        memcpy(bytes + at, &word, count - at < sizeof word ? count - at : sizeof word);
    }
}

static uint64_t number(const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *end) errx(1, "not a number: %s", text);
    return value;
}

static int open_or_die(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0) err(1, "open %s", path);
    return fd;
}

static void write_or_die(int fd, const void *bytes, size_t count, const char *path) {
    ssize_t written = write(fd, bytes, count);
    if (written < 0) err(1, "write %s", path);
    if ((size_t)written != count) errx(1, "write %s: %zd of %zu bytes", path, written, count);
}

static void sync_or_die(const char *path) {
    int fd = open_or_die(path, O_RDONLY);
    if (fsync(fd)) err(1, "fsync %s", path);
    close(fd);
}

/* syncfs alone is not enough: the kernel writes back what it caches, but tells an ordinary FUSE daemon nothing.
 * fsync of a directory alone is not enough: ext4 commits names, not data whose allocation it delays. And a
 * daemon that has no fsync of directories is asked with a file. */
static void settle(const char *dir, const char *file) {
    int fd = open_or_die(dir, O_RDONLY | O_DIRECTORY);
    if (syncfs(fd)) err(1, "syncfs %s", dir);
    close(fd);
    sync_or_die(dir);
    sync_or_die(file);
}

/* ---- small files: file number n is in leaf directory n / FANOUT ---- */

static void leaf_path(char *path, const char *dir, uint64_t leaf) {
    snprintf(path, PATH_MAX, "%s/%03d/%03d/%03d", dir, (int)(leaf / FANOUT / FANOUT), (int)(leaf / FANOUT % FANOUT),
             (int)(leaf % FANOUT));
}

static void file_path(char *path, const char *dir, uint64_t file) {
    leaf_path(path, dir, file / FANOUT);
    size_t length = strlen(path);
    snprintf(path + length, PATH_MAX - length, "/%03d", (int)(file % FANOUT));
}

static uint64_t leaves(uint64_t files) { return (files + FANOUT - 1) / FANOUT; }

static void make_dir(const char *path) {
    if (mkdir(path, 0755)) err(1, "mkdir %s", path);
}

static void tree(const char *dir, uint64_t files) {
    char path[PATH_MAX];
    if (leaves(files) > FANOUT * FANOUT * FANOUT) errx(1, "too many files for three levels of directories");
    make_dir(dir);
    for (uint64_t leaf = 0; leaf < leaves(files); leaf++) {
        leaf_path(path, dir, leaf);
        char *last = strrchr(path, '/'), *middle = last - strlen("/000");
        *middle = 0;
        if (leaf % (FANOUT * FANOUT) == 0) make_dir(path);
        *middle = '/', *last = 0;
        if (leaf % FANOUT == 0) make_dir(path);
        *last = '/';
        make_dir(path);
    }
}

struct creator {
    pthread_t thread;
    const char *dir;
    uint64_t files, bytes, first, step;
};

/* As in TokuBench: goes through all leaf directories and makes one file in each, then through all again. */
static void *create_some(void *argument) {
    const struct creator *creator = argument;
    unsigned char *bytes = malloc(creator->bytes + 1);
    char path[PATH_MAX];
    for (uint64_t slot = creator->first; slot < FANOUT; slot += creator->step)
        for (uint64_t file = slot; file < creator->files; file += FANOUT) {
            file_path(path, creator->dir, file);
            fill(bytes, creator->bytes, mix(file));
            int fd = open_or_die(path, O_WRONLY | O_CREAT | O_EXCL);
            write_or_die(fd, bytes, creator->bytes, path);
            if (close(fd)) err(1, "close %s", path);
        }
    free(bytes);
    return NULL;
}

static void create(const char *dir, uint64_t files, uint64_t bytes, uint64_t threads) {
    struct creator creators[FANOUT];
    if (threads < 1 || threads > FANOUT) errx(1, "from 1 to %d threads", FANOUT);
    for (uint64_t n = 0; n < threads; n++) {
        creators[n] = (struct creator){.dir = dir, .files = files, .bytes = bytes, .first = n, .step = threads};
        if (pthread_create(&creators[n].thread, NULL, create_some, &creators[n])) errx(1, "no thread");
    }
    for (uint64_t n = 0; n < threads; n++) pthread_join(creators[n].thread, NULL);
}

static void check_files(const char *dir, uint64_t files, uint64_t bytes, uint64_t step) {
    unsigned char *expected = malloc(bytes + 1), *found = malloc(bytes + 1);
    char path[PATH_MAX];
    for (uint64_t file = 0; file < files; file += step) {
        file_path(path, dir, file);
        fill(expected, bytes, mix(file));
        int fd = open_or_die(path, O_RDONLY);
        if (read(fd, found, bytes + 1) != (ssize_t)bytes || memcmp(expected, found, bytes))
            errx(1, "%s is not what was written", path);
        close(fd);
    }
}

/* ---- one large file: random bytes that repeat, but each block begins with a stamp of its own ---- */

static void stamp(unsigned char *block, uint64_t offset) {
    uint64_t value = mix(~offset);
    memcpy(block, &value, STAMP_BYTES);
}

/* Aligned, so that no write concerns two pages; outside of stamps; and with a value that follows from the
 * place, since places may repeat. */
static uint64_t place(uint64_t n, uint64_t bytes) {
    uint64_t offset = mix(n) % (bytes / 4) * 4;
    return offset % BLOCK_BYTES < STAMP_BYTES ? offset + STAMP_BYTES : offset;
}

static uint32_t value_at(uint64_t offset) { return (uint32_t)mix(offset ^ 0x6b3f0d4e); }

static void check_size(uint64_t bytes) {
    if (bytes == 0 || bytes % CALL_BYTES) errx(1, "the size is not a multiple of %d", CALL_BYTES);
}

static void write_all(const char *path, uint64_t bytes) {
    unsigned char *call = malloc(CALL_BYTES);
    check_size(bytes);
    fill(call, CALL_BYTES, 1);
    double start = now();
    int fd = open_or_die(path, O_WRONLY | O_CREAT | O_EXCL);
    for (uint64_t offset = 0; offset < bytes; offset += CALL_BYTES) {
        for (uint64_t at = 0; at < CALL_BYTES; at += BLOCK_BYTES) stamp(call + at, offset + at);
        write_or_die(fd, call, CALL_BYTES, path);
    }
    report("returned", start);
    if (fsync(fd) || close(fd)) err(1, "fsync %s", path);
    report("durable", start);
}

static void overwrite(const char *path, uint64_t bytes, uint64_t writes) {
    check_size(bytes);
    double start = now();
    int fd = open_or_die(path, O_WRONLY);
    for (uint64_t n = 0; n < writes; n++) {
        uint64_t offset = place(n, bytes);
        uint32_t value = value_at(offset);
        if (pwrite(fd, &value, sizeof value, offset) != sizeof value) err(1, "pwrite %s", path);
    }
    report("returned", start);
    if (fsync(fd) || close(fd)) err(1, "fsync %s", path);
    report("durable", start);
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Of each block the stamp is compared, and every value that was written over it: enough to know that the right
 * bytes came, and too little to be what is measured. */
static void read_all(const char *path, uint64_t bytes, uint64_t writes) {
    unsigned char *call = malloc(CALL_BYTES), expected[STAMP_BYTES];
    uint64_t *places = malloc((writes + 1) * sizeof *places), next = 0;
    check_size(bytes);
    for (uint64_t n = 0; n < writes; n++) places[n] = place(n, bytes);
    qsort(places, writes, sizeof *places, ascending);
    places[writes] = UINT64_MAX;
    double start = now();
    int fd = open_or_die(path, O_RDONLY);
    for (uint64_t offset = 0; offset < bytes; offset += CALL_BYTES) {
        for (ssize_t got, at = 0; at < CALL_BYTES; at += got) {
            if ((got = read(fd, call + at, CALL_BYTES - at)) < 0) err(1, "read %s", path);
            if (got == 0) errx(1, "%s is too short", path);
        }
        for (uint64_t at = 0; at < CALL_BYTES; at += BLOCK_BYTES) {
            stamp(expected, offset + at);
            if (memcmp(call + at, expected, STAMP_BYTES)) errx(1, "%s at %lu: wrong block", path, offset + at);
        }
        for (; places[next] < offset + CALL_BYTES; next++) {
            uint32_t value = value_at(places[next]);
            if (memcmp(call + places[next] - offset, &value, sizeof value))
                errx(1, "%s at %lu: not what was written", path, places[next]);
        }
    }
    if (read(fd, call, 1) != 0) errx(1, "%s is too long", path);
    close(fd);
    report("read", start);
}

/* ---- renames ---- */

static void rename_often(const char *from, const char *to, uint64_t count, const char *when) {
    char one[PATH_MAX], other[PATH_MAX];
    int each = !strcmp(when, "each");
    if (!each && strcmp(when, "end")) errx(1, "each or end, not %s", when);
    if (count % 2 == 0) errx(1, "an odd count, or nothing is to be seen of it afterwards");
    strcpy(one, from), strcpy(other, to);
    const char *parents[] = {dirname(one), dirname(other)};
    int different = strcmp(parents[0], parents[1]) != 0;
    double start = now();
    for (uint64_t n = 0; n < count; n++) {
        const char *old = n % 2 ? to : from, *new = n % 2 ? from : to;
        if (rename(old, new)) err(1, "rename %s %s", old, new);
        if (each || n == count - 1)
            for (int i = 0; i <= different; i++) sync_or_die(parents[i]);
    }
    report("durable", start);
}

int main(int argc, char **argv) {
    const char *name = argc > 2 ? argv[1] : "", **a = (const char **)argv + 2;
    int arguments = argc - 2;
    if (!strcmp(name, "settle") && arguments == 2) settle(a[0], a[1]);
    else if (!strcmp(name, "tree") && arguments == 2) tree(a[0], number(a[1]));
    else if (!strcmp(name, "create") && arguments == 4) create(a[0], number(a[1]), number(a[2]), number(a[3]));
    else if (!strcmp(name, "check-files") && arguments == 4)
        check_files(a[0], number(a[1]), number(a[2]), number(a[3]));
    else if (!strcmp(name, "write") && arguments == 2) write_all(a[0], number(a[1]));
    else if (!strcmp(name, "read") && arguments == 3) read_all(a[0], number(a[1]), number(a[2]));
    else if (!strcmp(name, "overwrite") && arguments == 3) overwrite(a[0], number(a[1]), number(a[2]));
    else if (!strcmp(name, "rename") && arguments == 4) rename_often(a[0], a[1], number(a[2]), a[3]);
    else errx(2, "the head of helper.c says how to call it");
    return 0;
}
