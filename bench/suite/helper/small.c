/* Many small files, as in TokuBench: file number n is in leaf directory n / FANOUT of a balanced tree. */
#include "helper.h"

enum { FANOUT = 128 };

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

void tree(const char *dir, uint64_t files) {
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

/* All threads together have created `done` files. Point p of the curve is the time of file (p + 1) * apart. */
static atomic_uint_fast64_t done;
static double point_times[2 * POINTS];

struct creator {
    pthread_t thread;
    const char *dir;
    uint64_t files, bytes, first, step;
};

/* Goes through all leaf directories and makes one file in each, then through all again. */
static void *create_some(void *argument) {
    const struct creator *creator = argument;
    unsigned char *bytes = malloc(creator->bytes + 1);
    char path[PATH_MAX];
    uint64_t apart = points_apart(creator->files);
    for (uint64_t slot = creator->first; slot < FANOUT; slot += creator->step)
        for (uint64_t file = slot; file < creator->files; file += FANOUT) {
            file_path(path, creator->dir, file);
            fill(bytes, creator->bytes, mix(file));
            int fd = open_or_die(path, O_WRONLY | O_CREAT | O_EXCL);
            write_or_die(fd, bytes, creator->bytes, path);
            if (close(fd)) err(1, "close %s", path);
            uint64_t number = atomic_fetch_add(&done, 1) + 1;
            if (number % apart == 0) point_times[number / apart - 1] = now();
        }
    free(bytes);
    return NULL;
}

void create(const char *dir, uint64_t files, uint64_t bytes, uint64_t threads) {
    struct creator creators[FANOUT];
    if (threads < 1 || threads > FANOUT) errx(1, "from 1 to %d threads", FANOUT);
    double start = now();
    for (uint64_t n = 0; n < threads; n++) {
        creators[n] = (struct creator){.dir = dir, .files = files, .bytes = bytes, .first = n, .step = threads};
        start_thread(&creators[n].thread, create_some, &creators[n]);
    }
    for (uint64_t n = 0; n < threads; n++) pthread_join(creators[n].thread, NULL);
    uint64_t apart = points_apart(files);
    for (uint64_t p = 0; p < files / apart; p++)
        printf("%lu %.6f\n", (p + 1) * apart, point_times[p] - start);
}

void check_files(const char *dir, uint64_t files, uint64_t bytes, uint64_t step) {
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
