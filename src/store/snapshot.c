/* snapshot.c - see snapshot.h: saving, restoring, and looking into a file without a model. */
#include "store/snapshot.h"
#include "base/memory.h"
#include "store/content.h"
#include "store/stream.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_BATCH = 4096 };

/* ---- saving ---- */

/* Copies at most size - 1 bytes, not ending inside a UTF-8 character. The rest of `out` is zero already. */
static void cut_text(char *out, size_t size, const char *text) {
    size_t n = text ? strlen(text) : 0;
    if (n >= size)
        for (n = size - 1; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    if (n > 0) memcpy(out, text, n);
}

static ramet_status keep_text(char *out, size_t size, const char *text, const char *what, ramet_error *error) {
    size_t n = text ? strlen(text) : 0;
    if (n >= size) return ramet_fail(error, RAMET_E_ARGUMENT, "%s of %zu bytes; at most %zu", what, n, size - 1);
    if (n > 0) memcpy(out, text, n);
    return RAMET_OK;
}

static ramet_status fill_header(ramet_context *context, const ramet_snapshot_identity *identity,
                                const ramet_snapshot_options *options, ramet_snapshot_header *h, ramet_error *error) {
    const ramet_kv_layout *l = identity->layout;
    if (l->precision < RAMET_KV_F32 || l->precision > RAMET_KV_Q8)
        return ramet_fail(error, RAMET_E_ARGUMENT, "a cache of a precision for tests has no snapshots");
    if (options->sampler_state_bytes > RAMET_SNAPSHOT_SAMPLER_MAX)
        return ramet_fail(error, RAMET_E_ARGUMENT, "sampler state of %zu bytes; at most %d",
                          options->sampler_state_bytes, RAMET_SNAPSHOT_SAMPLER_MAX);
    *h = (ramet_snapshot_header){
        .n_layers = l->n_layers,
        .n_kv_heads = l->n_kv_heads,
        .head_dim = l->head_dim,
        .n_vocab = identity->n_vocab,
        .kv = (uint32_t)l->precision,
        .payload = (uint32_t)l->precision,
        .n_tokens = ramet_context_length(context),
        .has_logits = ramet_context_peek_logits(context) != NULL,
        .section_bytes[RAMET_SECTION_SAMPLER] = options->sampler_state ? options->sampler_state_bytes : 0,
    };
    RAMET_TRY(keep_text(h->owner, sizeof h->owner, options->owner, "owner", error));
    RAMET_TRY(keep_text(h->marking, sizeof h->marking, options->marking, "marking", error));
    RAMET_TRY(keep_text(h->numerics_id, sizeof h->numerics_id, identity->numerics_id, "numerics id", error));
    cut_text(h->model_name, sizeof h->model_name, identity->model_name);
    cut_text(h->arch, sizeof h->arch, identity->arch);
    memcpy(h->weights_sha256, identity->weights_sha256, sizeof h->weights_sha256);
    memcpy(h->tokenizer_sha256, identity->tokenizer_sha256, sizeof h->tokenizer_sha256);
    return RAMET_OK;
}

static ramet_status write_tokens(ramet_body_writer *w, ramet_context *context, ramet_error *error) {
    int32_t batch[TOKEN_BATCH];
    uint32_t n_tokens = w->header->n_tokens;
    for (uint32_t from = 0, n; from < n_tokens; from += n) {
        n = n_tokens - from < TOKEN_BATCH ? n_tokens - from : TOKEN_BATCH;
        ramet_context_read_tokens(context, from, n, batch);
        for (uint32_t i = 0; i < n; i++) /* or no reader would take the file */
            RAMET_ASSERT(batch[i] >= 0 && (uint32_t)batch[i] < w->header->n_vocab, "token %d in a context", batch[i]);
        RAMET_TRY(ramet_body_write(w, batch, n * sizeof batch[0], error));
    }
    return RAMET_OK;
}

static ramet_status write_positions(ramet_body_writer *w, ramet_context *context, const ramet_kv_layout *layout,
                                    ramet_error *error) {
    ramet_row_buffer rows;
    RAMET_TRY(ramet_row_buffer_create(layout, &rows, error));
    ramet_status status = RAMET_OK;
    uint32_t n_tokens = w->header->n_tokens;
    for (uint32_t pos = 0, n; status == RAMET_OK && pos < n_tokens; pos += n) {
        n = ramet_row_buffer_run(&rows, layout, pos, n_tokens);
        ramet_kv_export(layout, ramet_context_page_read(context, pos), pos % layout->page_tokens, n, rows.memory);
        status = ramet_body_write(w, rows.memory, n * layout->row_bytes, error);
    }
    free(rows.memory);
    return status;
}

static ramet_status write_body(ramet_publisher *publisher, const ramet_snapshot_header *h, ramet_context *context,
                               const ramet_kv_layout *layout, const void *sampler, ramet_error *error) {
    ramet_body_writer w;
    RAMET_TRY(ramet_body_writer_begin(publisher, h, &w, error));
    ramet_status status = write_tokens(&w, context, error);
    if (status == RAMET_OK)
        status =
            ramet_body_write(&w, ramet_context_peek_logits(context), h->section_bytes[RAMET_SECTION_LOGITS], error);
    if (status == RAMET_OK) status = ramet_body_write(&w, sampler, h->section_bytes[RAMET_SECTION_SAMPLER], error);
    if (status == RAMET_OK) status = write_positions(&w, context, layout, error);
    if (status == RAMET_OK) ramet_body_writer_finish(&w);
    ramet_body_writer_destroy(&w);
    return status;
}

ramet_status ramet_store_save(ramet_context *context, const ramet_snapshot_identity *identity,
                              const ramet_snapshot_options *options, const char *path, ramet_snapshot_info *out_info,
                              ramet_error *error) {
    static const ramet_snapshot_options none;
    ramet_snapshot_header h;
    uint8_t head[RAMET_SNAPSHOT_WRITTEN_MAX];
    RAMET_ASSERT(!ramet_context_where(context), "snapshot of a spilled context");
    if (!options) options = &none;
    RAMET_TRY(fill_header(context, identity, options, &h, error));
    RAMET_TRY(ramet_snapshot_header_encode(&h, head, error));

    ramet_publisher publisher;
    RAMET_TRY(ramet_publish_begin(path, &publisher, error));
    ramet_status status = ramet_publish_write(&publisher, head, h.header_bytes, error);
    if (status == RAMET_OK)
        status = write_body(&publisher, &h, context, identity->layout, options->sampler_state, error);
    if (status != RAMET_OK) {
        ramet_publish_abort(&publisher);
        return status;
    }
    RAMET_TRY(ramet_publish_commit(&publisher, error));
    if (out_info) ramet_snapshot_header_info(&h, out_info);
    return RAMET_OK;
}

/* ---- restoring ---- */

/* The file is sound and ours. */
static ramet_status build_context(ramet_cache *cache, ramet_snapshot_reader *r, const ramet_snapshot_content *content,
                                  const ramet_kv_layout *layout, ramet_row_buffer *rows, ramet_context **out,
                                  ramet_error *error) {
    ramet_context *context;
    uint32_t n_tokens = r->header.n_tokens;
    RAMET_TRY(ramet_cache_context_create(cache, &context, error));
    ramet_status entered = ramet_context_enter(context, NULL);
    RAMET_ASSERT(entered == RAMET_OK, "a new context is busy");
    ramet_status status = ramet_context_writable(context, n_tokens, error);
    if (status == RAMET_OK) status = ramet_snapshot_fill(r, context, layout, rows, error);
    if (status == RAMET_OK) {
        ramet_context_commit(context, content->tokens, n_tokens);
        float *row = content->logits ? ramet_context_logits_writable(context) : NULL;
        if (row) memcpy(row, content->logits, (size_t)r->header.section_bytes[RAMET_SECTION_LOGITS]);
        if (content->logits && !row)
            status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the logits of %s", r->path);
    }
    if (status != RAMET_OK) {
        ramet_context_destroy(&context);
        return status;
    }
    ramet_context_leave(context);
    *out = context;
    return RAMET_OK;
}

static ramet_status restore_from(ramet_cache *cache, const ramet_snapshot_identity *identity, ramet_snapshot_reader *r,
                                 ramet_context **out, ramet_snapshot_content *content, ramet_error *error) {
    ramet_row_buffer rows;
    RAMET_TRY(ramet_snapshot_check_identity(r, identity, error));
    RAMET_TRY(ramet_snapshot_load(r, content, error));
    RAMET_TRY(ramet_row_buffer_create(identity->layout, &rows, error));
    ramet_status status = build_context(cache, r, content, identity->layout, &rows, out, error);
    free(rows.memory);
    return status;
}

ramet_status ramet_store_restore(ramet_cache *cache, const ramet_snapshot_identity *identity, const char *path,
                                 ramet_context **out, void **out_sampler, size_t *out_sampler_bytes,
                                 ramet_snapshot_info *out_info, ramet_error *error) {
    ramet_snapshot_reader reader;
    ramet_snapshot_content content = {0};
    *out = NULL;
    if (out_sampler) *out_sampler = NULL;
    if (out_sampler_bytes) *out_sampler_bytes = 0;
    RAMET_TRY(ramet_snapshot_reader_open(path, &reader, error));
    ramet_status status = restore_from(cache, identity, &reader, out, &content, error);
    if (status == RAMET_OK) {
        if (out_info) ramet_snapshot_header_info(&reader.header, out_info);
        if (out_sampler_bytes) *out_sampler_bytes = (size_t)reader.header.section_bytes[RAMET_SECTION_SAMPLER];
        if (out_sampler) {
            *out_sampler = content.sampler;
            content.sampler = NULL;
        }
    }
    ramet_snapshot_content_free(&content);
    ramet_snapshot_reader_close(&reader);
    return status;
}

/* ---- looking ---- */

ramet_status ramet_store_read_info(const char *path, ramet_snapshot_info *out, ramet_error *error) {
    ramet_snapshot_reader reader;
    *out = (ramet_snapshot_info){0};
    RAMET_TRY(ramet_snapshot_reader_open(path, &reader, error));
    ramet_snapshot_header_info(&reader.header, out);
    ramet_snapshot_reader_close(&reader);
    return RAMET_OK;
}

ramet_status ramet_store_verify(const char *path, ramet_error *error) {
    ramet_snapshot_reader reader;
    ramet_snapshot_content content;
    RAMET_TRY(ramet_snapshot_reader_open(path, &reader, error));
    ramet_status status = ramet_snapshot_load(&reader, &content, error);
    ramet_snapshot_content_free(&content);
    ramet_snapshot_reader_close(&reader);
    return status;
}

ramet_status ramet_store_read_tokens(const char *path, int32_t **out, uint32_t *out_n, ramet_error *error) {
    ramet_snapshot_reader reader;
    *out = NULL;
    *out_n = 0;
    RAMET_TRY(ramet_snapshot_reader_open(path, &reader, error));
    ramet_status status = ramet_snapshot_load_tokens(&reader, out, error);
    if (status == RAMET_OK) *out_n = reader.header.n_tokens;
    ramet_snapshot_reader_close(&reader);
    return status;
}
