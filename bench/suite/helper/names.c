/* Renames of one object, back and forth. */
#include "helper.h"
#include <libgen.h>

void rename_often(const char *from, const char *to, uint64_t count, const char *when) {
    char one[PATH_MAX], other[PATH_MAX];
    int each = !strcmp(when, "each");
    if (!each && strcmp(when, "end")) errx(1, "each or end, not %s", when);
    if (count % 2 == 0) errx(1, "an even count leaves the old name, which proves nothing");
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
