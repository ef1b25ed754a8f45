/* digest.c - one SHA-256 over everything that decides ids, so that two files with one digest tokenize alike.
 * Every array is preceded by its count and every string by its length; numbers are little-endian. */
#include "base/hash.h"
#include "text/vocab.h"

#include <string.h>

#define DIGEST_DOMAIN "ramet tokenizer 1"

/* Gathers the many small parts, since a hash update costs more than the bytes in it. */
typedef struct digest {
    ramet_sha256 *sha;
    size_t n;
    uint8_t buffer[4096];
} digest;

static void put_bytes(digest *d, const void *data, size_t bytes) {
    if (bytes == 0) return;
    if (d->n + bytes > sizeof d->buffer) {
        ramet_sha256_update(d->sha, d->buffer, d->n);
        d->n = 0;
    }
    if (bytes > sizeof d->buffer) {
        ramet_sha256_update(d->sha, data, bytes);
        return;
    }
    memcpy(d->buffer + d->n, data, bytes);
    d->n += bytes;
}

static void put_u32(digest *d, uint32_t value) {
    uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    put_bytes(d, bytes, sizeof bytes);
}

static void put_string(digest *d, const char *data, size_t bytes) {
    put_u32(d, (uint32_t)bytes);
    put_bytes(d, data, bytes);
}

static void put_float(digest *d, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u32(d, bits);
}

/* What does not decide ids stays out: the scores and add_space_prefix of a byte-level file, the merges of the other
 * kind. */
static void put_source(digest *d, const ramet_vocab *v, const ramet_vocab_source *s) {
    put_string(d, DIGEST_DOMAIN, strlen(DIGEST_DOMAIN));
    put_string(d, s->kind, strlen(s->kind));
    const char *pre = v->byte_level ? s->pre : "";
    put_string(d, pre, strlen(pre));
    put_u32(d, v->n_tokens);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        put_string(d, s->pieces[id].data, s->pieces[id].bytes);
        put_u32(d, v->types[id]);
        if (!v->byte_level) put_float(d, s->scores[id]);
    }
    uint32_t n_merges = v->byte_level ? s->n_merges : 0;
    put_u32(d, n_merges);
    for (uint32_t i = 0; i < n_merges; i++) put_string(d, s->merges[i].data, s->merges[i].bytes);
    const int32_t ids[] = {s->bos, s->eos, s->eot, s->unk, s->pad, v->adds_bos, v->adds_space};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) put_u32(d, (uint32_t)ids[i]);
}

ramet_status ramet_vocab_build_digest(ramet_vocab *v, const ramet_vocab_source *source, ramet_error *error) {
    digest d = {.sha = ramet_sha256_create()};
    if (!d.sha) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the digest of the vocabulary");
    put_source(&d, v, source);
    ramet_sha256_update(d.sha, d.buffer, d.n);
    ramet_sha256_finish(&d.sha, v->digest);
    return RAMET_OK;
}
