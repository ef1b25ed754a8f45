/* temporary.h - files and directories that must not outlive this process's work on them. A path is registered before it is
 * created and forgotten after it is gone or published, so that at no moment a signal can find one that nobody knows of.
 * Owns the list; refuses to install signal handlers: whoever ends the process calls ramet_temporary_remove_all. */
#ifndef RAMET_BASE_TEMPORARY_H
#define RAMET_BASE_TEMPORARY_H

#include "base/error.h"

typedef struct ramet_temporary ramet_temporary;

/* Registers the path of something with a temporary name (sweep.h), absolute if the process may change its directory. It is
 * copied. NULL when there is no memory: it would merely be left behind. Any thread. */
ramet_temporary *ramet_temporary_add(const char *path);
void ramet_temporary_forget(ramet_temporary *t); /* NULL does nothing */
/* Removes all that is registered, files before directories, and these with the files in them; what has no temporary name
 * stays. Async-signal-safe; for a process that is about to end. */
void ramet_temporary_remove_all(void);

/* A private directory under `parent` and the path of one file in it ("ramet-" `file_name`; none when that is NULL), both
 * absolute: the process may change its own. It is removed with all files in it, which need not be registered. First
 * sweeps `parent` (sweep.h). E_ARGUMENT when that is empty, or too long for the system. */
enum { RAMET_SCRATCH_PATH_BYTES = 4096 };
typedef struct ramet_scratch {
    char directory[RAMET_SCRATCH_PATH_BYTES - 32]; /* so that there is room for the names in it */
    char file[RAMET_SCRATCH_PATH_BYTES];
    int held; /* keeps sweepers away */
    ramet_temporary *mark;
} ramet_scratch;
ramet_status ramet_scratch_create(const char *parent, const char *file_name, ramet_scratch *out, ramet_error *error);
void ramet_scratch_remove(ramet_scratch *s);

/* 64 bits that no other process will come up with. */
uint64_t ramet_noise(void);

#endif
