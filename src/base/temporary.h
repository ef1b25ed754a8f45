/* temporary.h - files and directories that must not outlive this process's work on them. A path is registered before it is
 * created and forgotten after it is gone or published, so that at no moment a signal can find one that nobody knows of.
 * Owns the list; refuses to install signal handlers: whoever ends the process calls ramet_temporary_remove_all. */
#ifndef RAMET_BASE_TEMPORARY_H
#define RAMET_BASE_TEMPORARY_H

#include "base/error.h"

typedef struct ramet_temporary ramet_temporary;

/* Registers a path (copied). NULL when there is no memory: it would merely be left behind. Any thread. */
ramet_temporary *ramet_temporary_add(const char *path);
ramet_temporary *ramet_temporary_find(const char *path); /* NULL: not registered; O(registered) */
void ramet_temporary_forget(ramet_temporary *t);         /* NULL does nothing */
/* Removes all that is registered, files before directories. Async-signal-safe; for a process that is about to end. */
void ramet_temporary_remove_all(void);

/* A private directory under `parent` and the path of one file in it (none when `file_name` is NULL); both are removed
 * together. First sweeps `parent` (sweep.h). */
typedef struct ramet_scratch {
    char directory[480], file[512];
    int held; /* keeps sweepers away */
    ramet_temporary *marks[2];
} ramet_scratch;
ramet_status ramet_scratch_create(const char *parent, const char *file_name, ramet_scratch *out, ramet_error *error);
void ramet_scratch_remove(ramet_scratch *s);

/* The path of a file in a directory of this process's own under `parent`, which is made for the first such file and
 * goes with the last: a process that is killed leaves one thing to sweep, and holds one descriptor, however many files
 * it has there. *out is malloc'ed, and registered; file names are the caller's to keep apart; any thread. */
ramet_status ramet_nest_add(const char *parent, const char *file_name, char **out, ramet_error *error);
/* Removes the file, if it was made, and lets go of its path. */
void ramet_nest_remove(const char *path);

/* 64 bits that no other process will come up with. */
uint64_t ramet_noise(void);

#endif
