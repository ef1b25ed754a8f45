/* crypt.h - AES-256-GCM, HKDF-SHA-256 (OpenSSL's), random bytes (the system's), and reading a key from a file.
 * Owns no key: callers keep theirs and wipe them. Refuses to know what is sealed, and how nonces are chosen: a nonce must never come
 * twice under one key. Any thread. */
#ifndef RAMET_BASE_CRYPT_H
#define RAMET_BASE_CRYPT_H

#include "base/error.h"

enum { RAMET_GCM_NONCE_BYTES = 12, RAMET_GCM_TAG_BYTES = 16 };

/* Bytes that nobody can guess, at most 256 of them. */
ramet_status ramet_random(void *out, size_t bytes, ramet_error *error);

/* RFC 5869 with SHA-256: `bytes` (at most 8,160) of key material. */
ramet_status ramet_hkdf(const uint8_t key[RAMET_KEY_BYTES], const void *salt, size_t salt_bytes, const void *info,
                        size_t info_bytes, void *out, size_t bytes, ramet_error *error);

/* `out` has as many bytes as `in` and may be the same memory; at most INT32_MAX of them and of `aad`. */
typedef struct ramet_gcm {
    const uint8_t *key;   /* RAMET_KEY_BYTES */
    const uint8_t *nonce; /* RAMET_GCM_NONCE_BYTES */
    const void *aad;      /* authenticated, not encrypted */
    size_t aad_bytes;
} ramet_gcm;
ramet_status ramet_gcm_seal(const ramet_gcm *gcm, const void *in, size_t bytes, void *out,
                            uint8_t out_tag[RAMET_GCM_TAG_BYTES], ramet_error *error);
/* E_AUTHENTICATION: another key, nonce or aad, or the bytes were changed; `out` then holds nothing of use. */
ramet_status ramet_gcm_open(const ramet_gcm *gcm, const void *in, size_t bytes, void *out,
                            const uint8_t tag[RAMET_GCM_TAG_BYTES], ramet_error *error);

/* In a time that does not depend on where they differ. */
bool ramet_equal_secret(const void *a, const void *b, size_t bytes);
/* Zeroes, also where a compiler sees no later use. */
void ramet_wipe(void *secret, size_t bytes);

#endif
