/* sweep.h - what dead processes left behind, told from what live ones work on.
 *
 * A temporary thing says that its owner lives by a lock (flock) that the kernel drops with the last descriptor, however
 * the process ends: no process number that comes round again, no clock, and other PID namespaces see it too. The owner
 * locks it shared, a sweeper asks for it alone through a descriptor that only reads: a file system that cannot do both
 * (NFS) refuses the sweeper, and then nothing is swept.
 *
 *   owner     make -> lock -> still there? -> work -> publish or remove -> let go
 *   sweeper   see -> lock -> still there? -> remove -> let go
 *
 * Whoever comes second at the lock, or finds the name gone, leaves it. A name alone could be somebody's, so a directory is
 * swept only when nobody else may look into it and all that is in it has names of ours, too: otherwise it stays whole.
 * Owns the names of temporary things. */
#ifndef RAMET_BASE_SWEEP_H
#define RAMET_BASE_SWEEP_H

#include <stdbool.h>

/* A temporary file is named <its file> RAMET_TEMPORARY_MIDDLE <16 hexadecimal digits>, a directory RAMET_TEMPORARY_HEAD
 * <16 hexadecimal digits>: nothing else is ever swept. What lies in such a directory is named by 16 hexadecimal digits
 * alone, or RAMET_TEMPORARY_HEAD <anything>. */
#define RAMET_TEMPORARY_MIDDLE ".ramet-tmp-"
#define RAMET_TEMPORARY_HEAD   "ramet-"

/* Whether a path ends in the name of a temporary file or directory. Async-signal-safe. */
bool ramet_temporary_is_named(const char *path);

/* Says that `path`, just made and open as `fd`, is somebody's, for as long as the descriptor or a copy of it is open.
 * False: a sweeper was faster, so make another one. Where there are no locks: true, and nothing is swept. */
bool ramet_temporary_hold(int fd, const char *path);

/* Removes what dead processes of this user left in `directory`, once per process: a later call for it does nothing. */
void ramet_temporary_sweep(const char *directory);
/* The same, every time. */
void ramet_temporary_sweep_again(const char *directory);

/* Removes a temporary directory with the files in it, also those that another thread is putting there meanwhile. On Linux
 * async-signal-safe. */
int ramet_temporary_remove_directory(const char *path);

#endif
