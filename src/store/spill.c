/* spill.c - see spill.h. */
#define _GNU_SOURCE
#include "store/spill.h"
#include "base/bytes.h"
#include "base/crypt.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 128 << 10, /* plain; of this size so that it stays in a processor's cache on its way */
    SEALED_BYTES = PIECE_BYTES + RAMET_GCM_TAG_BYTES,
    PATH_BYTES = RAMET_SCRATCH_PATH_BYTES
};

struct ramet_spill {
    ramet_scratch home;
    ramet_store_crew crew;
    uint8_t *buffers; /* [n_workers][SEALED_BYTES] */
    uint8_t key[RAMET_KEY_BYTES];
    bool has_key; /* before the first write it is the owner's still */
};

/* ---- creating ---- */

static void run_alone(void *user, uint32_t n, ramet_job job, void *job_user) {
    (void)user;
    ramet_pool_run(NULL, n, job, job_user);
}

/* Not before something is written: whoever has room for everything does not set up OpenSSL, two megabytes. */
static ramet_status derive_key(ramet_spill *spill, ramet_error *error) {
    static const char purpose[] = "ramet spill";
    uint8_t salt[RAMET_KEY_BYTES], derived[RAMET_KEY_BYTES];
    if (spill->has_key) return RAMET_OK;
    RAMET_TRY(ramet_random(salt, sizeof salt, error));
    RAMET_TRY(ramet_hkdf(spill->key, salt, sizeof salt, purpose, sizeof purpose - 1, derived, sizeof derived, error));
    memcpy(spill->key, derived, sizeof spill->key);
    ramet_wipe(derived, sizeof derived);
    spill->has_key = true;
    return RAMET_OK;
}

ramet_status ramet_spill_create(const char *directory, const uint8_t key[RAMET_KEY_BYTES], const ramet_store_crew *crew,
                                ramet_spill **out, ramet_error *error) {
    static const ramet_store_crew alone = {.n_workers = 1, .run = run_alone};
    *out = NULL;
    ramet_spill *spill = ramet_alloc(1, sizeof *spill);
    if (!spill) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to spill to %s", directory);
    spill->crew = crew ? *crew : alone;
    spill->buffers = ramet_alloc(spill->crew.n_workers, SEALED_BYTES);
    memcpy(spill->key, key, sizeof spill->key);
    ramet_status status = spill->buffers ? ramet_scratch_create(directory, NULL, &spill->home, error)
                                         : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to spill to %s", directory);
    if (status != RAMET_OK) {
        ramet_spill_destroy(&spill);
        return status == RAMET_E_NO_MEMORY ? status : ramet_fail_prefix(error, status, "cannot spill");
    }
    *out = spill;
    return RAMET_OK;
}

void ramet_spill_destroy(ramet_spill **handle) {
    ramet_spill *spill = *handle;
    if (!spill) return;
    *handle = NULL;
    ramet_scratch_remove(&spill->home);
    ramet_wipe(spill->key, sizeof spill->key);
    free(spill->buffers);
    free(spill);
}

/* ---- files ---- */

static void put_path(const ramet_spill *spill, uint64_t name, char out[PATH_BYTES]) {
    snprintf(out, PATH_BYTES, "%s/%016llx", spill->home.directory, (unsigned long long)name);
}

static uint64_t n_pieces(uint64_t bytes) {
    return bytes / PIECE_BYTES + (bytes % PIECE_BYTES != 0);
}

/* What of a block is on its way: one piece. */
typedef struct piece {
    uint64_t off, file_off;
    size_t bytes;
    uint8_t nonce[RAMET_GCM_NONCE_BYTES], aad[16];
} piece;

static piece piece_of(const ramet_pager_item *item, uint64_t index) {
    piece p = {.off = index * PIECE_BYTES, .file_off = index * SEALED_BYTES};
    uint64_t left = item->bytes - p.off;
    p.bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    ramet_put_le(p.nonce, item->name, 8);
    ramet_put_le(p.nonce + 8, index, 4);
    ramet_put_le(p.aad, item->name, 8);
    ramet_put_le(p.aad + 8, item->bytes, 8);
    return p;
}

static ramet_gcm gcm_of(const ramet_spill *spill, const piece *p) {
    return (ramet_gcm){.key = spill->key, .nonce = p->nonce, .aad = p->aad, .aad_bytes = sizeof p->aad};
}

/* ---- out ---- */

static ramet_status write_all(int fd, const uint8_t *data, size_t bytes, uint64_t off, const char *path,
                              ramet_error *error) {
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC; /* it does not say why */
        if (n <= 0) return ramet_fail_errno(error, "cannot write %s", path);
        data += n;
        off += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return RAMET_OK;
}

static ramet_status write_pieces(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer, int fd,
                                 const char *path, ramet_error *error) {
    for (uint64_t i = 0; i < n_pieces(item->bytes); i++) {
        piece p = piece_of(item, i);
        ramet_gcm gcm = gcm_of(spill, &p);
        RAMET_TRY(ramet_gcm_seal(&gcm, item->data + p.off, p.bytes, buffer, buffer + p.bytes, error));
        RAMET_TRY(write_all(fd, buffer, p.bytes + RAMET_GCM_TAG_BYTES, p.file_off, path, error));
    }
    return RAMET_OK;
}

static ramet_status create_block(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer,
                                 ramet_error *error) {
    char path[PATH_BYTES];
    put_path(spill, item->name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return ramet_fail_errno(error, "cannot create %s", path);
    ramet_status status = write_pieces(spill, item, buffer, fd, path, error);
    if (close(fd) != 0 && status == RAMET_OK) status = ramet_fail_errno(error, "cannot write %s", path);
    return status;
}

/* What to do comes first: a long path is cut off. */
static ramet_status write_block(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer,
                                ramet_error *error) {
    ramet_status status = create_block(spill, item, buffer, error);
    if (status == RAMET_OK || status == RAMET_E_NO_MEMORY) return status;
    return ramet_fail_prefix(error, status, "cannot spill: free space, or give another spill directory");
}

/* ---- back ---- */

/* E_NO_MEMORY for what another try may get. A call that a signal has broken off is one, too. That a file is gone, or another
 * thing in its place, is damage as any other. */
static ramet_status open_block(const char *path, uint64_t bytes, int *out_fd, ramet_error *error) {
    ramet_error why;
    uint64_t file_bytes;
    ramet_status status = ramet_file_open(path, out_fd, &file_bytes, &why);
    if (status != RAMET_OK) {
        if (why.os_errno == EMFILE || why.os_errno == ENFILE || why.os_errno == EINTR) why.code = RAMET_E_NO_MEMORY;
        if (status == RAMET_E_ARGUMENT || status == RAMET_E_NOT_FOUND) why.code = RAMET_E_CORRUPT;
        if (error) *error = why;
        return why.code;
    }
    if (file_bytes == bytes + n_pieces(bytes) * RAMET_GCM_TAG_BYTES) return RAMET_OK;
    close(*out_fd);
    return ramet_fail(error, RAMET_E_CORRUPT, "%s has changed: it is of %llu bytes", path,
                      (unsigned long long)file_bytes);
}

static ramet_status read_pieces(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer, int fd,
                                const char *path, ramet_error *error) {
    for (uint64_t i = 0; i < n_pieces(item->bytes); i++) {
        piece p = piece_of(item, i);
        ramet_gcm gcm = gcm_of(spill, &p);
        RAMET_TRY(ramet_read_at(fd, buffer, p.bytes + RAMET_GCM_TAG_BYTES, p.file_off, path, error));
        ramet_status status = ramet_gcm_open(&gcm, buffer, p.bytes, item->data + p.off, buffer + p.bytes, error);
        if (status != RAMET_OK) return ramet_fail_prefix(error, status, "%s", path);
    }
    return RAMET_OK;
}

static ramet_status fetch_block(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer,
                                ramet_error *error) {
    char path[PATH_BYTES];
    int fd;
    put_path(spill, item->name, path);
    RAMET_TRY(open_block(path, item->bytes, &fd, error));
    ramet_status status = read_pieces(spill, item, buffer, fd, path, error);
    close(fd);
    return status;
}

static ramet_status read_block(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer,
                               ramet_error *error) {
    ramet_status status = fetch_block(spill, item, buffer, error);
    if (status == RAMET_OK) return status;
    if (status == RAMET_E_NO_MEMORY)
        return ramet_fail_prefix(error, status, "cannot read back what was spilled, try again");
    return ramet_fail_prefix(error, status, "a spilled part of the context is lost: run its tokens again");
}

/* ---- batches ---- */

typedef struct batch {
    const ramet_spill *spill;
    ramet_pager_item *items;
    ramet_status (*move)(const ramet_spill *spill, const ramet_pager_item *item, uint8_t *buffer, ramet_error *error);
    pthread_mutex_t lock;
    uint32_t first_failed; /* and its error, under the lock */
    ramet_error error;
} batch;

static void move_one(void *user, uint32_t index, uint32_t worker) {
    batch *b = user;
    ramet_error error;
    uint8_t *buffer = b->spill->buffers + (size_t)worker * SEALED_BYTES;
    b->items[index].status = b->move(b->spill, &b->items[index], buffer, &error);
    if (b->items[index].status == RAMET_OK) return;
    pthread_mutex_lock(&b->lock);
    if (index < b->first_failed) {
        b->first_failed = index;
        b->error = error;
    }
    pthread_mutex_unlock(&b->lock);
}

/* Every item, whatever becomes of the others. The status and error of the first that failed. */
static ramet_status move_all(batch *b, uint32_t n, ramet_error *error) {
    const ramet_store_crew *crew = &b->spill->crew;
    b->first_failed = UINT32_MAX;
    pthread_mutex_init(&b->lock, NULL);
    crew->run(crew->user, n, move_one, b);
    pthread_mutex_destroy(&b->lock);
    if (b->first_failed == UINT32_MAX) return RAMET_OK;
    if (error) *error = b->error;
    return b->error.code;
}

static void forget_block(void *user, uint64_t name) {
    char path[PATH_BYTES];
    put_path(user, name, path);
    unlink(path);
}

static ramet_status write_blocks(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    batch b = {.spill = user, .items = items, .move = write_block};
    RAMET_TRY(derive_key(user, error));
    ramet_status status = move_all(&b, n, error);
    for (uint32_t i = 0; i < n && status != RAMET_OK; i++) forget_block(user, items[i].name);
    return status;
}

static ramet_status read_blocks(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    batch b = {.spill = user, .items = items, .move = read_block};
    return move_all(&b, n, error);
}

ramet_pager ramet_spill_pager(ramet_spill *spill) {
    return (ramet_pager){.write = write_blocks, .read = read_blocks, .forget = forget_block, .user = spill};
}
