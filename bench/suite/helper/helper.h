/* Shared by the commands of the helper: times, seeded contents, and calls that end the program when they fail. */
#ifndef HELPER_H
#define HELPER_H
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 30 points of each curve. */
enum { POINTS = 30 };

double now(void);
/* Prints "name seconds". */
void report(const char *name, double since);
/* The number of operations after which curves have a point. */
uint64_t points_apart(uint64_t count);
/* SplitMix64: a bijection that looks random. */
uint64_t mix(uint64_t n);
void fill(unsigned char *bytes, size_t count, uint64_t seed);

int open_or_die(const char *path, int flags);
void write_or_die(int fd, const void *bytes, size_t count, const char *path);
void sync_or_die(const char *path);
void make_dir(const char *path);
void start_thread(pthread_t *thread, void *(*run)(void *), void *argument);

void settle(const char *dir, const char *file);
void tree(const char *dir, uint64_t files);
void create(const char *dir, uint64_t files, uint64_t bytes, uint64_t threads);
void check_files(const char *dir, uint64_t files, uint64_t bytes, uint64_t step);
void write_all(const char *path, uint64_t bytes);
void read_all(const char *path, uint64_t bytes, uint64_t writes, uint64_t each);
void overwrite(const char *path, uint64_t bytes, uint64_t writes, uint64_t each);
void read_random(const char *path, uint64_t bytes, uint64_t reads);
void rename_often(const char *from, const char *to, uint64_t count, const char *when);
void mail(const char *dir, uint64_t boxes, uint64_t messages, uint64_t operations, uint64_t threads);

#endif
