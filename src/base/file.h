/* file.h - reading and publishing files: read-only mappings, whole-buffer reads and writes, and atomic publication
 * (temporary name, fsync, rename, fsync of the directory). Owns descriptors; refuses to know formats. */
#ifndef RAMET_BASE_FILE_H
#define RAMET_BASE_FILE_H

#include "base/temporary.h"

/* Opens a regular file for reading; E_ARGUMENT for anything else. The caller closes the descriptor. */
ramet_status ramet_file_open(const char *path, int *out_fd, uint64_t *out_bytes, ramet_error *error);

/* A read-only mapping of a whole file. An empty file maps to data = NULL, bytes = 0. If somebody truncates the file while
 * it is mapped, a touch raises SIGBUS: mmap cannot prevent that (documented for users). */
typedef struct ramet_file_map {
    const uint8_t *data;
    uint64_t bytes;
} ramet_file_map;

ramet_status ramet_file_map_open(const char *path, ramet_file_map *out, ramet_error *error);
void ramet_file_map_close(ramet_file_map *map);
/* Tells the kernel that the pages inside [offset, offset + bytes) are not needed any more. */
void ramet_file_map_forget(const ramet_file_map *map, uint64_t offset, uint64_t bytes);

/* A file being written under a temporary name next to `path`, which is registered as such (temporary.h) and held
 * (sweep.h). "-" is standard output, which is published at once. */
typedef struct ramet_publisher {
    int fd, held;
    bool is_stdout;
    bool skip_sync; /* set it after begin: the file then survives a crash of the process, not one of the machine */
    unsigned mode;  /* of the file that it replaces, as stat gives it; 0: there is none, so as the umask has it */
    char *path, *directory, *temporary;
    ramet_temporary *mark;
} ramet_publisher;

/* First sweeps the directory of what dead processes left. The file gets the permissions of the one that it replaces.
 * E_ARGUMENT when `path` is a device, a pipe or a socket. */
ramet_status ramet_publish_begin(const char *path, ramet_publisher *out, ramet_error *error);
/* Sets the file's blocks aside, where the file system can: a full disk is known before anything is made. */
ramet_status ramet_publish_reserve(ramet_publisher *p, uint64_t bytes, ramet_error *error);
/* Nobody but the owner may read the file, whatever the old one allows. Before the first write. */
ramet_status ramet_publish_restrict(ramet_publisher *p, ramet_error *error);
/* All of it or an error; short writes and EINTR are handled. */
ramet_status ramet_publish_write(ramet_publisher *p, const void *data, size_t bytes, ramet_error *error);
/* The same at an offset, from any thread; in order to standard output, which has no offsets. */
ramet_status ramet_publish_write_at(ramet_publisher *p, const void *data, size_t bytes, uint64_t offset,
                                    ramet_error *error);
/* fsync, close, rename, fsync of the directory (no fsync under skip_sync). On failure the temporary file is removed and the
 * old file is intact. */
ramet_status ramet_publish_commit(ramet_publisher *p, ramet_error *error);
void ramet_publish_abort(ramet_publisher *p);

/* Reads exactly `bytes` at `offset`; E_CORRUPT when the file ends before. */
ramet_status ramet_read_at(int fd, void *out, size_t bytes, uint64_t offset, const char *path, ramet_error *error);
/* All of a file, or of standard input for "-", malloc'ed and NUL-terminated (the NUL not counted). */
ramet_status ramet_read_all(const char *path, char **out, size_t *out_bytes, ramet_error *error);

#endif
