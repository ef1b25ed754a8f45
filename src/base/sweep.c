/* sweep.c - see sweep.h. */
#define _GNU_SOURCE
#include "base/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 16, REMEMBERED = 16 };

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

/* ---- sweeping ---- */

static bool is_temporary_name(const char *name) {
    size_t n = strlen(name), middle = strlen(RAMET_TEMPORARY_MIDDLE), head = strlen(RAMET_TEMPORARY_HEAD);
    if (n < DIGITS || strspn(name + n - DIGITS, "0123456789abcdef") != DIGITS) return false;
    n -= DIGITS;
    if (n == head) return memcmp(name, RAMET_TEMPORARY_HEAD, head) == 0;
    return n > middle && memcmp(name + n - middle, RAMET_TEMPORARY_MIDDLE, middle) == 0;
}

/* Files alone: a temporary directory of ours has no others. */
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

static void remove_dead(int directory_fd, const char *name, int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid()) return;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_still_at(fd, directory_fd, name)) return;
    if (S_ISDIR(st.st_mode)) {
        empty_directory(fd);
        unlinkat(directory_fd, name, AT_REMOVEDIR);
    } else if (S_ISREG(st.st_mode))
        unlinkat(directory_fd, name, 0);
}

void ramet_temporary_sweep_again(const char *directory) {
    DIR *d = opendir(directory);
    if (!d) return; /* whoever wants to write there will say why it cannot */
    for (struct dirent *e; (e = readdir(d));) {
        if (!is_temporary_name(e->d_name)) continue;
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
    if (stat(directory, &st) == 0 && !was_swept(&st)) ramet_temporary_sweep_again(directory);
}
