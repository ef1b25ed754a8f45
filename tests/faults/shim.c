/* shim.c - see shim.h. */
#define _GNU_SOURCE
#include "faults/shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_FDS = 1024, MAX_EVENTS = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char directory[512];
    char *paths[MAX_FDS]; /* of watched descriptors */
    bool is_recording;
    shim_event events[MAX_EVENTS];
    size_t n_events;
    /* the fault */
    shim_call call;
    shim_effect effect;
    unsigned countdown; /* 0: struck, or none */
    int error_number;
    shim_event hit;
    int log_fd; /* 0: none */
} shim;

const char *shim_call_name(shim_call call) {
    static const char *const names[] = {
#define SHIM_CALL_NAME(name) #name,
        SHIM_CALL_MAP(SHIM_CALL_NAME)
#undef SHIM_CALL_NAME
            "ANY"};
    return names[call];
}

#define REAL(name, type) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

/* ---- what is watched ---- */

static bool is_watched(const char *path) {
    size_t n = strlen(shim.directory);
    return n > 0 && path && strncmp(path, shim.directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static const char *path_of(int fd) {
    return fd >= 0 && fd < MAX_FDS ? shim.paths[fd] : NULL;
}

static void set_path(int fd, const char *path) {
    if (fd < 0 || fd >= MAX_FDS) return;
    free(shim.paths[fd]);
    shim.paths[fd] = path ? strdup(path) : NULL;
}

/* ---- faults ---- */

static void free_event(shim_event *e) {
    free(e->path);
    free(e->other);
    free(e->data);
    *e = (shim_event){0};
}

static shim_event make_event(shim_call call, const char *path, const char *other) {
    return (shim_event){.call = call, .path = strdup(path), .other = other ? strdup(other) : NULL};
}

static void log_call(shim_call call, const char *path) {
    char line[640];
    int n = snprintf(line, sizeof line, "%s %s\n", shim_call_name(call), path);
    if (n > 0) syscall(SYS_write, shim.log_fd, line, (size_t)n);
}

/* What happens to this call; under the mutex. */
static shim_effect strike(shim_call call, const char *path, const char *other) {
    if (shim.log_fd > 0) log_call(call, path);
    if (shim.effect == SHIM_NONE || shim.countdown == 0) return SHIM_NONE;
    if (shim.call != SHIM_ANY && shim.call != call) return SHIM_NONE;
    if (--shim.countdown > 0) return SHIM_NONE;
    free_event(&shim.hit);
    shim.hit = make_event(call, path, other);
    return shim.effect;
}

void shim_arm(shim_call call, shim_effect effect, unsigned nth, int error_number) {
    pthread_mutex_lock(&mutex);
    shim.call = call;
    shim.effect = effect;
    shim.countdown = nth;
    shim.error_number = error_number;
    pthread_mutex_unlock(&mutex);
}

bool shim_disarm(shim_event *out) {
    pthread_mutex_lock(&mutex);
    bool has_struck = shim.effect != SHIM_NONE && shim.countdown == 0;
    shim.effect = SHIM_NONE;
    if (out) *out = shim.hit;
    pthread_mutex_unlock(&mutex);
    return has_struck;
}

/* ---- recording ---- */

static shim_event *record(shim_call call, const char *path, const char *other) {
    if (!shim.is_recording) return NULL;
    if (shim.n_events == MAX_EVENTS) abort(); /* a recording that lacks some shows nothing */
    shim_event *e = &shim.events[shim.n_events++];
    *e = make_event(call, path, other);
    return e;
}

static void forget(void) {
    for (size_t i = 0; i < shim.n_events; i++) free_event(&shim.events[i]);
    shim.n_events = 0;
}

void shim_record(bool on) {
    pthread_mutex_lock(&mutex);
    if (on) forget();
    shim.is_recording = on;
    pthread_mutex_unlock(&mutex);
}

const shim_event *shim_recorded(size_t *out_n) {
    *out_n = shim.n_events;
    return shim.events;
}

void shim_watch(const char *directory) {
    pthread_mutex_lock(&mutex);
    forget();
    free_event(&shim.hit);
    for (int fd = 0; fd < MAX_FDS; fd++) set_path(fd, NULL);
    snprintf(shim.directory, sizeof shim.directory, "%s", directory ? directory : "");
    pthread_mutex_unlock(&mutex);
}

/* ---- the environment, where it is preloaded ---- */

static unsigned number_of(const char *name) {
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *directory = getenv("RAMET_FAULTS_DIRECTORY"), *log = getenv("RAMET_FAULTS_LOG");
    unsigned nth = number_of("RAMET_FAULTS_NTH"), error_number = number_of("RAMET_FAULTS_ERRNO");
    if (!directory) return;
    shim_watch(directory);
    if (nth > 0) shim_arm(SHIM_ANY, error_number ? SHIM_ERROR : SHIM_SHORT, nth, (int)error_number);
    if (log) shim.log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* ---- the calls ---- */

/* -1 with the fault's errno. */
static int refuse(void) {
    errno = shim.error_number;
    return -1;
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    int (*real)(const char *, int, ...) = REAL("open", int (*)(const char *, int, ...));
    if (!is_watched(path)) return real(path, flags, mode);
    pthread_mutex_lock(&mutex);
    int fd = strike(SHIM_OPEN, path, NULL) == SHIM_ERROR ? refuse() : real(path, flags, mode);
    int reason = errno;
    if (fd >= 0) {
        set_path(fd, path);
        shim_event *e = record(SHIM_OPEN, path, NULL);
        if (e) {
            e->is_directory = (flags & O_DIRECTORY) != 0;
            e->is_new = (flags & O_CREAT) != 0;
        }
    }
    pthread_mutex_unlock(&mutex);
    errno = reason;
    return fd;
}

static ssize_t finish_write(int fd, const void *buffer, ssize_t n, off_t at) {
    int reason = errno;
    shim_event *e = n >= 0 ? record(SHIM_WRITE, path_of(fd), NULL) : NULL;
    if (e) {
        e->off = (uint64_t)at;
        e->bytes = (size_t)n;
        e->data = malloc(e->bytes + 1);
        if (!e->data) abort();
        memcpy(e->data, buffer, e->bytes);
    }
    pthread_mutex_unlock(&mutex);
    errno = reason;
    return n;
}

ssize_t pwrite(int fd, const void *buffer, size_t n, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t));
    if (!path_of(fd)) return real(fd, buffer, n, at);
    pthread_mutex_lock(&mutex);
    shim_effect effect = strike(SHIM_WRITE, path_of(fd), NULL);
    if (effect == SHIM_SHORT && n > 1) n /= 2;
    return finish_write(fd, buffer, effect == SHIM_ERROR ? refuse() : real(fd, buffer, n, at), at);
}

ssize_t write(int fd, const void *buffer, size_t n) {
    ssize_t (*real)(int, const void *, size_t) = REAL("write", ssize_t(*)(int, const void *, size_t));
    if (!path_of(fd)) return real(fd, buffer, n);
    pthread_mutex_lock(&mutex);
    shim_effect effect = strike(SHIM_WRITE, path_of(fd), NULL);
    if (effect == SHIM_SHORT && n > 1) n /= 2;
    off_t at = lseek(fd, 0, SEEK_CUR);
    return finish_write(fd, buffer, effect == SHIM_ERROR ? refuse() : real(fd, buffer, n), at);
}

ssize_t pread(int fd, void *buffer, size_t n, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t) = REAL("pread", ssize_t(*)(int, void *, size_t, off_t));
    if (!path_of(fd)) return real(fd, buffer, n, at);
    pthread_mutex_lock(&mutex);
    shim_effect effect = strike(SHIM_READ, path_of(fd), NULL);
    if (effect == SHIM_SHORT && n > 1) n /= 2;
    ssize_t got = effect == SHIM_ERROR ? refuse() : real(fd, buffer, n, at);
    int reason = errno;
    if (effect == SHIM_FLIP && got > 0) ((uint8_t *)buffer)[got / 2] ^= 0x20;
    if (got >= 0) record(SHIM_READ, path_of(fd), NULL);
    pthread_mutex_unlock(&mutex);
    errno = reason;
    return got;
}

/* Leaves: records a call that went well. */
static int finish(int result, shim_call call, const char *path, const char *other, uint64_t bytes) {
    int reason = errno;
    shim_event *e = result == 0 ? record(call, path, other) : NULL;
    if (e) e->bytes = (size_t)bytes;
    pthread_mutex_unlock(&mutex);
    errno = reason;
    return result;
}

int fallocate(int fd, int mode, off_t at, off_t n) {
    int (*real)(int, int, off_t, off_t) = REAL("fallocate", int (*)(int, int, off_t, off_t));
    if (!path_of(fd)) return real(fd, mode, at, n);
    pthread_mutex_lock(&mutex);
    int result = strike(SHIM_RESERVE, path_of(fd), NULL) == SHIM_ERROR ? refuse() : real(fd, mode, at, n);
    return finish(result, SHIM_RESERVE, path_of(fd), NULL, (uint64_t)(at + n));
}

int ftruncate(int fd, off_t n) {
    int (*real)(int, off_t) = REAL("ftruncate", int (*)(int, off_t));
    if (!path_of(fd)) return real(fd, n);
    pthread_mutex_lock(&mutex);
    int result = strike(SHIM_TRUNCATE, path_of(fd), NULL) == SHIM_ERROR ? refuse() : real(fd, n);
    return finish(result, SHIM_TRUNCATE, path_of(fd), NULL, (uint64_t)n);
}

static int sync_by(int fd, const char *name) {
    int (*real)(int) = REAL(name, int (*)(int));
    if (!path_of(fd)) return real(fd);
    pthread_mutex_lock(&mutex);
    shim_effect effect = strike(SHIM_SYNC, path_of(fd), NULL);
    int result = real(fd);
    return finish(effect == SHIM_ERROR ? refuse() : result, SHIM_SYNC, path_of(fd), NULL, 0);
}

int fsync(int fd) {
    return sync_by(fd, "fsync");
}
int fdatasync(int fd) {
    return sync_by(fd, "fdatasync");
}

int close(int fd) {
    int (*real)(int) = REAL("close", int (*)(int));
    if (!path_of(fd)) return real(fd);
    pthread_mutex_lock(&mutex);
    shim_effect effect = strike(SHIM_CLOSE, path_of(fd), NULL);
    char *path = shim.paths[fd];
    shim.paths[fd] = NULL;
    int result = real(fd);
    result = finish(effect == SHIM_ERROR ? refuse() : result, SHIM_CLOSE, path, NULL, 0);
    int reason = errno;
    free(path);
    errno = reason;
    return result;
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = REAL("rename", int (*)(const char *, const char *));
    if (!is_watched(from)) return real(from, to);
    pthread_mutex_lock(&mutex);
    int result = strike(SHIM_RENAME, from, to) == SHIM_ERROR ? refuse() : real(from, to);
    return finish(result, SHIM_RENAME, from, to, 0);
}

static int by_path(const char *path, const char *name, shim_call call) {
    int (*real)(const char *) = REAL(name, int (*)(const char *));
    if (!is_watched(path)) return real(path);
    pthread_mutex_lock(&mutex);
    int result = strike(call, path, NULL) == SHIM_ERROR ? refuse() : real(path);
    return finish(result, call, path, NULL, 0);
}

int unlink(const char *path) {
    return by_path(path, "unlink", SHIM_UNLINK);
}
int rmdir(const char *path) {
    return by_path(path, "rmdir", SHIM_RMDIR);
}

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = REAL("mkdir", int (*)(const char *, mode_t));
    if (!is_watched(path)) return real(path, mode);
    pthread_mutex_lock(&mutex);
    int result = strike(SHIM_MKDIR, path, NULL) == SHIM_ERROR ? refuse() : real(path, mode);
    return finish(result, SHIM_MKDIR, path, NULL, 0);
}

/* ---- memory ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MALLOC_IS_TAKEN 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MALLOC_IS_TAKEN 1
#endif

#if defined(__GLIBC__) && !defined(MALLOC_IS_TAKEN)
static _Atomic unsigned malloc_countdown; /* 0: none, or it has failed */

static bool malloc_fails(void) {
    unsigned left = atomic_load(&malloc_countdown);
    while (left > 0)
        if (atomic_compare_exchange_weak(&malloc_countdown, &left, left - 1)) return left == 1;
    return false;
}

bool shim_fail_malloc(unsigned nth) {
    atomic_store(&malloc_countdown, nth);
    return true;
}
bool shim_malloc_has_failed(void) {
    return atomic_exchange(&malloc_countdown, 0) == 0;
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}
void *malloc(size_t bytes) {
    return malloc_fails() ? no_memory() : __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
    return malloc_fails() ? no_memory() : __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes) {
    return malloc_fails() ? no_memory() : __libc_realloc(old, bytes);
}
#else
bool shim_fail_malloc(unsigned nth) {
    (void)nth;
    return false;
}
bool shim_malloc_has_failed(void) {
    return false;
}
#endif
