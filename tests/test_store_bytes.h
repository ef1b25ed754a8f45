/* test_store_bytes.h - a snapshot file as bytes: its integers, its fields, its checksums. */
#ifndef RAMET_TEST_STORE_BYTES_H
#define RAMET_TEST_STORE_BYTES_H

#include "test_store_fixture.h"

enum { HASH = RAMET_SNAPSHOT_HASH_BYTES };

static inline uint32_t peek_u32(const bytes *f, size_t at) {
    const uint8_t *p = f->data + at;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void poke_u32(bytes *f, size_t at, uint32_t v) {
    for (int i = 0; i < 4; i++) f->data[at + (size_t)i] = (uint8_t)(v >> (8 * i));
}

static inline size_t header_of(const bytes *f) {
    return peek_u32(f, 12);
}

/* Where the value of a field is. */
static inline size_t field_of(const bytes *f, uint32_t tag) {
    for (size_t at = RAMET_SNAPSHOT_PREAMBLE_BYTES; at < header_of(f) - HASH; at += 8 + peek_u32(f, at + 4))
        if ((peek_u32(f, at) & 0xffff) == tag) return at + 8;
    fail_msg("no field %x", tag);
    return 0;
}

static inline bytes copy_bytes(const bytes *f) {
    bytes c = {malloc(f->n + 4096), f->n};
    memcpy(c.data, f->data, f->n);
    return c;
}

static inline void put_back(bytes *f, const bytes *sound) {
    free(f->data);
    *f = copy_bytes(sound);
}

/* The header's checksum, which needs no key. */
static inline void sum_header(bytes *f) {
    size_t end = header_of(f) - HASH;
    ramet_xxh128(f->data, end, f->data + end);
}

/* That of the only chunk. */
static inline void sum_chunk(bytes *f) {
    size_t header = header_of(f), n = f->n - header - HASH;
    uint8_t identity[HASH + 8] = {0};
    memcpy(identity, f->data + header - HASH, HASH);
    ramet_xxh128_pair(f->data + header, n, identity, sizeof identity, f->data + f->n - HASH);
}

#endif
