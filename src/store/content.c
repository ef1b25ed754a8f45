/* content.c - see content.h. */
#include "store/content.h"
#include "base/hash.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Positions moved at once: as many as make a cache line of a page's K at one dimension (f32). */
enum { ROW_BUFFER_ROWS = 16 };

/* ---- rows ---- */

ramet_status ramet_row_buffer_create(const ramet_kv_layout *layout, ramet_row_buffer *out, ramet_error *error) {
    size_t n = layout->page_tokens < ROW_BUFFER_ROWS ? layout->page_tokens : ROW_BUFFER_ROWS;
    *out = (ramet_row_buffer){.memory = ramet_alloc(n, layout->row_bytes), .n_rows = (uint32_t)n};
    if (!out->memory)
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %zu rows of %zu bytes", n, layout->row_bytes);
    return RAMET_OK;
}

uint32_t ramet_row_buffer_run(const ramet_row_buffer *rows, const ramet_kv_layout *layout, uint32_t pos, uint32_t end) {
    uint32_t n = end - pos, in_page = layout->page_tokens - pos % layout->page_tokens;
    if (n > in_page) n = in_page;
    return n < rows->n_rows ? n : rows->n_rows;
}

/* ---- identity ---- */

/* The header's codes are ramet_kv's, checked when it was decoded. */
static const char *kv_name(uint32_t code) {
    return ramet_kv_name((ramet_kv)code);
}

static ramet_status check_digest(const uint8_t theirs[32], const uint8_t ours[32], const char *what, const char *path,
                                 ramet_error *error) {
    if (memcmp(theirs, ours, 32) == 0) return RAMET_OK;
    char theirs_hex[65], ours_hex[65];
    ramet_hex(theirs, 32, theirs_hex);
    ramet_hex(ours, 32, ours_hex);
    return ramet_fail(error, RAMET_E_MODEL_MISMATCH,
                      "snapshot of another model: its %s %s, this model's %s; use the model it was saved with: %s",
                      what, theirs_hex, ours_hex, path);
}

ramet_status ramet_snapshot_check_identity(const ramet_snapshot_reader *r, const ramet_snapshot_identity *identity,
                                           ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    const ramet_kv_layout *l = identity->layout;
    RAMET_TRY(check_digest(h->weights_sha256, identity->weights_sha256, "weights are", r->path, error));
    RAMET_TRY(check_digest(h->tokenizer_sha256, identity->tokenizer_sha256, "tokenizer is", r->path, error));
    if (h->n_layers != l->n_layers || h->n_kv_heads != l->n_kv_heads || h->head_dim != l->head_dim ||
        h->n_vocab != identity->n_vocab)
        return ramet_fail(error, RAMET_E_MODEL_MISMATCH,
                          "%s is of %u layers, %u KV heads of %u, %u tokens; this model has %u, %u of %u, %u", r->path,
                          h->n_layers, h->n_kv_heads, h->head_dim, h->n_vocab, l->n_layers, l->n_kv_heads, l->head_dim,
                          identity->n_vocab);
    if (strcmp(h->numerics_id, identity->numerics_id) != 0)
        return ramet_fail(
            error, RAMET_E_NUMERICS_MISMATCH,
            "%s was made under numerics %s, this build makes %s; prefill again, or use the build that saved it",
            r->path, h->numerics_id, identity->numerics_id);
    if ((int)h->kv != l->precision)
        return ramet_fail(error, RAMET_E_MODEL_MISMATCH, "%s was saved with --kv %s; start with --kv %s", r->path,
                          kv_name(h->kv), kv_name(h->kv));
    if (h->payload != h->kv)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "%s holds %s rows of a cache with --kv %s; this build reads equal ones", r->path,
                          kv_name(h->payload), kv_name(h->kv));
    return RAMET_OK;
}

/* ---- content ---- */

ramet_status ramet_snapshot_load_tokens(ramet_snapshot_reader *r, int32_t **out, ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    *out = ramet_alloc(h->n_tokens, sizeof(int32_t));
    if (!*out) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the %u tokens of %s", h->n_tokens, r->path);
    ramet_status status = ramet_body_read(r, *out, h->section_bytes[RAMET_SECTION_TOKENS], error);
    for (uint32_t i = 0; status == RAMET_OK && i < h->n_tokens; i++)
        if ((uint32_t)(*out)[i] >= h->n_vocab)
            status = ramet_fail(error, RAMET_E_CORRUPT, "%s: token %d at %u is outside the vocabulary", r->path,
                                (*out)[i], i);
    if (status != RAMET_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

/* A whole section in fresh memory; NULL for an empty one. */
static ramet_status load_section(ramet_snapshot_reader *r, ramet_section section, void **out, ramet_error *error) {
    uint64_t bytes = r->header.section_bytes[section];
    *out = NULL;
    if (bytes == 0) return RAMET_OK;
    *out = ramet_alloc((size_t)bytes, 1);
    if (!*out) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to read %s", r->path);
    return ramet_body_read(r, *out, bytes, error);
}

ramet_status ramet_snapshot_load(ramet_snapshot_reader *r, ramet_snapshot_content *out, ramet_error *error) {
    *out = (ramet_snapshot_content){0};
    void *logits = NULL;
    ramet_status status = ramet_snapshot_load_tokens(r, &out->tokens, error);
    if (status == RAMET_OK) status = load_section(r, RAMET_SECTION_LOGITS, &logits, error);
    out->logits = logits;
    if (status == RAMET_OK) status = load_section(r, RAMET_SECTION_SAMPLER, &out->sampler, error);
    if (status == RAMET_OK) status = ramet_body_read(r, NULL, r->header.section_bytes[RAMET_SECTION_RECURRENT], error);
    if (status == RAMET_OK) status = ramet_body_read(r, NULL, r->header.section_bytes[RAMET_SECTION_POSITIONS], error);
    if (status != RAMET_OK) ramet_snapshot_content_free(out);
    return status;
}

void ramet_snapshot_content_free(ramet_snapshot_content *content) {
    free(content->tokens);
    free(content->logits);
    free(content->sampler);
    *content = (ramet_snapshot_content){0};
}

/* ---- positions ---- */

ramet_status ramet_snapshot_fill(ramet_snapshot_reader *r, ramet_context *context, const ramet_kv_layout *layout,
                                 ramet_row_buffer *rows, ramet_error *error) {
    uint32_t n_tokens = r->header.n_tokens;
    RAMET_TRY(ramet_body_seek(r, ramet_snapshot_section_off(&r->header, RAMET_SECTION_POSITIONS), error));
    for (uint32_t pos = 0, n; pos < n_tokens; pos += n) {
        n = ramet_row_buffer_run(rows, layout, pos, n_tokens);
        RAMET_TRY(ramet_body_read(r, rows->memory, (uint64_t)n * layout->row_bytes, error));
        ramet_kv_import(layout, ramet_context_page_write(context, pos), pos % layout->page_tokens, n, rows->memory);
    }
    return RAMET_OK;
}
