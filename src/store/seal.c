/* seal.c - see seal.h. */
#include "store/seal.h"
#include "base/bytes.h"
#include "base/hash.h"

#include <string.h>

enum { DIGEST_BYTES = 32 };

/* The header without what follows from it: the commitment, and the checksum at its end. */
static void digest_header(const uint8_t *head, size_t header_bytes, uint8_t out[DIGEST_BYTES]) {
    static const uint8_t none[RAMET_SNAPSHOT_COMMITMENT_BYTES];
    const size_t after = RAMET_SNAPSHOT_COMMITMENT_OFF + sizeof none;
    const ramet_piece pieces[] = {
        {head, RAMET_SNAPSHOT_COMMITMENT_OFF},
        {none, sizeof none},
        {head + after, header_bytes - RAMET_SNAPSHOT_HASH_BYTES - after},
    };
    ramet_sha256_pieces(pieces, sizeof pieces / sizeof *pieces, out);
}

ramet_status ramet_seal_init(ramet_seal *seal, const uint8_t context_key[RAMET_KEY_BYTES], const uint8_t *head,
                             size_t header_bytes, ramet_error *error) {
    static const char purpose[14] = "ramet snapshot"; /* without a NUL */
    uint8_t info[sizeof purpose + DIGEST_BYTES], derived[RAMET_KEY_BYTES + RAMET_SNAPSHOT_COMMITMENT_BYTES];
    *seal = (ramet_seal){0};
    digest_header(head, header_bytes, seal->digest);
    memcpy(info, purpose, sizeof purpose);
    memcpy(info + sizeof purpose, seal->digest, DIGEST_BYTES);
    RAMET_TRY(ramet_hkdf(context_key, head + RAMET_SNAPSHOT_SALT_OFF, RAMET_SNAPSHOT_SALT_BYTES, info, sizeof info,
                         derived, sizeof derived, error));
    memcpy(seal->key, derived, sizeof seal->key);
    memcpy(seal->commitment, derived + sizeof seal->key, sizeof seal->commitment);
    ramet_wipe(derived, sizeof derived);
    return RAMET_OK;
}

void ramet_seal_wipe(ramet_seal *seal) {
    ramet_wipe(seal, sizeof *seal);
}

/* ---- chunks ---- */

/* How chunk `index` is sealed; the nonce is put where the caller has room for it. */
static ramet_gcm gcm_of(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index,
                        uint8_t nonce[RAMET_GCM_NONCE_BYTES]) {
    memset(nonce, 0, RAMET_GCM_NONCE_BYTES);
    ramet_put_le(nonce, index, 8);
    nonce[8] = index + 1 == h->n_chunks;
    return (ramet_gcm){seal->key, nonce, seal->digest, sizeof seal->digest};
}

ramet_status ramet_seal_chunk(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index, const uint8_t *in,
                              uint8_t *out, uint8_t out_tag[RAMET_SNAPSHOT_HASH_BYTES], ramet_error *error) {
    uint8_t nonce[RAMET_GCM_NONCE_BYTES];
    const ramet_gcm gcm = gcm_of(seal, h, index, nonce);
    return ramet_gcm_seal(&gcm, in, ramet_snapshot_chunk(h, index).bytes, out, out_tag, error);
}

ramet_status ramet_open_chunk(const ramet_seal *seal, const ramet_snapshot_header *h, uint64_t index, const uint8_t *in,
                              uint8_t *out, const uint8_t tag[RAMET_SNAPSHOT_HASH_BYTES], ramet_error *error) {
    uint8_t nonce[RAMET_GCM_NONCE_BYTES];
    const ramet_gcm gcm = gcm_of(seal, h, index, nonce);
    return ramet_gcm_open(&gcm, in, ramet_snapshot_chunk(h, index).bytes, out, tag, error);
}
