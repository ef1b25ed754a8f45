/* snapshot_seal.c - see snapshot_seal.h. The seals are the store's own: what they are is checked by scripts/read_snapshot.py and
 * the tests that use it. */
#include "snapshot_seal.h"

#include "base/hash.h"
#include "store/seal.h"

#include <stdlib.h>
#include <string.h>

enum { HASH = RAMET_SNAPSHOT_HASH_BYTES, HEADER_BYTES_OFF = 12, FLAGS_OFF = 16, ENCRYPTED = 1 };

const uint8_t snapshot_fuzz_key[RAMET_KEY_BYTES] = {1, 2, 3};

static bool decode(const uint8_t *data, size_t bytes, ramet_snapshot_header *h) {
    if (bytes < RAMET_SNAPSHOT_PREAMBLE_BYTES + HASH) return false;
    size_t n = (size_t)fuzz_load(data + HEADER_BYTES_OFF, 4);
    return n >= RAMET_SNAPSHOT_PREAMBLE_BYTES + HASH && n <= bytes &&
           ramet_snapshot_header_decode(data, n, bytes, h, NULL) == RAMET_OK;
}

static void renew_header_hash(uint8_t *data, const ramet_snapshot_header *h) {
    ramet_xxh128(data, h->header_bytes - HASH, data + h->header_bytes - HASH);
}

typedef ramet_status (*move_chunk)(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index,
                                   const uint8_t *in, uint8_t *out, uint8_t *tag);

static ramet_status seal_one(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index, const uint8_t *in,
                             uint8_t *out, uint8_t *tag) {
    return ramet_seal_chunk(seal, h, index, in, out, tag, NULL);
}

static ramet_status open_one(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index, const uint8_t *in,
                             uint8_t *out, uint8_t *tag) {
    return ramet_open_chunk(seal, h, index, in, out, tag, NULL);
}

static bool move_chunks(uint8_t *data, const ramet_snapshot_header *h, const ramet_seal *seal, move_chunk move) {
    uint8_t *tags = data + h->header_bytes + h->body_bytes, *moved = malloc(h->chunk_bytes);
    if (!moved) abort();
    bool is_moved = true;
    for (uint64_t i = 0; i < h->n_chunks && is_moved; i++) {
        ramet_chunk c = ramet_snapshot_chunk(h, i);
        uint8_t *place = data + h->header_bytes + c.off;
        is_moved = move(seal, h, i, place, moved, tags + i * HASH) == RAMET_OK;
        if (is_moved) memcpy(place, moved, c.bytes);
    }
    free(moved);
    return is_moved;
}

bool snapshot_seal(uint8_t *data, size_t bytes, fuzz_random *r) {
    ramet_snapshot_header h;
    ramet_seal seal;
    if (!decode(data, bytes, &h) || h.is_encrypted || h.version < 2) return false;
    fuzz_store(data + FLAGS_OFF, ENCRYPTED, 4);
    for (size_t i = 0; i < RAMET_SNAPSHOT_SALT_BYTES; i++)
        data[RAMET_SNAPSHOT_SALT_OFF + i] = (uint8_t)fuzz_below(r, 256);
    if (ramet_seal_init(&seal, snapshot_fuzz_key, data, h.header_bytes, NULL) != RAMET_OK) abort();
    memcpy(data + RAMET_SNAPSHOT_COMMITMENT_OFF, seal.commitment, sizeof seal.commitment);
    renew_header_hash(data, &h);
    if (!move_chunks(data, &h, &seal, seal_one)) abort();
    return true;
}

bool snapshot_open(uint8_t *data, size_t bytes) {
    ramet_snapshot_header h;
    ramet_seal seal;
    if (!decode(data, bytes, &h) || !h.is_encrypted) return false;
    if (ramet_seal_init(&seal, snapshot_fuzz_key, data, h.header_bytes, NULL) != RAMET_OK) abort();
    if (memcmp(seal.commitment, h.commitment, sizeof h.commitment) != 0) return false;
    if (!move_chunks(data, &h, &seal, open_one)) return false;
    fuzz_store(data + FLAGS_OFF, 0, 4);
    memset(data + RAMET_SNAPSHOT_SALT_OFF, 0, RAMET_SNAPSHOT_SALT_BYTES);
    memset(data + RAMET_SNAPSHOT_COMMITMENT_OFF, 0, RAMET_SNAPSHOT_COMMITMENT_BYTES);
    renew_header_hash(data, &h);
    return true;
}
