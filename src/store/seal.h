/* seal.h - the encrypted form of a snapshot: a file's key from the context key, and its chunks under that key.
 *
 *   digest          SHA-256 of the header up to its checksum, the commitment taken as zero
 *   key|commitment  HKDF-SHA-256 of the context key, with the header's random salt and ("ramet snapshot" | digest): 64 bytes
 *   chunk i         AES-256-GCM; nonce = u64 i | u32 1 for the last chunk, else 0; aad = digest; its tag stands where a plain
 *                   file has the checksum
 *
 * The commitment is stored in the header, so that another key, or a header of which one bit was changed, is known before anything
 * is read. A salt is never used twice, so nor is a nonce under one key.
 *
 * Owns a file's key. Refuses to know where the context key comes from. */
#ifndef RAMET_STORE_SEAL_H
#define RAMET_STORE_SEAL_H

#include "base/crypt.h"
#include "store/header.h"

typedef struct ramet_seal {
    uint8_t key[RAMET_KEY_BYTES], digest[32], commitment[RAMET_SNAPSHOT_COMMITMENT_BYTES];
} ramet_seal;

/* From an encoded header, whatever commitment it has. E_NO_MEMORY. */
ramet_status ramet_seal_init(ramet_seal *seal, const uint8_t context_key[RAMET_KEY_BYTES], const uint8_t *head,
                             size_t header_bytes, ramet_error *error);
void ramet_seal_wipe(ramet_seal *seal);

/* A chunk: `in` to `out`, which do not overlap. Any thread. */
ramet_status ramet_seal_chunk(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index, const uint8_t *in,
                              uint8_t *out, uint8_t out_tag[RAMET_SNAPSHOT_HASH_BYTES], ramet_error *error);
/* E_AUTHENTICATION when it is not what was sealed as this chunk of this file. */
ramet_status ramet_open_chunk(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index, const uint8_t *in,
                              uint8_t *out, const uint8_t tag[RAMET_SNAPSHOT_HASH_BYTES], ramet_error *error);

#endif
