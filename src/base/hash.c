/* hash.c - see hash.h. */
#include "base/hash.h"
#include "base/memory.h"

#define OPENSSL_SUPPRESS_DEPRECATED
#define XXH_STATIC_LINKING_ONLY /* the size of a state */
#include <openssl/sha.h>
#if RAMET_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* the same functions, with the best instructions that the CPU has */
#else
#include <xxhash.h>
#endif

#include <stdlib.h>
#include <string.h>

/* The plain functions, which OpenSSL 3 calls deprecated: its new way to the same code (EVP) reads a configuration and
 * sets up providers first, 3 ms and 1.9 MB in every process. */
struct ramet_sha256 {
    SHA256_CTX context;
};

ramet_sha256 *ramet_sha256_create(void) {
    ramet_sha256 *s = ramet_alloc(1, sizeof *s);
    if (s) SHA256_Init(&s->context);
    return s;
}

void ramet_sha256_update(ramet_sha256 *s, const void *data, uint64_t bytes) {
    SHA256_Update(&s->context, data, (size_t)bytes);
}

void ramet_sha256_finish(ramet_sha256 **s, uint8_t out[32]) {
    SHA256_Final(out, &(*s)->context);
    free(*s);
    *s = NULL;
}

void ramet_sha256_pieces(const ramet_piece *pieces, size_t n, uint8_t out[32]) {
    SHA256_CTX context;
    SHA256_Init(&context);
    for (size_t i = 0; i < n; i++) SHA256_Update(&context, pieces[i].data, (size_t)pieces[i].bytes);
    SHA256_Final(out, &context);
}

void ramet_sha256_once(const void *data, uint64_t bytes, uint8_t out[32]) {
    ramet_sha256_pieces(&(ramet_piece){data, bytes}, 1, out);
}

static void put_canonical(XXH128_hash_t hash, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out, canonical.digest, sizeof canonical.digest);
}

void ramet_xxh128(const void *data, size_t bytes, uint8_t out[16]) {
    put_canonical(XXH3_128bits(data, bytes), out);
}

void ramet_xxh128_pair(const void *data, size_t bytes, const void *more, size_t more_bytes, uint8_t out[16]) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, data, bytes);
    XXH3_128bits_update(&state, more, more_bytes);
    put_canonical(XXH3_128bits_digest(&state), out);
}

void ramet_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = 0;
}
