/* One large file: random bytes that repeat, but each block begins with a stamp of its own. */
#include "helper.h"

enum { CALL_BYTES = 1 << 20, BLOCK_BYTES = 4096, STAMP_BYTES = 8 };

static void stamp(unsigned char *block, uint64_t offset) {
    uint64_t value = mix(~offset);
    memcpy(block, &value, STAMP_BYTES);
}

/* The place of write number n. Aligned, so that no write concerns two pages. 4 bytes do not hit a stamp. */
static uint64_t place(uint64_t n, uint64_t bytes, uint64_t each) {
    uint64_t offset = mix(n) % (bytes / each) * each;
    return each < STAMP_BYTES && offset % BLOCK_BYTES < STAMP_BYTES ? offset + STAMP_BYTES : offset;
}

/* What is written at a place. It follows from the place, since places may repeat. */
static void content(unsigned char *bytes, uint64_t offset, uint64_t each) {
    fill(bytes, each, mix(offset ^ 0x6b3f0d4e));
    if (each == BLOCK_BYTES) stamp(bytes, offset);
}

static void check_sizes(uint64_t bytes, uint64_t each) {
    if (bytes == 0 || bytes % CALL_BYTES) errx(1, "the size is not a multiple of %d", CALL_BYTES);
    if (each != 4 && each != BLOCK_BYTES) errx(1, "writes of 4 or %d bytes", BLOCK_BYTES);
}

void write_all(const char *path, uint64_t bytes) {
    unsigned char *call = malloc(CALL_BYTES);
    check_sizes(bytes, 4);
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

void overwrite(const char *path, uint64_t bytes, uint64_t writes, uint64_t each) {
    unsigned char block[BLOCK_BYTES];
    check_sizes(bytes, each);
    uint64_t apart = points_apart(writes);
    double start = now();
    int fd = open_or_die(path, O_WRONLY);
    for (uint64_t n = 0; n < writes; n++) {
        uint64_t offset = place(n, bytes, each);
        content(block, offset, each);
        if (pwrite(fd, block, each, offset) != (ssize_t)each) err(1, "pwrite %s", path);
        if ((n + 1) % apart == 0) printf("%lu %.6f\n", n + 1, now() - start);
    }
    report("returned", start);
    if (fsync(fd) || close(fd)) err(1, "fsync %s", path);
    report("durable", start);
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Compares the stamp of each block, and all that was written over it. Comparing all bytes would dominate the time. */
void read_all(const char *path, uint64_t bytes, uint64_t writes, uint64_t each) {
    unsigned char *call = malloc(CALL_BYTES), expected[BLOCK_BYTES];
    uint64_t *places = malloc((writes + 1) * sizeof *places), next = 0;
    check_sizes(bytes, each);
    for (uint64_t n = 0; n < writes; n++) places[n] = place(n, bytes, each);
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
            content(expected, places[next], each);
            if (memcmp(call + places[next] - offset, expected, each))
                errx(1, "%s at %lu: not what was written", path, places[next]);
        }
    }
    if (read(fd, call, 1) != 0) errx(1, "%s is too long", path);
    close(fd);
    report("read", start);
}

/* The places are others than those of writes, or caches could hold them. */
void read_random(const char *path, uint64_t bytes, uint64_t reads) {
    unsigned char block[BLOCK_BYTES], expected[STAMP_BYTES];
    check_sizes(bytes, BLOCK_BYTES);
    double start = now();
    int fd = open_or_die(path, O_RDONLY);
    for (uint64_t n = 0; n < reads; n++) {
        uint64_t offset = place(~n, bytes, BLOCK_BYTES);
        if (pread(fd, block, BLOCK_BYTES, offset) != BLOCK_BYTES) err(1, "pread %s", path);
        stamp(expected, offset);
        if (memcmp(block, expected, STAMP_BYTES)) errx(1, "%s at %lu: wrong block", path, offset);
    }
    close(fd);
    report("read", start);
}
