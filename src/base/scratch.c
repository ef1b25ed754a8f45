/* scratch.c - see temporary.h: private directories, held (sweep.h) as long as they are wanted. */
#define _GNU_SOURCE
#include "base/sweep.h"
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes and holds it. EEXIST: taken, or swept before it was held; try another name. */
static int make_held(const char *path, int *out_fd) {
    *out_fd = -1;
    if (mkdir(path, 0700) != 0) return errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int reason = fd >= 0 || errno == ENOENT ? EEXIST : errno;
    if (fd >= 0 && ramet_temporary_hold(fd, path)) {
        *out_fd = fd;
        return 0;
    }
    if (fd >= 0) close(fd);
    rmdir(path);
    return reason;
}

/* Registered, then made. */
static int try_name(ramet_scratch *s) {
    s->mark = ramet_temporary_add(s->directory);
    int reason = make_held(s->directory, &s->held);
    if (reason != 0) ramet_temporary_forget(s->mark);
    return reason;
}

static bool name_scratch(const char *parent, const char *file_name, ramet_scratch *s) {
    int n = snprintf(s->directory, sizeof s->directory, "%s/" RAMET_TEMPORARY_HEAD "%016llx", parent,
                     (unsigned long long)ramet_noise());
    if (n < 0 || (size_t)n >= sizeof s->directory) return false;
    if (!file_name) return true;
    int m = snprintf(s->file, sizeof s->file, "%s/" RAMET_TEMPORARY_HEAD "%s", s->directory, file_name);
    return m >= 0 && (size_t)m < sizeof s->file;
}

static ramet_status cannot_create(const char *parent, int reason, ramet_error *error) {
    if (reason == ENAMETOOLONG)
        return ramet_fail(error, RAMET_E_ARGUMENT, "too long a path for temporary files: %s", parent);
    errno = reason;
    return ramet_fail_errno(error, "cannot create a temporary directory in %s", parent);
}

ramet_status ramet_scratch_create(const char *parent, const char *file_name, ramet_scratch *out, ramet_error *error) {
    int reason;
    *out = (ramet_scratch){.held = -1};
    if (!parent[0]) return ramet_fail(error, RAMET_E_ARGUMENT, "the directory for temporary files has an empty name");
    char *absolute = realpath(parent, NULL);
    if (!absolute) return cannot_create(parent, errno, error);
    ramet_temporary_sweep(absolute);
    do reason = name_scratch(absolute, file_name, out) ? try_name(out) : ENAMETOOLONG;
    while (reason == EEXIST);
    free(absolute);
    if (reason == 0) return RAMET_OK;
    out->directory[0] = '\0';
    return cannot_create(parent, reason, error);
}

void ramet_scratch_remove(ramet_scratch *s) {
    if (!s->directory[0]) return;
    if (s->held >= 0) close(s->held); /* first: there may be no other descriptor to remove with */
    ramet_temporary_remove_directory(s->directory);
    ramet_temporary_forget(s->mark);
    s->directory[0] = '\0';
}
