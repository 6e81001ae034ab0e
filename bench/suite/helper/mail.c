/* A mail server's work on maildirs, as Dovecot does it: a message is delivered by a write to tmp, fsync, and a rename to
 * new; reading marks it (a rename to cur with a flag); moves go to another box; deletes unlink. Each change is durable
 * when it returns: fsync of the directory. Each thread has messages of its own, in boxes that all threads share. */
#include "helper.h"

enum { BYTES_MIN = 1 << 10, BYTES_MAX = 16 << 10, THREADS_MAX = 64 };

struct message {
    uint64_t id;
    uint32_t box;
    int seen;
};

struct worker {
    pthread_t thread;
    const char *dir;
    uint64_t number, boxes, messages, operations, count, next, step;
    struct message *all;
};

static uint64_t size_of(uint64_t id) { return BYTES_MIN + mix(id ^ 0x51) % (BYTES_MAX - BYTES_MIN); }

static void path_of(char *path, const char *dir, const struct message *message) {
    snprintf(path, PATH_MAX, "%s/%02u/%s/%lu.bench%s", dir, message->box, message->seen ? "cur" : "new", message->id,
             message->seen ? ":2,S" : "");
}

static void sync_box(const char *dir, const struct message *message) {
    char path[PATH_MAX];
    snprintf(path, PATH_MAX, "%s/%02u/%s", dir, message->box, message->seen ? "cur" : "new");
    sync_or_die(path);
}

static void deliver(struct worker *worker, uint64_t box) {
    unsigned char bytes[BYTES_MAX];
    char temporary[PATH_MAX], path[PATH_MAX];
    struct message *message = &worker->all[worker->count++];
    *message = (struct message){.id = worker->next, .box = box};
    worker->next += worker->step;
    snprintf(temporary, PATH_MAX, "%s/%02lu/tmp/%lu.bench", worker->dir, box, message->id);
    int fd = open_or_die(temporary, O_WRONLY | O_CREAT | O_EXCL);
    fill(bytes, size_of(message->id), message->id);
    write_or_die(fd, bytes, size_of(message->id), temporary);
    if (fsync(fd) || close(fd)) err(1, "fsync %s", temporary);
    path_of(path, worker->dir, message);
    if (rename(temporary, path)) err(1, "rename %s", temporary);
    sync_box(worker->dir, message);
}

/* Moves or marks a message, which changes its name. */
static void change(struct worker *worker, struct message *message, struct message to) {
    char from_path[PATH_MAX], to_path[PATH_MAX];
    path_of(from_path, worker->dir, message);
    path_of(to_path, worker->dir, &to);
    if (rename(from_path, to_path)) err(1, "rename %s", from_path);
    sync_box(worker->dir, message);
    sync_box(worker->dir, &to);
    *message = to;
}

static void read_message(struct worker *worker, const struct message *message) {
    unsigned char found[BYTES_MAX], expected[BYTES_MAX];
    char path[PATH_MAX];
    path_of(path, worker->dir, message);
    int fd = open_or_die(path, O_RDONLY);
    ssize_t size = size_of(message->id);
    fill(expected, size, message->id);
    if (read(fd, found, sizeof found) != size || memcmp(found, expected, size))
        errx(1, "%s is not what was delivered", path);
    close(fd);
}

static void *deliver_all(void *argument) {
    struct worker *worker = argument;
    for (uint64_t n = 0; n < worker->messages; n++) deliver(worker, n % worker->boxes);
    return NULL;
}

/* Half of the operations read; an eighth each delivers and deletes, so that the number of messages stays; the others mark
 * and move. */
static void *work(void *argument) {
    struct worker *worker = argument;
    for (uint64_t n = 0; n < worker->operations; n++) {
        uint64_t random = mix(mix(worker->number) + n), box = (random >> 32) % worker->boxes;
        if (worker->count == 0 || random % 8 == 4) {
            deliver(worker, box);
            continue;
        }
        struct message *message = &worker->all[(random >> 8) % worker->count], to = *message;
        switch (random % 8) {
        case 5: {
            char path[PATH_MAX];
            path_of(path, worker->dir, message);
            if (unlink(path)) err(1, "unlink %s", path);
            sync_box(worker->dir, message);
            *message = worker->all[--worker->count];
            break;
        }
        case 6:
            to.seen = !to.seen;
            change(worker, message, to);
            break;
        case 7:
            to.box = (to.box + 1 + box % (worker->boxes - 1)) % worker->boxes;
            change(worker, message, to);
            break;
        default:
            read_message(worker, message);
        }
    }
    return NULL;
}

static void *check_all(void *argument) {
    struct worker *worker = argument;
    for (uint64_t n = 0; n < worker->count; n++) read_message(worker, &worker->all[n]);
    return NULL;
}

static void run_all(struct worker *workers, uint64_t threads, void *(*run)(void *)) {
    for (uint64_t n = 0; n < threads; n++) start_thread(&workers[n].thread, run, &workers[n]);
    for (uint64_t n = 0; n < threads; n++) pthread_join(workers[n].thread, NULL);
}

void mail(const char *dir, uint64_t boxes, uint64_t messages, uint64_t operations, uint64_t threads) {
    struct worker workers[THREADS_MAX];
    char path[PATH_MAX];
    if (threads < 1 || threads > THREADS_MAX || boxes < 2 || boxes > 99)
        errx(1, "1 to %d threads, 2 to 99 boxes", THREADS_MAX);
    make_dir(dir);
    for (uint64_t box = 0; box < boxes; box++) {
        const char *names[] = {"", "/tmp", "/new", "/cur"};
        for (int n = 0; n < 4; n++) {
            snprintf(path, PATH_MAX, "%s/%02lu%s", dir, box, names[n]);
            make_dir(path);
        }
    }
    for (uint64_t n = 0; n < threads; n++)
        workers[n] = (struct worker){.dir = dir, .number = n, .boxes = boxes, .messages = messages / threads,
                                     .operations = operations / threads, .next = n, .step = threads,
                                     .all = calloc(messages / threads + operations / threads + 1, sizeof(struct message))};
    double start = now();
    run_all(workers, threads, deliver_all);
    report("delivered", start);
    start = now();
    run_all(workers, threads, work);
    report("worked", start);
    run_all(workers, threads, check_all);
    uint64_t left = 0;
    for (uint64_t n = 0; n < threads; n++) left += workers[n].count;
    printf("left %lu\n", left);
}
