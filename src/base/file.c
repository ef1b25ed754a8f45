/* file.c - see file.h. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/memory.h"
#include "base/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK: opening a FIFO must not wait for a writer. */
ramet_status ramet_file_open(const char *path, int *out_fd, uint64_t *out_bytes, ramet_error *error) {
    struct stat st;
    *out_fd = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ramet_fail_errno(error, "cannot open %s", path);
    ramet_status status = RAMET_OK;
    if (fstat(fd, &st) != 0)
        status = ramet_fail_errno(error, "cannot stat %s", path);
    else if (!S_ISREG(st.st_mode))
        status = ramet_fail(error, RAMET_E_ARGUMENT, "%s is not a regular file", path);
    if (status != RAMET_OK) {
        close(fd);
        return status;
    }
    *out_fd = fd;
    *out_bytes = (uint64_t)st.st_size;
    return RAMET_OK;
}

ramet_status ramet_file_map_open(const char *path, ramet_file_map *out, ramet_error *error) {
    int fd;
    uint64_t bytes = 0;
    *out = (ramet_file_map){0};
    RAMET_TRY(ramet_file_open(path, &fd, &bytes, error));
    ramet_status status = RAMET_OK;
    void *data = bytes ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (data == MAP_FAILED)
        status = ramet_fail_errno(error, "cannot map %s", path);
    else
        *out = (ramet_file_map){.data = data, .bytes = bytes};
    close(fd);
    return status;
}

void ramet_file_map_close(ramet_file_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (ramet_file_map){0};
}

void ramet_file_map_forget(const ramet_file_map *map, uint64_t offset, uint64_t bytes) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    if (map->data && begin < end) madvise((void *)(uintptr_t)(map->data + begin), (size_t)(end - begin), MADV_DONTNEED);
}

static char *copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = ramet_alloc(bytes + 1, 1); /* directory_of may need one more */
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

static char *directory_of(const char *path) {
    char *copy = copy_text(path);
    if (!copy) return NULL;
    const char *directory = dirname(copy); /* in the copy, or a constant */
    memmove(copy, directory, strlen(directory) + 1);
    return copy;
}

/* A new file that is registered before it is made, and held (sweep.h) once it is, through a descriptor of its own: it is
 * closed before it has its name. EEXIST: a sweeper was faster, or the name is taken. */
static int create_held(ramet_publisher *p) {
    p->mark = ramet_temporary_add(p->temporary);
    p->fd = open(p->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, p->mode ? p->mode & 0777 : 0666);
    if (p->fd < 0) return errno;
    if (p->mode) (void)fchmod(p->fd, p->mode & 0777); /* the umask took some; where it cannot be, it has fewer */
    if (!ramet_temporary_hold(p->fd, p->temporary)) return EEXIST;
    p->held = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    return p->held < 0 ? errno : 0;
}

/* Closes, removes and forgets what there is. */
static void drop_temporary(ramet_publisher *p) {
    if (p->fd >= 0) {
        close(p->fd);
        unlink(p->temporary);
    }
    if (p->held >= 0) close(p->held);
    ramet_temporary_forget(p->mark);
    p->fd = p->held = -1;
    p->mark = NULL;
}

static ramet_status create_temporary(ramet_publisher *p, ramet_error *error) {
    size_t bytes = strlen(p->path) + sizeof RAMET_TEMPORARY_MIDDLE + 16;
    p->temporary = ramet_alloc(bytes, 1);
    if (!p->temporary) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to write %s", p->path);
    int reason;
    do {
        snprintf(p->temporary, bytes, "%s" RAMET_TEMPORARY_MIDDLE "%016llx", p->path,
                 (unsigned long long)ramet_noise());
        reason = create_held(p);
        if (reason != 0) drop_temporary(p);
    } while (reason == EEXIST);
    errno = reason;
    return reason == 0 ? RAMET_OK : ramet_fail_errno(error, "cannot create %s", p->temporary);
}

ramet_status ramet_publish_begin(const char *path, ramet_publisher *out, ramet_error *error) {
    *out = (ramet_publisher){.fd = -1, .held = -1};
    if (strcmp(path, "-") == 0) {
        out->fd = STDOUT_FILENO;
        out->is_stdout = true;
        return RAMET_OK;
    }
    struct stat st; /* the rename would put a file in the place of /dev/null */
    bool exists = stat(path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s is not a regular file; - is standard output", path);
    if (exists) out->mode = st.st_mode;
    out->path = copy_text(path);
    out->directory = directory_of(path);
    ramet_status status = RAMET_OK;
    if (out->path && out->directory) {
        ramet_temporary_sweep(out->directory);
        status = create_temporary(out, error);
    } else
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to write %s", path);
    if (status != RAMET_OK) ramet_publish_abort(out);
    return status;
}

ramet_status ramet_publish_restrict(ramet_publisher *p, ramet_error *error) {
    if (p->is_stdout) return RAMET_OK;
    if (fchmod(p->fd, 0600) == 0) return RAMET_OK;
    return ramet_fail_errno(error, "cannot keep others from reading %s", p->path);
}

enum { IN_ORDER = -1 };

static ramet_status write_all(int fd, const void *data, size_t bytes, off_t offset, const char *path,
                              ramet_error *error) {
    const uint8_t *at = data;
    while (bytes > 0) {
        size_t take = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30;
        ssize_t n = offset == IN_ORDER ? write(fd, at, take) : pwrite(fd, at, take, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = EIO;
            return ramet_fail_errno(error, "cannot write %s", path);
        }
        at += n;
        bytes -= (size_t)n;
        if (offset != IN_ORDER) offset += n;
    }
    return RAMET_OK;
}

ramet_status ramet_publish_write(ramet_publisher *p, const void *data, size_t bytes, ramet_error *error) {
    return write_all(p->fd, data, bytes, IN_ORDER, p->is_stdout ? "standard output" : p->path, error);
}

ramet_status ramet_publish_write_at(ramet_publisher *p, const void *data, size_t bytes, uint64_t offset,
                                    ramet_error *error) {
    if (p->is_stdout) return ramet_publish_write(p, data, bytes, error);
    return write_all(p->fd, data, bytes, (off_t)offset, p->path, error);
}

ramet_status ramet_publish_reserve(ramet_publisher *p, uint64_t bytes, ramet_error *error) {
    if (p->is_stdout || bytes == 0) return RAMET_OK;
#ifdef __linux__
    int result;
    do result = fallocate(p->fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return ramet_fail_errno(error, "cannot write %s", p->path);
#endif
    return RAMET_OK;
}

static ramet_status sync_directory(const char *path, ramet_error *error) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ramet_status status = RAMET_OK;
    if (fd < 0 || fsync(fd) != 0) status = ramet_fail_errno(error, "cannot sync directory %s", path);
    if (fd >= 0) close(fd);
    return status;
}

ramet_status ramet_publish_commit(ramet_publisher *p, ramet_error *error) {
    if (p->is_stdout) {
        *p = (ramet_publisher){.fd = -1, .held = -1};
        return RAMET_OK;
    }
    ramet_status status = RAMET_OK;
    if (!p->skip_sync && fsync(p->fd) != 0) status = ramet_fail_errno(error, "cannot sync %s", p->path);
    int closed = close(p->fd);
    p->fd = -1;
    if (status == RAMET_OK && closed != 0) status = ramet_fail_errno(error, "cannot close %s", p->path);
    if (status == RAMET_OK && rename(p->temporary, p->path) != 0)
        status = ramet_fail_errno(error, "cannot rename to %s", p->path);
    if (status != RAMET_OK) unlink(p->temporary);
    if (status == RAMET_OK && !p->skip_sync) status = sync_directory(p->directory, error);
    ramet_publish_abort(p);
    return status;
}

void ramet_publish_abort(ramet_publisher *p) {
    if (!p->is_stdout) drop_temporary(p);
    free(p->temporary);
    free(p->directory);
    free(p->path);
    *p = (ramet_publisher){.fd = -1, .held = -1};
}

ramet_status ramet_read_at(int fd, void *out, size_t bytes, uint64_t offset, const char *path, ramet_error *error) {
    uint8_t *at = out;
    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ramet_fail_errno(error, "cannot read %s", path);
        if (n == 0)
            return ramet_fail(error, RAMET_E_CORRUPT, "%s ends before byte %llu", path,
                              (unsigned long long)(offset + bytes));
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return RAMET_OK;
}

ramet_status ramet_read_all(const char *path, char **out, size_t *out_bytes, ramet_error *error) {
    *out = NULL;
    *out_bytes = 0;
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ramet_fail_errno(error, "cannot open %s", path);
    void *buffer = NULL;
    size_t capacity = 0, used = 0;
    ramet_status status = RAMET_OK;
    for (;;) {
        if (!ramet_grow(&buffer, &capacity, used + 65536 + 1, 1)) {
            status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to read %s", path);
            break;
        }
        ssize_t n = read(fd, (char *)buffer + used, capacity - used - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = ramet_fail_errno(error, "cannot read %s", path);
        if (n <= 0) break;
        used += (size_t)n;
    }
    if (!is_stdin) close(fd);
    if (status != RAMET_OK) {
        free(buffer);
        return status;
    }
    ((char *)buffer)[used] = 0;
    *out = buffer;
    *out_bytes = used;
    return RAMET_OK;
}
