/* shim.h - stands in front of the C library's file calls: counts and records those that touch one directory, and lets the
 * nth of them fail, fall short, or give other bytes. Linked into a test program, or preloaded into any program and
 * steered by its environment:
 *
 *   RAMET_FAULTS_DIRECTORY=DIR   the directory; calls elsewhere go straight on
 *   RAMET_FAULTS_NTH=N           the call that fails; 0: none
 *   RAMET_FAULTS_ERRNO=E         with this errno; 0: it falls short instead
 *   RAMET_FAULTS_LOG=FILE        a line for each call is appended there: NAME PATH
 *
 * Owns no policy of what should follow. One recording at a time; any thread may call. */
#ifndef RAMET_TESTS_SHIM_H
#define RAMET_TESTS_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a call is; WRITE is pwrite too. */
#define SHIM_CALL_MAP(X)                                                                                               \
    X(OPEN)                                                                                                            \
    X(READ)                                                                                                            \
    X(WRITE)                                                                                                           \
    X(RESERVE)                                                                                                         \
    X(TRUNCATE)                                                                                                        \
    X(SYNC)                                                                                                            \
    X(CLOSE)                                                                                                           \
    X(RENAME)                                                                                                          \
    X(UNLINK)                                                                                                          \
    X(MKDIR)                                                                                                           \
    X(RMDIR)

typedef enum shim_call {
#define SHIM_CALL_ENUM(name) SHIM_##name,
    SHIM_CALL_MAP(SHIM_CALL_ENUM)
#undef SHIM_CALL_ENUM
        SHIM_ANY
} shim_call;

typedef enum shim_effect { SHIM_NONE, SHIM_ERROR, SHIM_SHORT, SHIM_FLIP } shim_effect;

const char *shim_call_name(shim_call call);

/* Calls on paths in `directory` (itself, and everything below), and on descriptors opened there while it is watched.
 * NULL: none. Forgets a recording. */
void shim_watch(const char *directory);

/* The nth call of a kind (SHIM_ANY: of all) from now, 1 the next, has this effect; reading and writing alone can fall
 * short, reading alone can flip: elsewhere these do nothing. A close that fails has closed, a sync that fails has
 * synced. */
void shim_arm(shim_call call, shim_effect effect, unsigned nth, int error_number);

/* A call that was recorded. `bytes` of a write are as far as it got; `data` is theirs. */
typedef struct shim_event {
    shim_call call;
    char *path, *other;        /* of the descriptor, when it has one; `other`: what a rename gives it */
    bool is_directory, is_new; /* an open: of a directory; with O_CREAT */
    uint64_t off;
    size_t bytes;
    uint8_t *data;
} shim_event;

/* Switches the fault off. True when it has struck, and then *out, if not NULL, is the call that it hit, without data
 * (borrowed until the next shim_arm or shim_watch). */
bool shim_disarm(shim_event *out);

void shim_record(bool on); /* true: forgets what was recorded */
/* What was recorded; borrowed until the next shim_record(true) or shim_watch. Failed calls are not in it. */
const shim_event *shim_recorded(size_t *out_n);

/* The nth malloc, calloc or realloc from now in the whole program fails, the C library's own included; 0: none. False
 * under a sanitizer, which has replaced them already: then nothing happens. */
bool shim_fail_malloc(unsigned nth);
bool shim_malloc_has_failed(void); /* since shim_fail_malloc; switches it off */

#endif
