/* The parts of the work that an interpreter or the start of processes would dominate.
 *
 *   helper settle DIR FILE                    make all changes of a file system durable
 *   helper tree DIR FILES                     directories for FILES files, 128 entries in each
 *   helper create DIR FILES BYTES THREADS     the files, one in each directory in turn; a curve
 *   helper check-files DIR FILES BYTES STEP   read every STEP-th of them and compare
 *   helper write FILE BYTES                   sequentially, 1 MiB in a call, then fsync
 *   helper read FILE BYTES WRITES EACH        sequentially, comparing, after WRITES writes of EACH bytes
 *   helper overwrite FILE BYTES WRITES EACH   EACH bytes (4 or 4096) at random places, then fsync; a curve
 *   helper read-random FILE BYTES READS       blocks of 4 KiB at random places
 *   helper rename FROM TO COUNT each|end      back and forth; fsync of the directories each time, or at the end
 *   helper mail DIR BOXES MESSAGES OPS THREADS  deliver messages, work on them, compare what is left
 *
 * Results are lines "name seconds"; the points of a curve are lines "operations seconds". A failure is printed, with
 * exit code 1. All contents follow from their places, so that comparing needs no second copy. */
#include "helper.h"

static uint64_t number(const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *end) errx(1, "not a number: %s", text);
    return value;
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
    else if (!strcmp(name, "read") && arguments == 4) read_all(a[0], number(a[1]), number(a[2]), number(a[3]));
    else if (!strcmp(name, "overwrite") && arguments == 4)
        overwrite(a[0], number(a[1]), number(a[2]), number(a[3]));
    else if (!strcmp(name, "read-random") && arguments == 3) read_random(a[0], number(a[1]), number(a[2]));
    else if (!strcmp(name, "rename") && arguments == 4) rename_often(a[0], a[1], number(a[2]), a[3]);
    else if (!strcmp(name, "mail") && arguments == 5)
        mail(a[0], number(a[1]), number(a[2]), number(a[3]), number(a[4]));
    else errx(2, "the head of main.c lists the commands");
    return 0;
}
