/* header.h - the header of a snapshot file: a preamble of fixed size, tagged fields, one checksum. docs/FORMAT.md has
 * the byte tables; the table in header.c is the same thing in C.
 *
 * Owns the encoding, and every check that needs the header alone: after ramet_snapshot_header_decode all sizes agree
 * with one another and with the file's length. Refuses to know files and contexts. */
#ifndef RAMET_STORE_HEADER_H
#define RAMET_STORE_HEADER_H

#include "base/error.h"

enum {
    RAMET_SNAPSHOT_VERSION = 2, /* what this writer writes */
    RAMET_SNAPSHOT_OLDEST = 1,  /* what a reader accepts, where its policy allows it */
    RAMET_SNAPSHOT_PREAMBLE_BYTES = 112,
    RAMET_SNAPSHOT_HASH_BYTES = 16,
    RAMET_SNAPSHOT_HEADER_MAX = 65536,    /* what a reader accepts */
    RAMET_SNAPSHOT_WRITTEN_MAX = 1024,    /* what this writer needs at most */
    RAMET_SNAPSHOT_CHUNK_BYTES = 1 << 18, /* what this writer uses: a chunk stays in a core's cache */
    RAMET_SNAPSHOT_CHUNK_MIN = 1 << 17,   /* what a reader accepts; more than any header */
    RAMET_SNAPSHOT_CHUNK_MAX = 1 << 24,
    RAMET_SNAPSHOT_SAMPLER_MAX = 65536,
    RAMET_SNAPSHOT_SALT_OFF = 32, /* of the encrypted form, in the preamble; zero in the plain one */
    RAMET_SNAPSHOT_SALT_BYTES = 32,
    RAMET_SNAPSHOT_COMMITMENT_OFF = 64,
    RAMET_SNAPSHOT_COMMITMENT_BYTES = 32,
};

/* The body's sections, in file order. */
typedef enum ramet_section {
    RAMET_SECTION_TOKENS,
    RAMET_SECTION_LOGITS,
    RAMET_SECTION_SAMPLER,
    RAMET_SECTION_RECURRENT,
    RAMET_SECTION_POSITIONS,
    RAMET_SECTION_COUNT,
} ramet_section;

typedef struct ramet_snapshot_header {
    /* fields */
    char model_name[128], arch[32], owner[128], marking[128];
    char numerics_id[33];
    uint8_t weights_sha256[32], tokenizer_sha256[32];
    uint32_t n_layers, n_kv_heads, head_dim, n_vocab;
    uint32_t kv, payload; /* ramet_kv */
    uint32_t n_tokens, has_logits;
    uint64_t section_bytes[RAMET_SECTION_COUNT];
    uint64_t generation; /* from version 2 on */
    /* preamble */
    uint32_t version, flags, header_bytes, chunk_bytes;
    bool is_encrypted;
    uint8_t salt[RAMET_SNAPSHOT_SALT_BYTES], commitment[RAMET_SNAPSHOT_COMMITMENT_BYTES];
    uint64_t file_bytes;
    /* derived */
    uint64_t body_bytes, n_chunks, row_bytes;
    uint8_t hash[RAMET_SNAPSHOT_HASH_BYTES];
} ramet_snapshot_header;

/* Computes the sizes of a file from the fields (recurrent and sampler bytes as given; is_encrypted too). E_ARGUMENT when
 * they make no valid file. */
ramet_status ramet_snapshot_header_measure(ramet_snapshot_header *h, ramet_error *error);
/* Measures, and writes the header into `out`, salt and commitment as given. */
ramet_status ramet_snapshot_header_encode(ramet_snapshot_header *h, uint8_t out[RAMET_SNAPSHOT_WRITTEN_MAX],
                                          ramet_error *error);

/* From the preamble of a file of `file_bytes` bytes: how long the header is. Checks magic, version and lengths. */
ramet_status ramet_snapshot_preamble_decode(const uint8_t preamble[RAMET_SNAPSHOT_PREAMBLE_BYTES], uint64_t file_bytes,
                                            ramet_snapshot_header *out, ramet_error *error);
/* The whole header, `bytes` = the header_bytes of the preamble. */
ramet_status ramet_snapshot_header_decode(const uint8_t *data, size_t bytes, uint64_t file_bytes,
                                          ramet_snapshot_header *out, ramet_error *error);

/* What of the body lies in the file's chunk `index`: it begins at byte `off` of the body. */
typedef struct ramet_chunk {
    uint64_t off;
    size_t bytes;
} ramet_chunk;
ramet_chunk ramet_snapshot_chunk(const ramet_snapshot_header *h, uint64_t index);
/* The chunk that byte `off` of the body is in. */
static inline uint64_t ramet_snapshot_chunk_of(const ramet_snapshot_header *h, uint64_t off) {
    return (h->header_bytes + off) / h->chunk_bytes;
}
/* Bytes of the body before `section`. */
uint64_t ramet_snapshot_section_off(const ramet_snapshot_header *h, ramet_section section);
void ramet_snapshot_header_info(const ramet_snapshot_header *h, ramet_snapshot_info *out);

#endif
