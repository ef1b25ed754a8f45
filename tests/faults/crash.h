/* crash.h - a disk that loses power. From recorded calls (shim.h) it makes every content that a directory may have when
 * the machine stops after the first k of them, under this model:
 *
 *   - what was synced is there: of a file its bytes and length, of a directory its names
 *   - of the calls since then any set may have reached the disk, in any order: each write, reservation, new name, rename
 *     and removal on its own; a rename is all or nothing
 *   - one write of those may be torn at any multiple of 512 bytes of the file
 *   - bytes of a file that never arrived read as zeros, or as whatever lay there
 *
 * Owns the model. Refuses to know what the files are for. */
#ifndef RAMET_TESTS_CRASH_H
#define RAMET_TESTS_CRASH_H

#include "faults/shim.h"

enum { CRASH_NAMES = 8 };

typedef struct crash_file {
    const char *path; /* borrowed from the events, or from what was given as there before */
    const uint8_t *data;
    size_t bytes;
} crash_file;

/* What a directory may hold after a crash; borrowed for the call. */
typedef void (*crash_visit)(void *user, const crash_file *files, size_t n_files);

/* Every state after the first `n` events, with the files of `before` there and synced; of torn writes those that
 * `tears` lets pass, one in so many (1: all). Returns how many states there were. Aborts on a call that the model does
 * not know. */
size_t crash_each(const shim_event *events, size_t n, const crash_file *before, size_t n_before, unsigned tears,
                  crash_visit visit, void *user);

#endif
