/* sweep.c - see sweep.h. */
#define _GNU_SOURCE
#include "base/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdalign.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

enum { DIGITS = 16, REMEMBERED = 16, REMOVALS = 100 };

/* The name still means the open file. */
static bool is_still_at(int fd, int directory_fd, const char *name) {
    struct stat open_one, named_one;
    return fstat(fd, &open_one) == 0 && fstatat(directory_fd, name, &named_one, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_dev == named_one.st_dev && open_one.st_ino == named_one.st_ino;
}

bool ramet_temporary_hold(int fd, const char *path) {
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return is_still_at(fd, AT_FDCWD, path);
}

/* ---- names ---- */

static bool ends_in_digits(const char *name, size_t n) {
    return n >= DIGITS && strspn(name + n - DIGITS, "0123456789abcdef") == DIGITS;
}

static bool has_head(const char *name) {
    return strncmp(name, RAMET_TEMPORARY_HEAD, strlen(RAMET_TEMPORARY_HEAD)) == 0;
}

bool ramet_temporary_is_named(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name), middle = strlen(RAMET_TEMPORARY_MIDDLE);
    if (!ends_in_digits(name, n)) return false;
    n -= DIGITS;
    if (n == strlen(RAMET_TEMPORARY_HEAD)) return has_head(name);
    return n > middle && memcmp(name + n - middle, RAMET_TEMPORARY_MIDDLE, middle) == 0;
}

/* In a temporary directory. */
static bool is_inner_name(const char *name) {
    size_t n = strlen(name);
    return (n == DIGITS && ends_in_digits(name, n)) || has_head(name);
}

/* ---- directories ---- */

/* Files alone: a temporary directory of ours has no others. */
#ifdef __linux__
/* Not by readdir, which allocates: a signal handler comes here, too. Again and again, as some file systems pass over files
 * when others are removed on the way. */
static void empty_directory(int fd) {
    alignas(struct dirent64) char block[8192];
    for (bool has_removed = true; has_removed && lseek(fd, 0, SEEK_SET) == 0;) {
        has_removed = false;
        for (long n; (n = syscall(SYS_getdents64, fd, block, sizeof block)) > 0;)
            for (long at = 0; at < n; at += ((const struct dirent64 *)(const void *)(block + at))->d_reclen) {
                const char *name = ((const struct dirent64 *)(const void *)(block + at))->d_name;
                if (name[0] != '.') has_removed |= unlinkat(fd, name, 0) == 0;
            }
    }
}
#else
static void empty_directory(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        if (copy >= 0) close(copy);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(fd, e->d_name, 0);
    closedir(d);
}
#endif

int ramet_temporary_remove_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), result = -1;
    if (fd < 0) return -1;
    for (int i = 0; i < REMOVALS && result != 0; i++) {
        empty_directory(fd);
        result = rmdir(path);
        if (result != 0 && errno != ENOTEMPTY && errno != EEXIST) break;
    }
    close(fd);
    return result;
}

/* ---- sweeping ---- */

/* False also when that cannot be seen. */
static bool has_inner_names_only(int fd) {
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* not a copy, whose offset would be fd's */
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d) {
        if (again >= 0) close(again);
        return false;
    }
    bool all = true;
    for (struct dirent *e; all && (e = readdir(d));)
        all = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || is_inner_name(e->d_name);
    closedir(d);
    return all;
}

static void remove_dead(int directory_fd, const char *name, int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid()) return;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_still_at(fd, directory_fd, name)) return;
    if (S_ISDIR(st.st_mode)) {
        if ((st.st_mode & 0777) != 0700 || !has_inner_names_only(fd)) return;
        empty_directory(fd);
        unlinkat(directory_fd, name, AT_REMOVEDIR);
    } else if (S_ISREG(st.st_mode))
        unlinkat(directory_fd, name, 0);
}

void ramet_temporary_sweep_again(const char *directory) {
    DIR *d = opendir(directory);
    if (!d) return; /* whoever wants to write there will say why it cannot */
    for (struct dirent *e; (e = readdir(d));) {
        if (!ramet_temporary_is_named(e->d_name)) continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        remove_dead(dirfd(d), e->d_name, fd);
        close(fd);
    }
    closedir(d);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    dev_t device;
    ino_t inode;
} swept[REMEMBERED]; /* the latest; one that fell out is merely swept again */
static unsigned n_swept;

static bool was_swept(const struct stat *st) {
    pthread_mutex_lock(&mutex);
    bool known = false;
    for (unsigned i = 0; i < REMEMBERED && i < n_swept; i++)
        known |= swept[i].device == st->st_dev && swept[i].inode == st->st_ino;
    if (!known) {
        swept[n_swept % REMEMBERED].device = st->st_dev;
        swept[n_swept++ % REMEMBERED].inode = st->st_ino;
    }
    pthread_mutex_unlock(&mutex);
    return known;
}

void ramet_temporary_sweep(const char *directory) {
    struct stat st;
    if (stat(directory, &st) == 0 && S_ISDIR(st.st_mode) && !was_swept(&st)) ramet_temporary_sweep_again(directory);
}
