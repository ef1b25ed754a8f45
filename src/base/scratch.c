/* scratch.c - see temporary.h: private directories, held (sweep.h) as long as they are wanted; and nests, directories
 * that files of one process share, one for each parent. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "base/sweep.h"
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
    s->marks[0] = ramet_temporary_add(s->directory);
    int reason = make_held(s->directory, &s->held);
    if (reason != 0) ramet_temporary_forget(s->marks[0]);
    return reason;
}

static bool name_scratch(const char *parent, const char *file_name, ramet_scratch *s) {
    int n = snprintf(s->directory, sizeof s->directory, "%s/" RAMET_TEMPORARY_HEAD "%016llx", parent,
                     (unsigned long long)ramet_noise());
    if (n < 0 || (size_t)n >= sizeof s->directory) return false;
    if (!file_name) return true;
    int m = snprintf(s->file, sizeof s->file, "%.479s/%s", s->directory, file_name);
    return m >= 0 && (size_t)m < sizeof s->file;
}

ramet_status ramet_scratch_create(const char *parent, const char *file_name, ramet_scratch *out, ramet_error *error) {
    int reason;
    ramet_temporary_sweep(parent);
    do {
        *out = (ramet_scratch){.held = -1};
        if (!name_scratch(parent, file_name, out)) {
            out->directory[0] = '\0';
            return ramet_fail(error, RAMET_E_ARGUMENT, "%s is too long a path for temporary files", parent);
        }
        reason = try_name(out);
    } while (reason == EEXIST);
    if (reason == 0) {
        if (file_name) out->marks[1] = ramet_temporary_add(out->file);
        return RAMET_OK;
    }
    out->directory[0] = '\0';
    errno = reason;
    return ramet_fail_errno(error, "cannot create a temporary directory in %s", parent);
}

void ramet_scratch_remove(ramet_scratch *s) {
    if (!s->directory[0]) return;
    if (s->file[0]) unlink(s->file);
    rmdir(s->directory);
    if (s->held >= 0) close(s->held);
    ramet_temporary_forget(s->marks[1]);
    ramet_temporary_forget(s->marks[0]);
    s->directory[0] = '\0';
}

/* ---- nests ---- */

typedef struct nest {
    struct nest *next;
    ramet_scratch scratch;
    size_t n_files;
    char parent[];
} nest;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static nest *nests; /* one for each parent with files in it */

static ramet_status create_nest(const char *parent, nest **out, ramet_error *error) {
    size_t bytes = strlen(parent) + 1;
    nest *n = ramet_alloc(sizeof *n + bytes, 1);
    *out = NULL;
    if (!n) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a temporary directory in %s", parent);
    memcpy(n->parent, parent, bytes);
    ramet_status status = ramet_scratch_create(parent, NULL, &n->scratch, error);
    if (status != RAMET_OK) {
        free(n);
        return status;
    }
    n->next = nests;
    *out = nests = n;
    return RAMET_OK;
}

static void drop_if_empty(nest *n) {
    nest **at = &nests;
    if (n->n_files > 0) return;
    while (*at != n) at = &(*at)->next;
    *at = n->next;
    ramet_scratch_remove(&n->scratch);
    free(n);
}

static ramet_status name_in(nest *n, const char *file_name, char **out, ramet_error *error) {
    size_t bytes = strlen(n->scratch.directory) + strlen(file_name) + 2;
    *out = ramet_alloc(bytes, 1);
    if (!*out) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a path in %s", n->parent);
    snprintf(*out, bytes, "%s/%s", n->scratch.directory, file_name);
    ramet_temporary_add(*out);
    n->n_files++;
    return RAMET_OK;
}

ramet_status ramet_nest_add(const char *parent, const char *file_name, char **out, ramet_error *error) {
    ramet_status status = RAMET_OK;
    *out = NULL;
    pthread_mutex_lock(&mutex);
    nest *n = nests;
    while (n && strcmp(n->parent, parent) != 0) n = n->next;
    if (!n) status = create_nest(parent, &n, error);
    if (n) {
        status = name_in(n, file_name, out, error);
        drop_if_empty(n);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

static bool is_in(const nest *n, const char *path) {
    size_t length = strlen(n->scratch.directory);
    return strncmp(path, n->scratch.directory, length) == 0 && path[length] == '/';
}

void ramet_nest_remove(const char *path) {
    unlink(path);
    ramet_temporary_forget(ramet_temporary_find(path));
    pthread_mutex_lock(&mutex);
    nest *n = nests;
    while (n && !is_in(n, path)) n = n->next;
    RAMET_ASSERT(n && n->n_files > 0, "%s is in no nest", path);
    n->n_files--;
    drop_if_empty(n);
    pthread_mutex_unlock(&mutex);
}
