/* snapshot_mutate.c - see snapshot_mutate.h. Sizes and checksums come from the store's own header.c: a mistake there is
 * found by the tests that read files with scripts/read_snapshot.py. */
#include "snapshot_mutate.h"

#include "snapshot_seal.h"

#include "base/hash.h"
#include "store/header.h"

#include <string.h>

enum {
    HASH = RAMET_SNAPSHOT_HASH_BYTES,
    PREAMBLE = RAMET_SNAPSHOT_PREAMBLE_BYTES,
    FILE_BYTES_OFF = 24,
    FIELD_PREFIX = 8,
};

/* The value of field `tag`, of `size` bytes; NULL when the header has none. */
static uint8_t *find_field(uint8_t *data, size_t end, uint32_t tag, size_t size) {
    for (size_t at = PREAMBLE; end - at >= FIELD_PREFIX;) {
        uint64_t n = fuzz_load(data + at + 4, 4);
        if (n > end - at - FIELD_PREFIX) return NULL;
        if (fuzz_load(data + at, 2) == tag) return n == size ? data + at + FIELD_PREFIX : NULL;
        at += FIELD_PREFIX + (size_t)n;
    }
    return NULL;
}

static size_t header_bytes_of(const uint8_t *data, size_t bytes) {
    if (bytes < PREAMBLE + HASH) return 0;
    size_t n = (size_t)fuzz_load(data + SNAPSHOT_HEADER_BYTES_OFF, 4);
    return n >= PREAMBLE + HASH && n <= bytes ? n : 0;
}

static void renew_header(uint8_t *data, size_t bytes, size_t header_bytes) {
    fuzz_store(data + FILE_BYTES_OFF, bytes, 8);
    ramet_xxh128(data, header_bytes - HASH, data + header_bytes - HASH);
}

/* Only where the sizes agree is it known where the checksums of the chunks lie. */
static void renew_chunks(uint8_t *data, size_t bytes, size_t header_bytes) {
    ramet_snapshot_header h;
    if (ramet_snapshot_header_decode(data, header_bytes, bytes, &h, NULL) != RAMET_OK) return;
    uint8_t identity[HASH + 8], *hashes = data + header_bytes + h.body_bytes;
    memcpy(identity, h.hash, HASH);
    for (uint64_t i = 0; i < h.n_chunks; i++) {
        ramet_chunk c = ramet_snapshot_chunk(&h, i);
        fuzz_store(identity + HASH, i, 8);
        ramet_xxh128_pair(data + header_bytes + c.off, c.bytes, identity, sizeof identity, hashes + i * HASH);
    }
}

static void renew(uint8_t *data, size_t bytes) {
    size_t header_bytes = header_bytes_of(data, bytes);
    if (!header_bytes) return;
    renew_header(data, bytes, header_bytes);
    renew_chunks(data, bytes, header_bytes);
}

snapshot_body snapshot_body_of(const uint8_t *data, size_t bytes) {
    size_t header_bytes = header_bytes_of(data, bytes);
    ramet_snapshot_header h;
    uint64_t file_bytes = header_bytes ? fuzz_load(data + FILE_BYTES_OFF, 8) : 0;
    if (!header_bytes || ramet_snapshot_header_decode(data, header_bytes, file_bytes, &h, NULL) != RAMET_OK)
        return (snapshot_body){0};
    return (snapshot_body){data + header_bytes, (size_t)h.body_bytes};
}

/* ---- changes that keep the file sound, or nearly so ---- */

enum { TAG_KV = 0x8008, TAG_PAYLOAD, TAG_TOKENS, TAG_LOGITS, TAG_SECTIONS };

/* Another number of tokens, with logits or without, other sampler state: the header says so and the body has them. */
static size_t resize_body(uint8_t *data, size_t bytes, size_t most, fuzz_random *r) {
    size_t header_bytes = header_bytes_of(data, bytes), end = header_bytes - HASH;
    ramet_snapshot_header h;
    if (!header_bytes || ramet_snapshot_header_decode(data, header_bytes, bytes, &h, NULL) != RAMET_OK) return bytes;
    uint8_t *n_tokens = find_field(data, end, TAG_TOKENS, 4), *has_logits = find_field(data, end, TAG_LOGITS, 4),
            *sections = find_field(data, end, TAG_SECTIONS, 8 * RAMET_SECTION_COUNT);
    if (!n_tokens || !has_logits || !sections) return bytes;
    uint64_t tokens = fuzz_below(r, 140), logits = tokens ? fuzz_below(r, 2) : 0;
    uint64_t sizes[RAMET_SECTION_COUNT] = {4 * tokens, logits * 4 * h.n_vocab, fuzz_below(r, 40), 0,
                                           tokens * h.row_bytes};
    uint64_t body = sizes[0] + sizes[1] + sizes[2] + sizes[4],
             n_chunks = body ? (header_bytes + body - 1) / h.chunk_bytes + 1 : 0;
    uint64_t total = header_bytes + body + n_chunks * HASH;
    if (total > most) return bytes;
    fuzz_store(n_tokens, tokens, 4);
    fuzz_store(has_logits, logits, 4);
    for (size_t i = 0; i < RAMET_SECTION_COUNT; i++) fuzz_store(sections + 8 * i, sizes[i], 8);
    for (size_t i = bytes; i < total; i++) data[i] = (uint8_t)fuzz_below(r, 256);
    for (size_t i = 0; i < tokens; i++) fuzz_store(data + header_bytes + 4 * i, fuzz_below(r, h.n_vocab), 4);
    return (size_t)total;
}

/* A number of the header becomes an odd one, or a bit of it turns. */
static void change_header(uint8_t *data, size_t header_bytes, fuzz_random *r) {
    static const uint8_t offs[] = {8, 16, 20, 104};
    uint32_t way = fuzz_below(r, 4);
    uint8_t *field = find_field(data, header_bytes - HASH, 0x8004 + fuzz_below(r, 8), 4);
    if (way == 0)
        fuzz_store(data + offs[fuzz_below(r, sizeof offs)], fuzz_odd_number(r), 4);
    else if (way == 1 && field)
        fuzz_store(field, fuzz_odd_number(r), 4);
    else
        data[fuzz_below(r, (uint32_t)header_bytes)] ^= (uint8_t)(1 << fuzz_below(r, 8));
}

/* One of the texts in front grows or shrinks; the body moves along. */
static size_t change_text(uint8_t *data, size_t bytes, size_t most, fuzz_random *r) {
    size_t header_bytes = header_bytes_of(data, bytes), n = fuzz_below(r, 140);
    size_t value = PREAMBLE + FIELD_PREFIX;
    if (header_bytes < value + HASH) return bytes;
    uint64_t old = fuzz_load(data + PREAMBLE + 4, 4);
    if (old > header_bytes - HASH - value || bytes - old + n > most) return bytes;
    memmove(data + value + n, data + value + old, bytes - value - (size_t)old);
    for (size_t i = 0; i < n; i++) data[value + i] = (uint8_t)(1 + fuzz_below(r, 255));
    fuzz_store(data + PREAMBLE + 4, n, 4);
    fuzz_store(data + SNAPSHOT_HEADER_BYTES_OFF, header_bytes - old + n, 4);
    return bytes - (size_t)old + n;
}

static size_t change(uint8_t *data, size_t bytes, size_t most, fuzz_random *r) {
    size_t header_bytes = header_bytes_of(data, bytes);
    switch (fuzz_below(r, 4)) {
    case 0: return resize_body(data, bytes, most, r);
    case 1: change_header(data, header_bytes, r); return bytes;
    case 2: return change_text(data, bytes, most, r);
    default: return LLVMFuzzerMutate(data, bytes, most);
    }
}

/* An encrypted file is opened, changed and sealed again, or stays open; a plain one is sealed now and then, and then it is
 * the sealed one that may be changed. */
size_t snapshot_mutate(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    fuzz_random r = {.state = seed};
    if (seed % 2 || !header_bytes_of(data, bytes)) return LLVMFuzzerMutate(data, bytes, most);
    bool was_sealed = snapshot_open(data, bytes);
    bytes = change(data, bytes, most, &r);
    renew(data, bytes);
    if (fuzz_below(&r, 4) >= (was_sealed ? 3u : 1u)) return bytes;
    if (!snapshot_seal(data, bytes, &r) || fuzz_below(&r, 3) > 0) return bytes;
    bytes = change(data, bytes, most, &r);
    size_t header_bytes = header_bytes_of(data, bytes);
    if (header_bytes) renew_header(data, bytes, header_bytes);
    return bytes;
}
