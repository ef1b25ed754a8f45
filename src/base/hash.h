/* hash.h - SHA-256 (identity: OpenSSL's) and XXH3-128 (integrity: xxHash's), one-shot and streaming. */
#ifndef RAMET_BASE_HASH_H
#define RAMET_BASE_HASH_H

#include "base/error.h"

typedef struct ramet_sha256 ramet_sha256;
ramet_sha256 *ramet_sha256_create(void); /* NULL: no memory */
void ramet_sha256_update(ramet_sha256 *s, const void *data, uint64_t bytes);
void ramet_sha256_finish(ramet_sha256 **s, uint8_t out[32]); /* destroys it */
void ramet_sha256_once(const void *data, uint64_t bytes, uint8_t out[32]);
typedef struct ramet_piece {
    const void *data;
    uint64_t bytes;
} ramet_piece;
/* Of the pieces as if they were adjacent. */
void ramet_sha256_pieces(const ramet_piece *pieces, size_t n, uint8_t out[32]);

void ramet_xxh128(const void *data, size_t bytes, uint8_t out[16]); /* canonical (big-endian) byte order */
/* Of `data` and, as if it were adjacent, `more`. */
void ramet_xxh128_pair(const void *data, size_t bytes, const void *more, size_t more_bytes, uint8_t out[16]);

void ramet_hex(const uint8_t *bytes, size_t n, char *out); /* lower case, 2n + 1 chars */

#endif
