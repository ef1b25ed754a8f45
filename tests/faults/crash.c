/* crash.c - see crash.h.
 *
 * A name means a file by its number; files and names each have what is on the disk, and a list of what is on its way. A
 * state is a choice: which of the names' changes arrived, and then, for the one file that still has something on its
 * way, which of those, one torn or none, over which filling. */
#include "faults/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHANGES = 12, SECTOR = 512, NO_FILE = -1 };

#define REQUIRE(condition, what)                                                                                       \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "crash model: %s\n", what);                                                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct file {
    uint8_t *data; /* on the disk */
    size_t bytes;
    const shim_event *changes[MAX_CHANGES]; /* writes and reservations on their way */
    size_t n_changes;
} file;

typedef struct name {
    const char *path;
    int file; /* NO_FILE: there is none of this name */
} name;

typedef struct change_of_names {
    const char *path, *gone; /* `path` now means `file`, `gone` (NULL: none) means nothing any more */
    int file;
} change_of_names;

typedef struct disk {
    file files[CRASH_NAMES];
    size_t n_files;
    name names[CRASH_NAMES]; /* on the disk */
    size_t n_names;
    change_of_names changes[MAX_CHANGES]; /* on their way */
    size_t n_changes;
    /* who walks the states */
    unsigned tears, turn;
    crash_visit visit;
    void *user;
    size_t n_states;
    uint8_t *data; /* of the file that is being written, as a crash leaves it */
    size_t capacity;
} disk;

/* ---- names ---- */

static void set_name(name *names, size_t *n_names, const char *path, int file_number) {
    size_t i = 0;
    while (i < *n_names && strcmp(names[i].path, path) != 0) i++;
    REQUIRE(i < CRASH_NAMES, "too many names");
    if (i == *n_names) ++*n_names;
    names[i] = (name){path, file_number};
}

static void apply_names(name *names, size_t *n_names, const change_of_names *c) {
    set_name(names, n_names, c->path, c->file);
    if (c->gone) set_name(names, n_names, c->gone, NO_FILE);
}

/* What a path means to the running program: with all that is on its way. */
static int file_of(const disk *d, const char *path) {
    name names[CRASH_NAMES];
    size_t n = d->n_names;
    memcpy(names, d->names, sizeof names);
    for (size_t i = 0; i < d->n_changes; i++) apply_names(names, &n, &d->changes[i]);
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i].path, path) == 0) return names[i].file;
    return NO_FILE;
}

static void change_names(disk *d, const char *path, int file_number, const char *gone) {
    REQUIRE(d->n_changes < MAX_CHANGES, "too many changes of names");
    d->changes[d->n_changes++] = (change_of_names){path, gone, file_number};
}

static void sync_names(disk *d) {
    for (size_t i = 0; i < d->n_changes; i++) apply_names(d->names, &d->n_names, &d->changes[i]);
    d->n_changes = 0;
}

/* ---- bytes ---- */

static int new_file(disk *d) {
    REQUIRE(d->n_files < CRASH_NAMES, "too many files");
    d->files[d->n_files] = (file){0};
    return (int)d->n_files++;
}

/* The length that the file has when this has arrived. */
static size_t end_of(const shim_event *e) {
    return e->call == SHIM_WRITE ? (size_t)e->off + e->bytes : e->bytes;
}

/* Puts a change into bytes that are long enough; of a write what lies in [from, to) of it. */
static void put_change(uint8_t *data, const shim_event *e, size_t from, size_t to) {
    if (e->call == SHIM_WRITE) memcpy(data + e->off + from, e->data + from, to - from);
}

static void sync_file(file *f) {
    size_t bytes = f->bytes;
    for (size_t i = 0; i < f->n_changes; i++)
        if (end_of(f->changes[i]) > bytes) bytes = end_of(f->changes[i]);
    f->data = realloc(f->data, bytes + 1);
    REQUIRE(f->data, "no memory");
    memset(f->data + f->bytes, 0, bytes - f->bytes);
    f->bytes = bytes;
    for (size_t i = 0; i < f->n_changes; i++) put_change(f->data, f->changes[i], 0, f->changes[i]->bytes);
    f->n_changes = 0;
}

/* ---- events ---- */

static void change_file(disk *d, const shim_event *e) {
    int number = file_of(d, e->path);
    REQUIRE(number != NO_FILE, "a write to no file");
    file *f = &d->files[number];
    REQUIRE(f->n_changes < MAX_CHANGES, "too many writes between two syncs");
    f->changes[f->n_changes++] = e;
}

static void sync(disk *d, const shim_event *e) {
    int number = file_of(d, e->path);
    if (number == NO_FILE)
        sync_names(d); /* the directory: there is one */
    else
        sync_file(&d->files[number]);
}

static void apply_event(disk *d, const shim_event *e) {
    switch (e->call) {
    case SHIM_OPEN:
        if (e->is_new) change_names(d, e->path, new_file(d), NULL);
        break;
    case SHIM_WRITE:
    case SHIM_RESERVE: change_file(d, e); break;
    case SHIM_SYNC: sync(d, e); break;
    case SHIM_RENAME: change_names(d, e->other, file_of(d, e->path), e->path); break;
    case SHIM_UNLINK: change_names(d, e->path, NO_FILE, NULL); break;
    case SHIM_CLOSE: break;
    default: REQUIRE(false, "a call that it does not know");
    }
}

/* ---- states ---- */

static void visit_names(disk *d, const name *names, size_t n_names, int changed, const uint8_t *data, size_t bytes) {
    crash_file files[CRASH_NAMES];
    size_t n = 0;
    for (size_t i = 0; i < n_names; i++) {
        int number = names[i].file;
        if (number == NO_FILE) continue;
        files[n].path = names[i].path;
        files[n].data = number == changed ? data : d->files[number].data;
        files[n++].bytes = number == changed ? bytes : d->files[number].bytes;
    }
    d->visit(d->user, files, n);
    d->n_states++;
}

static uint8_t *room_for(disk *d, size_t bytes) {
    if (bytes >= d->capacity) {
        d->capacity = 2 * bytes + 1;
        d->data = realloc(d->data, d->capacity);
        REQUIRE(d->data, "no memory");
    }
    return d->data;
}

/* The file with the changes of a mask, of which `torn` (NULL: none) has its bytes before or from `cut` alone. */
static void visit_bytes(disk *d, const name *names, size_t n_names, int number, unsigned mask, const shim_event *torn,
                        size_t cut, bool is_tail, uint8_t filling) {
    const file *f = &d->files[number];
    size_t bytes = f->bytes;
    for (size_t i = 0; i < f->n_changes; i++)
        if (mask >> i & 1 && end_of(f->changes[i]) > bytes) bytes = end_of(f->changes[i]);
    uint8_t *data = room_for(d, bytes);
    memset(data, filling, bytes);
    if (f->bytes > 0) memcpy(data, f->data, f->bytes);
    for (size_t i = 0; i < f->n_changes; i++) {
        const shim_event *e = f->changes[i];
        if (mask >> i & 1) put_change(data, e, e == torn && is_tail ? cut : 0, e == torn && !is_tail ? cut : e->bytes);
    }
    visit_names(d, names, n_names, number, data, bytes);
}

static void tear(disk *d, const name *names, size_t n_names, int number, unsigned mask, const shim_event *e) {
    if (e->call != SHIM_WRITE) return;
    size_t first = (size_t)(e->off / SECTOR + 1) * SECTOR;
    for (size_t at = first; at < end_of(e); at += SECTOR)
        for (int is_tail = 0; is_tail < 2; is_tail++)
            if (d->turn++ % d->tears == 0)
                visit_bytes(d, names, n_names, number, mask, e, at - (size_t)e->off, is_tail, 0);
}

static void each_bytes(disk *d, const name *names, size_t n_names) {
    int number = NO_FILE;
    for (size_t i = 0; i < d->n_files; i++)
        if (d->files[i].n_changes > 0) {
            REQUIRE(number == NO_FILE, "two files are being written");
            number = (int)i;
        }
    if (number == NO_FILE) {
        visit_names(d, names, n_names, NO_FILE, NULL, 0);
        return;
    }
    const file *f = &d->files[number];
    for (unsigned mask = 0; mask < 1u << f->n_changes; mask++) {
        visit_bytes(d, names, n_names, number, mask, NULL, 0, false, 0);
        visit_bytes(d, names, n_names, number, mask, NULL, 0, false, 0xa5);
        for (size_t i = 0; i < f->n_changes; i++)
            if (mask >> i & 1) tear(d, names, n_names, number, mask, f->changes[i]);
    }
}

static void each_state(disk *d) {
    for (unsigned mask = 0; mask < 1u << d->n_changes; mask++) {
        name names[CRASH_NAMES];
        size_t n = d->n_names;
        memcpy(names, d->names, sizeof names);
        for (size_t i = 0; i < d->n_changes; i++)
            if (mask >> i & 1) apply_names(names, &n, &d->changes[i]);
        each_bytes(d, names, n);
    }
}

size_t crash_each(const shim_event *events, size_t n, const crash_file *before, size_t n_before, unsigned tears,
                  crash_visit visit, void *user) {
    disk d = {.tears = tears, .visit = visit, .user = user};
    for (size_t i = 0; i < n_before; i++) {
        file *f = &d.files[new_file(&d)];
        f->data = malloc(before[i].bytes + 1);
        REQUIRE(f->data, "no memory");
        memcpy(f->data, before[i].data, before[i].bytes);
        f->bytes = before[i].bytes;
        set_name(d.names, &d.n_names, before[i].path, (int)i);
    }
    for (size_t i = 0; i < n; i++) apply_event(&d, &events[i]);
    each_state(&d);
    for (size_t i = 0; i < d.n_files; i++) free(d.files[i].data);
    free(d.data);
    return d.n_states;
}
