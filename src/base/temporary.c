/* temporary.c - see temporary.h. A list that only grows: a signal handler may walk it at any moment, on any thread, so
 * nodes are never freed, and one counts only while it is live. */
#include "base/temporary.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/sweep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 }; /* no system call takes more */

struct ramet_temporary {
    ramet_temporary *next; /* immutable once in the list */
    size_t capacity;
    bool is_taken;     /* under the mutex */
    _Atomic bool live; /* the path is whole, unless the node has been given to another in this moment */
    char path[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(ramet_temporary *) list;

static ramet_temporary *take_node(size_t bytes) {
    ramet_temporary *t = atomic_load_explicit(&list, memory_order_relaxed);
    while (t && (t->is_taken || t->capacity < bytes)) t = t->next;
    if (t) return t;
    t = ramet_alloc(sizeof *t + bytes, 1);
    if (!t) return NULL;
    t->capacity = bytes;
    t->next = atomic_load_explicit(&list, memory_order_relaxed);
    atomic_store_explicit(&list, t, memory_order_release);
    return t;
}

ramet_temporary *ramet_temporary_add(const char *path) {
    size_t bytes = strlen(path) + 1;
    pthread_mutex_lock(&mutex);
    ramet_temporary *t = take_node(bytes);
    if (t) {
        t->is_taken = true;
        memcpy(t->path, path, bytes);
        atomic_store_explicit(&t->live, true, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return t;
}

void ramet_temporary_forget(ramet_temporary *t) {
    if (!t) return;
    atomic_store_explicit(&t->live, false, memory_order_release);
    pthread_mutex_lock(&mutex);
    t->is_taken = false;
    pthread_mutex_unlock(&mutex);
}

/* From a copy: what is checked is what is removed. Another thread may be writing a path where one was just read, and a mix
 * of two names somebody's; one that ends as only ours do is not. */
static void remove_named(const char *path, int (*remove_path)(const char *)) {
    char copy[PATH_BYTES];
    size_t n = 0;
    while (n < sizeof copy - 1 && path[n]) {
        copy[n] = path[n];
        n++;
    }
    copy[n] = '\0';
    if (ramet_temporary_is_named(copy)) remove_path(copy);
}

static void remove_live(int (*remove_path)(const char *)) {
    for (ramet_temporary *t = atomic_load_explicit(&list, memory_order_acquire); t; t = t->next)
        if (atomic_load_explicit(&t->live, memory_order_acquire)) remove_named(t->path, remove_path);
}

void ramet_temporary_remove_all(void) {
    remove_live(unlink);
#ifdef __linux__
    remove_live(ramet_temporary_remove_directory);
#else
    remove_live(rmdir); /* one with files is left for a sweeper */
#endif
}

uint64_t ramet_noise(void) {
    uint64_t noise = 0;
    if (getrandom(&noise, sizeof noise, 0) != (ssize_t)sizeof noise)
        noise = ramet_now_nanoseconds() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid();
    return noise;
}
