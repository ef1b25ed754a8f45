/* header.c - see header.h. One table says what every field is; encoding and decoding both walk it. */
#include "store/header.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/memory.h"
#include "numerics/kv.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows, tokens and logits are written as they lie in memory");

static const uint8_t magic[8] = {'R', 'A', 'M', 'E', 'T', 'S', 'N', 'P'};

enum {
    FLAG_ENCRYPTED = 1,
    TAG_CRITICAL = 0x8000, /* a reader that does not know this tag must refuse the file */
    FIELD_PREFIX_BYTES = 8,
    RESERVED_OFF = 96, /* to the number of fields, and behind it: zero */
    N_FIELDS_OFF = 104,
};

typedef enum field_kind { TEXT, BYTES, U32, U64 } field_kind;

typedef struct field {
    uint16_t tag;
    field_kind kind;
    size_t off, size; /* of the member; TEXT keeps one byte of it for the NUL */
    uint32_t since;   /* the first version that has it */
    const char *name;
} field;

#define FIELD_SINCE(since, tag, kind, member)                                                                          \
    { tag, kind, offsetof(ramet_snapshot_header, member), sizeof((ramet_snapshot_header *)0)->member, since, #member }
#define FIELD(tag, kind, member) FIELD_SINCE(1, tag, kind, member)

/* Ascending tags: the order in the file. */
static const field fields[] = {
    FIELD(0x0001, TEXT, model_name),
    FIELD(0x0002, TEXT, arch),
    FIELD(0x0003, TEXT, owner),
    FIELD(0x0004, TEXT, marking),
    FIELD(0x8001, TEXT, numerics_id),
    FIELD(0x8002, BYTES, weights_sha256),
    FIELD(0x8003, BYTES, tokenizer_sha256),
    FIELD(0x8004, U32, n_layers),
    FIELD(0x8005, U32, n_kv_heads),
    FIELD(0x8006, U32, head_dim),
    FIELD(0x8007, U32, n_vocab),
    FIELD(0x8008, U32, kv),
    FIELD(0x8009, U32, payload),
    FIELD(0x800a, U32, n_tokens),
    FIELD(0x800b, U32, has_logits),
    FIELD(0x800c, U64, section_bytes),
    FIELD_SINCE(2, 0x800d, U64, generation),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* ---- sizes ---- */

/* Sets row_bytes; false when the fields are out of range. */
static bool derive_row(ramet_snapshot_header *h) {
    ramet_kv_layout layout;
    if (h->payload > RAMET_KV_Q8 || h->kv > RAMET_KV_Q8 || h->n_vocab == 0 || h->n_vocab > INT32_MAX ||
        h->has_logits > 1)
        return false;
    if (h->has_logits && h->n_tokens == 0) return false;
    if (!ramet_kv_layout_init(&layout, (int)h->payload, h->n_layers, h->n_kv_heads, h->head_dim, 64)) return false;
    h->row_bytes = layout.row_bytes;
    return true;
}

/* Sets body_bytes and n_chunks, and *out_total to the length of the whole file; false on overflow. */
static bool derive_total(ramet_snapshot_header *h, uint64_t *out_total) {
    h->body_bytes = 0;
    for (size_t i = 0; i < RAMET_SECTION_COUNT; i++)
        if (!ramet_add_u64(h->body_bytes, h->section_bytes[i], &h->body_bytes)) return false;
    uint64_t end, hashes;
    if (!ramet_add_u64(h->body_bytes, h->header_bytes, &end)) return false;
    h->n_chunks = h->body_bytes ? ramet_snapshot_chunk_of(h, h->body_bytes - 1) + 1 : 0;
    return ramet_mul_u64(h->n_chunks, RAMET_SNAPSHOT_HASH_BYTES, &hashes) && ramet_add_u64(hashes, end, out_total);
}

static bool sections_agree(const ramet_snapshot_header *h) {
    uint64_t positions;
    return h->section_bytes[RAMET_SECTION_TOKENS] == (uint64_t)h->n_tokens * sizeof(int32_t) &&
           h->section_bytes[RAMET_SECTION_LOGITS] == (h->has_logits ? (uint64_t)h->n_vocab * sizeof(float) : 0) &&
           h->section_bytes[RAMET_SECTION_SAMPLER] <= RAMET_SNAPSHOT_SAMPLER_MAX &&
           ramet_mul_u64(h->n_tokens, h->row_bytes, &positions) &&
           h->section_bytes[RAMET_SECTION_POSITIONS] == positions;
}

/* ---- encode ---- */

static size_t value_bytes(const field *f, const uint8_t *member) {
    return f->kind == TEXT ? strlen((const char *)member) : f->size;
}

static size_t put_field(uint8_t *out, const field *f, const uint8_t *member) {
    size_t bytes = value_bytes(f, member);
    ramet_put_le(out, f->tag, 2);
    ramet_put_le(out + 2, 0, 2);
    ramet_put_le(out + 4, bytes, 4);
    out += FIELD_PREFIX_BYTES;
    switch (f->kind) {
    case TEXT:
    case BYTES: memcpy(out, member, bytes); break;
    case U32: ramet_put_le(out, *(const uint32_t *)(const void *)member, 4); break;
    case U64:
        for (size_t i = 0; i < bytes; i += 8) ramet_put_le(out + i, ((const uint64_t *)(const void *)member)[i / 8], 8);
        break;
    }
    return FIELD_PREFIX_BYTES + bytes;
}

ramet_status ramet_snapshot_header_measure(ramet_snapshot_header *h, ramet_error *error) {
    size_t bytes = RAMET_SNAPSHOT_PREAMBLE_BYTES + RAMET_SNAPSHOT_HASH_BYTES;
    h->version = RAMET_SNAPSHOT_VERSION;
    h->flags = h->is_encrypted ? FLAG_ENCRYPTED : 0;
    h->chunk_bytes = RAMET_SNAPSHOT_CHUNK_BYTES;
    if (!derive_row(h)) return ramet_fail(error, RAMET_E_ARGUMENT, "this context cannot be a snapshot");
    h->section_bytes[RAMET_SECTION_TOKENS] = (uint64_t)h->n_tokens * sizeof(int32_t);
    h->section_bytes[RAMET_SECTION_LOGITS] = h->has_logits ? (uint64_t)h->n_vocab * sizeof(float) : 0;
    if (!ramet_mul_u64(h->n_tokens, h->row_bytes, &h->section_bytes[RAMET_SECTION_POSITIONS]))
        return ramet_fail(error, RAMET_E_ARGUMENT, "this context is too large for a snapshot");
    for (size_t i = 0; i < N_FIELDS; i++)
        bytes += FIELD_PREFIX_BYTES + value_bytes(&fields[i], (const uint8_t *)h + fields[i].off);
    RAMET_ASSERT(bytes <= RAMET_SNAPSHOT_WRITTEN_MAX, "snapshot header of %zu bytes", bytes);
    h->header_bytes = (uint32_t)bytes;
    if (!derive_total(h, &h->file_bytes))
        return ramet_fail(error, RAMET_E_ARGUMENT, "this context is too large for a snapshot");
    return RAMET_OK;
}

ramet_status ramet_snapshot_header_encode(ramet_snapshot_header *h, uint8_t out[RAMET_SNAPSHOT_WRITTEN_MAX],
                                          ramet_error *error) {
    RAMET_TRY(ramet_snapshot_header_measure(h, error));
    memset(out, 0, RAMET_SNAPSHOT_WRITTEN_MAX);
    size_t at = RAMET_SNAPSHOT_PREAMBLE_BYTES;
    for (size_t i = 0; i < N_FIELDS; i++) at += put_field(out + at, &fields[i], (const uint8_t *)h + fields[i].off);
    memcpy(out, magic, sizeof magic);
    ramet_put_le(out + 8, h->version, 4);
    ramet_put_le(out + 12, h->header_bytes, 4);
    ramet_put_le(out + 16, h->flags, 4);
    ramet_put_le(out + 20, h->chunk_bytes, 4);
    ramet_put_le(out + 24, h->file_bytes, 8);
    memcpy(out + RAMET_SNAPSHOT_SALT_OFF, h->salt, sizeof h->salt);
    memcpy(out + RAMET_SNAPSHOT_COMMITMENT_OFF, h->commitment, sizeof h->commitment);
    ramet_put_le(out + N_FIELDS_OFF, N_FIELDS, 4);
    ramet_xxh128(out, at, h->hash);
    memcpy(out + at, h->hash, sizeof h->hash);
    return RAMET_OK;
}

/* ---- decode ---- */

ramet_status ramet_snapshot_preamble_decode(const uint8_t preamble[RAMET_SNAPSHOT_PREAMBLE_BYTES], uint64_t file_bytes,
                                            ramet_snapshot_header *out, ramet_error *error) {
    *out = (ramet_snapshot_header){0};
    if (memcmp(preamble, magic, sizeof magic) != 0) return ramet_fail(error, RAMET_E_CORRUPT, "not a ramet snapshot");
    out->version = (uint32_t)ramet_get_le(preamble + 8, 4);
    if (out->version < RAMET_SNAPSHOT_OLDEST || out->version > RAMET_SNAPSHOT_VERSION)
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "snapshot format version %u; this build reads versions %d to %d",
                          out->version, RAMET_SNAPSHOT_OLDEST, RAMET_SNAPSHOT_VERSION);
    out->header_bytes = (uint32_t)ramet_get_le(preamble + 12, 4);
    out->flags = (uint32_t)ramet_get_le(preamble + 16, 4);
    out->chunk_bytes = (uint32_t)ramet_get_le(preamble + 20, 4);
    out->file_bytes = ramet_get_le(preamble + 24, 8);
    if (out->file_bytes != file_bytes)
        return ramet_fail(error, RAMET_E_CORRUPT, "the file has %llu bytes, its header says %llu",
                          (unsigned long long)file_bytes, (unsigned long long)out->file_bytes);
    if (out->header_bytes < RAMET_SNAPSHOT_PREAMBLE_BYTES + RAMET_SNAPSHOT_HASH_BYTES ||
        out->header_bytes > RAMET_SNAPSHOT_HEADER_MAX || out->header_bytes > file_bytes)
        return ramet_fail(error, RAMET_E_CORRUPT, "header of %u bytes", out->header_bytes);
    return RAMET_OK;
}

static const field *find_field(uint32_t tag, uint32_t version) {
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].tag == tag && fields[i].since <= version) return &fields[i];
    return NULL;
}

static size_t count_fields(uint32_t version) {
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++) n += fields[i].since <= version;
    return n;
}

static ramet_status get_field(const field *f, const uint8_t *value, size_t bytes, uint8_t *member, ramet_error *error) {
    bool fits = f->kind == TEXT ? bytes < f->size && !memchr(value, 0, bytes) : bytes == f->size;
    if (!fits) return ramet_fail(error, RAMET_E_CORRUPT, "header field %s has %zu bytes", f->name, bytes);
    switch (f->kind) {
    case TEXT: /* the member is zero: the NUL is there */
    case BYTES: memcpy(member, value, bytes); break;
    case U32: *(uint32_t *)(void *)member = (uint32_t)ramet_get_le(value, 4); break;
    case U64:
        for (size_t i = 0; i < bytes; i += 8) ((uint64_t *)(void *)member)[i / 8] = ramet_get_le(value + i, 8);
        break;
    }
    return RAMET_OK;
}

/* Tags ascend strictly, so that no field is there twice and one content has one encoding. */
static ramet_status decode_fields(const uint8_t *data, size_t end, ramet_snapshot_header *out, ramet_error *error) {
    uint64_t n_fields = ramet_get_le(data + N_FIELDS_OFF, 4);
    size_t at = RAMET_SNAPSHOT_PREAMBLE_BYTES, n_known = 0;
    uint32_t last_tag = 0;
    for (uint64_t i = 0; i < n_fields; i++) {
        if (end - at < FIELD_PREFIX_BYTES) return ramet_fail(error, RAMET_E_CORRUPT, "the header ends inside a field");
        uint32_t tag = (uint32_t)ramet_get_le(data + at, 2), reserved = (uint32_t)ramet_get_le(data + at + 2, 2);
        uint64_t bytes = ramet_get_le(data + at + 4, 4);
        at += FIELD_PREFIX_BYTES;
        if (bytes > end - at || reserved != 0 || tag <= last_tag)
            return ramet_fail(error, RAMET_E_CORRUPT, "header field 0x%04x is malformed", tag);
        const field *f = find_field(tag, out->version);
        if (!f && (tag & TAG_CRITICAL))
            return ramet_fail(error, RAMET_E_UNSUPPORTED, "header field 0x%04x is not known to this build", tag);
        if (f) RAMET_TRY(get_field(f, data + at, (size_t)bytes, (uint8_t *)out + f->off, error));
        n_known += f != NULL;
        last_tag = tag;
        at += (size_t)bytes;
    }
    if (at != end || n_known != count_fields(out->version))
        return ramet_fail(error, RAMET_E_CORRUPT, "the header lacks fields or has bytes left over");
    return RAMET_OK;
}

static bool is_zero(const uint8_t *data, size_t from, size_t to) {
    uint8_t any = 0;
    for (size_t i = from; i < to; i++) any |= data[i];
    return any == 0;
}

/* Version 1 has no encrypted form. */
static ramet_status take_flags(const uint8_t *data, ramet_snapshot_header *out, ramet_error *error) {
    uint32_t known = out->version >= 2 ? FLAG_ENCRYPTED : 0;
    if (out->flags & ~known)
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "snapshot flags 0x%x are not known to this build", out->flags);
    out->is_encrypted = (out->flags & FLAG_ENCRYPTED) != 0;
    memcpy(out->salt, data + RAMET_SNAPSHOT_SALT_OFF, sizeof out->salt);
    memcpy(out->commitment, data + RAMET_SNAPSHOT_COMMITMENT_OFF, sizeof out->commitment);
    if (!is_zero(data, out->is_encrypted ? RESERVED_OFF : RAMET_SNAPSHOT_SALT_OFF, N_FIELDS_OFF) ||
        !is_zero(data, N_FIELDS_OFF + 4, RAMET_SNAPSHOT_PREAMBLE_BYTES))
        return ramet_fail(error, RAMET_E_CORRUPT, "reserved header bytes are not zero");
    return RAMET_OK;
}

ramet_status ramet_snapshot_header_decode(const uint8_t *data, size_t bytes, uint64_t file_bytes,
                                          ramet_snapshot_header *out, ramet_error *error) {
    RAMET_TRY(ramet_snapshot_preamble_decode(data, file_bytes, out, error));
    RAMET_ASSERT(bytes == out->header_bytes, "header of %u bytes decoded from %zu", out->header_bytes, bytes);
    size_t end = bytes - RAMET_SNAPSHOT_HASH_BYTES;
    ramet_xxh128(data, end, out->hash);
    if (memcmp(out->hash, data + end, sizeof out->hash) != 0)
        return ramet_fail(error, RAMET_E_CORRUPT, "header checksum does not match");
    RAMET_TRY(take_flags(data, out, error));
    if (out->chunk_bytes < RAMET_SNAPSHOT_CHUNK_MIN || out->chunk_bytes > RAMET_SNAPSHOT_CHUNK_MAX)
        return ramet_fail(error, RAMET_E_CORRUPT, "chunks of %u bytes", out->chunk_bytes);
    RAMET_TRY(decode_fields(data, end, out, error));
    if (out->payload > RAMET_KV_Q8 || out->kv > RAMET_KV_Q8)
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "KV precision %u, payload precision %u", out->kv, out->payload);
    uint64_t total;
    if (!derive_row(out) || !sections_agree(out) || !derive_total(out, &total) || total != file_bytes)
        return ramet_fail(error, RAMET_E_CORRUPT, "header sizes disagree");
    if (out->section_bytes[RAMET_SECTION_RECURRENT] != 0)
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "the snapshot has recurrent state; this build reads none");
    if (out->payload < out->kv)
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "%s rows of a cache of %s, which has no more to say",
                          ramet_kv_name((ramet_kv)out->payload), ramet_kv_name((ramet_kv)out->kv));
    return RAMET_OK;
}

/* ---- what is in it ---- */

ramet_chunk ramet_snapshot_chunk(const ramet_snapshot_header *h, uint64_t index) {
    uint64_t from = index ? index * h->chunk_bytes - h->header_bytes : 0;
    uint64_t to = (index + 1) * h->chunk_bytes - h->header_bytes;
    if (to > h->body_bytes) to = h->body_bytes;
    return (ramet_chunk){.off = from, .bytes = (size_t)(to - from)};
}

uint64_t ramet_snapshot_section_off(const ramet_snapshot_header *h, ramet_section section) {
    uint64_t off = 0;
    for (size_t i = 0; i < (size_t)section; i++) off += h->section_bytes[i];
    return off;
}

void ramet_snapshot_header_info(const ramet_snapshot_header *h, ramet_snapshot_info *out) {
    *out = (ramet_snapshot_info){
        .format_version = h->version,
        .kv = (ramet_kv)h->kv,
        .payload = (ramet_kv)h->payload,
        .n_tokens = h->n_tokens,
        .n_layers = h->n_layers,
        .n_kv_heads = h->n_kv_heads,
        .head_dim = h->head_dim,
        .n_vocab = h->n_vocab,
        .has_logits = h->has_logits != 0,
        .encrypted = h->is_encrypted,
        .generation = h->generation,
        .file_bytes = h->file_bytes,
        .header_bytes = h->header_bytes,
        .payload_bytes = h->section_bytes[RAMET_SECTION_POSITIONS],
    };
    memcpy(out->model_name, h->model_name, sizeof out->model_name);
    memcpy(out->arch, h->arch, sizeof out->arch);
    memcpy(out->owner, h->owner, sizeof out->owner);
    memcpy(out->marking, h->marking, sizeof out->marking);
    memcpy(out->numerics_id, h->numerics_id, sizeof out->numerics_id);
    ramet_hex(h->weights_sha256, sizeof h->weights_sha256, out->weights_sha256);
    ramet_hex(h->tokenizer_sha256, sizeof h->tokenizer_sha256, out->tokenizer_sha256);
}
