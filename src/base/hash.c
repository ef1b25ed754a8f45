/* hash.c - see hash.h. */
#include "base/hash.h"

#define XXH_STATIC_LINKING_ONLY /* the size of a state */
#include <openssl/evp.h>
#if RAMET_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* the same functions, with the best instructions that the CPU has */
#else
#include <xxhash.h>
#endif

#include <string.h>

static EVP_MD_CTX *to_evp(ramet_sha256 *s) {
    return (EVP_MD_CTX *)(void *)s;
}

ramet_sha256 *ramet_sha256_create(void) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!context) return NULL;
    if (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(context);
        return NULL;
    }
    return (ramet_sha256 *)(void *)context;
}

void ramet_sha256_update(ramet_sha256 *s, const void *data, uint64_t bytes) {
    int ok = EVP_DigestUpdate(to_evp(s), data, (size_t)bytes);
    RAMET_ASSERT(ok == 1, "SHA-256 update failed");
}

void ramet_sha256_finish(ramet_sha256 **s, uint8_t out[32]) {
    unsigned n = 0;
    int ok = EVP_DigestFinal_ex(to_evp(*s), out, &n);
    RAMET_ASSERT(ok == 1 && n == 32, "SHA-256 gave %u bytes", n);
    EVP_MD_CTX_free(to_evp(*s));
    *s = NULL;
}

void ramet_sha256_once(const void *data, uint64_t bytes, uint8_t out[32]) {
    ramet_sha256 *s = ramet_sha256_create();
    RAMET_ASSERT(s != NULL, "no memory for SHA-256");
    ramet_sha256_update(s, data, bytes);
    ramet_sha256_finish(&s, out);
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
