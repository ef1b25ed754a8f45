/* digest.c - SHA-256 over the bytes of a model's files, computed, or remembered from an earlier time.
 *
 * A digest that is remembered is believed when two things agree. The stamp of the files (device, inode, size, mtime,
 * ctime) says that nobody wrote to them in the ordinary way: whoever puts the mtime back cannot put the ctime back; as
 * times have a granularity, a file counts only when it was left alone for a while before it was read. A store through a
 * mapping need not move a time, so XXH3-128 of all bytes, many times faster than SHA-256, must be as it was, too: what
 * deceives both is such a store of bytes that were made to collide. The directory has a fixed number of slots, one small
 * file each, chosen by device and inode: a file that changed replaces its own entry, and nothing grows.
 * Owns these files. Remembering is never an error: whatever is wrong with it, the bytes are hashed. */
#define _GNU_SOURCE
#include "model/gguf_internal.h"

#include "base/hash.h"
#include "base/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 256 << 10, SLOTS = 4096 };
#define SECOND              UINT64_C(1000000000)
#define SETTLED_NANOSECONDS (2 * SECOND) /* the coarsest clock of a file system, FAT's */

/* Of the bytes of all parts. The sum is XXH3-128 of each chunk and the sum until there. */
typedef struct hashes {
    uint8_t digest[32], sum[16];
} hashes;

/* As it lies on the disk; bytes only. */
typedef struct entry {
    char magic[16];
    uint8_t key[32]; /* SHA-256 of the stamps of all parts */
    hashes hashes;
    uint8_t check[16]; /* XXH3-128 of all before it */
} entry;
static const char MAGIC[16] = "ramet-digest-2\n";

static uint64_t nanoseconds_of(struct timespec t) {
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

gguf_stamp ramet_gguf_stamp(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return (gguf_stamp){0};
    return (gguf_stamp){.device = (uint64_t)st.st_dev,
                        .inode = (uint64_t)st.st_ino,
                        .bytes = (uint64_t)st.st_size,
                        .mtime = nanoseconds_of(st.st_mtim),
                        .ctime = nanoseconds_of(st.st_ctim)};
}

ramet_status ramet_gguf_check_unchanged(const ramet_gguf *gguf, ramet_error *error) {
    for (size_t i = 0; i < gguf->n_parts; i++) {
        const gguf_part *part = &gguf->parts[i];
        gguf_stamp now = ramet_gguf_stamp(part->path);
        if (part->mapped && memcmp(&now, &part->stamp, sizeof now) != 0)
            return ramet_fail(error, RAMET_E_IO, "%s was changed while it was loaded: load it again", part->path);
    }
    return RAMET_OK;
}

static bool is_settled(const ramet_gguf *gguf) {
    struct timespec clock;
    if (clock_gettime(CLOCK_REALTIME, &clock) != 0) return false;
    for (size_t i = 0; i < gguf->n_parts; i++) {
        const gguf_stamp *s = &gguf->parts[i].stamp;
        uint64_t latest = s->mtime > s->ctime ? s->mtime : s->ctime;
        if (latest + SETTLED_NANOSECONDS > nanoseconds_of(clock)) return false;
    }
    return true;
}

/* False: somebody else may write there, so that what lies there proves nothing; or it is not there at all. */
static bool is_private(const char *directory) {
    struct stat st;
    return stat(directory, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

static bool slot_of(const gguf_stamp *first, const char *directory, char out[PATH_MAX]) {
    uint8_t hash[16];
    ramet_xxh128(first, offsetof(gguf_stamp, bytes), hash);
    int n = snprintf(out, PATH_MAX, "%s/%03x", directory, (hash[0] << 8 | hash[1]) % SLOTS);
    return n > 0 && n < PATH_MAX;
}

static void fill_key(const ramet_gguf *gguf, uint8_t out[32]) {
    memset(out, 0, 32);
    for (size_t i = 0; i < gguf->n_parts; i++) {
        const gguf_stamp *stamp = &gguf->parts[i].stamp;
        ramet_sha256_pieces((ramet_piece[]){{out, 32}, {stamp, sizeof *stamp}}, 2, out);
    }
}

static bool read_entry(const char *path, const uint8_t key[32], hashes *out) {
    entry e;
    int fd;
    uint64_t bytes;
    uint8_t check[16];
    if (ramet_file_open(path, &fd, &bytes, NULL) != RAMET_OK) return false;
    bool is_read = bytes == sizeof e && ramet_read_at(fd, &e, sizeof e, 0, path, NULL) == RAMET_OK;
    close(fd);
    if (!is_read) return false;
    ramet_xxh128(&e, offsetof(entry, check), check);
    if (memcmp(e.magic, MAGIC, sizeof e.magic) != 0 || memcmp(e.key, key, 32) != 0 || memcmp(e.check, check, 16) != 0)
        return false;
    *out = e.hashes;
    return true;
}

/* Not synced: what a crash of the machine leaves has a wrong check. */
static void write_entry(const char *path, const uint8_t key[32], const hashes *h) {
    entry e;
    ramet_publisher p;
    memcpy(e.magic, MAGIC, sizeof e.magic);
    memcpy(e.key, key, 32);
    e.hashes = *h;
    ramet_xxh128(&e, offsetof(entry, check), e.check);
    if (ramet_publish_begin(path, &p, NULL) != RAMET_OK) return;
    p.skip_sync = true;
    if (ramet_publish_write(&p, &e, sizeof e, NULL) == RAMET_OK)
        (void)ramet_publish_commit(&p, NULL);
    else
        ramet_publish_abort(&p);
}

/* With `sha`, both are taken from one copy of the chunk: the digest and the sum are of the same bytes, whoever stores
 * there meanwhile. */
static void hash_chunk(const uint8_t *data, uint64_t n, ramet_sha256 *sha, uint8_t *copy, uint8_t sum[16]) {
    if (sha) {
        memcpy(copy, data, n);
        ramet_sha256_update(sha, copy, n);
        data = copy;
    }
    ramet_xxh128_pair(data, n, sum, 16, sum);
}

static void hash_parts(const ramet_gguf *gguf, ramet_sha256 *sha, uint8_t *copy, uint8_t sum[16]) {
    memset(sum, 0, 16);
    for (size_t i = 0; i < gguf->n_parts; i++) {
        const gguf_part *part = &gguf->parts[i];
        for (uint64_t at = 0; at < part->map.bytes; at += CHUNK_BYTES) {
            uint64_t left = part->map.bytes - at, n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
            hash_chunk(part->map.data + at, n, sha, copy, sum);
            if (part->mapped) ramet_file_map_forget(&part->map, at, n);
        }
    }
}

static bool still_sums_to(const ramet_gguf *gguf, const uint8_t expected[16]) {
    uint8_t sum[16];
    hash_parts(gguf, NULL, NULL, sum);
    return memcmp(sum, expected, sizeof sum) == 0;
}

static ramet_status hash_all(const ramet_gguf *gguf, hashes *out, ramet_error *error) {
    ramet_sha256 *sha = ramet_sha256_create();
    uint8_t *copy = ramet_alloc(CHUNK_BYTES, 1);
    bool ok = sha && copy;
    if (ok) hash_parts(gguf, sha, copy, out->sum);
    if (sha) ramet_sha256_finish(&sha, out->digest);
    free(copy);
    return ok ? RAMET_OK : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to hash %s", gguf->parts[0].path);
}

ramet_status ramet_gguf_digest(const ramet_gguf *gguf, const char *cache, uint8_t out[32], bool *out_cached,
                               ramet_error *error) {
    char path[PATH_MAX];
    uint8_t key[32];
    hashes h;
    const gguf_part *first = &gguf->parts[0];
    bool is_kept = cache && first->mapped && is_private(cache) && slot_of(&first->stamp, cache, path);
    if (is_kept) fill_key(gguf, key);
    bool is_cached = is_kept && read_entry(path, key, &h) && still_sums_to(gguf, h.sum);
    if (!is_cached) {
        bool is_worth_keeping = is_kept && is_settled(gguf); /* asked before the bytes are read */
        RAMET_TRY(hash_all(gguf, &h, error));
        if (is_worth_keeping) write_entry(path, key, &h);
    }
    if (out_cached) *out_cached = is_cached;
    memcpy(out, h.digest, sizeof h.digest);
    return RAMET_OK;
}
