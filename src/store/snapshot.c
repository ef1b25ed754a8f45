/* snapshot.c - see snapshot.h: saving, restoring, and looking into a file without a model. */
#include "store/snapshot.h"
#include "base/memory.h"
#include "store/content.h"
#include "store/recode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    if (options->payload > RAMET_KV_Q8)
        return ramet_fail(error, RAMET_E_ARGUMENT, "payload of precision %d", (int)options->payload);
    if (options->sampler_state_bytes > RAMET_SNAPSHOT_SAMPLER_MAX)
        return ramet_fail(error, RAMET_E_ARGUMENT, "sampler state of %zu bytes; at most %d",
                          options->sampler_state_bytes, RAMET_SNAPSHOT_SAMPLER_MAX);
    *h = (ramet_snapshot_header){
        .n_layers = l->n_layers,
        .n_kv_heads = l->n_kv_heads,
        .head_dim = l->head_dim,
        .n_vocab = identity->n_vocab,
        .kv = (uint32_t)l->precision,
        .payload = ramet_max_u32((uint32_t)l->precision, (uint32_t)options->payload),
        .n_tokens = ramet_context_length(context),
        .has_logits = ramet_context_has_logits(context),
        .generation = options->generation,
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

/* The tokens are gathered; the rest stays where it is. */
static ramet_status gather(ramet_context *context, const ramet_snapshot_header *h, const ramet_kv_layout *layout,
                           const void *sampler, ramet_snapshot_content *out, ramet_error *error) {
    RAMET_TRY(ramet_snapshot_content_create(h, 1, out, error));
    int32_t *tokens = out->sections[RAMET_SECTION_TOKENS];
    ramet_context_read_tokens(context, 0, h->n_tokens, tokens);
    for (uint32_t i = 0; i < h->n_tokens; i++) /* or no reader would take the file */
        RAMET_ASSERT(tokens[i] >= 0 && (uint32_t)tokens[i] < h->n_vocab, "token %d in a context", tokens[i]);
    out->sections[RAMET_SECTION_LOGITS] = (void *)(uintptr_t)ramet_context_peek_logits(context); /* read only */
    out->sections[RAMET_SECTION_SAMPLER] = (void *)(uintptr_t)sampler;
    out->context = context;
    out->layout = layout;
    return RAMET_OK;
}

/* The header as it will stand in the file. With a context key it is encoded twice: the commitment is made of the rest. */
static ramet_status encode_header(ramet_snapshot_header *h, const uint8_t *context_key, ramet_seal *seal,
                                  uint8_t out[RAMET_SNAPSHOT_WRITTEN_MAX], ramet_error *error) {
    h->is_encrypted = context_key != NULL;
    if (context_key) RAMET_TRY(ramet_random(h->salt, sizeof h->salt, error));
    RAMET_TRY(ramet_snapshot_header_encode(h, out, error));
    if (!context_key) return RAMET_OK;
    RAMET_TRY(ramet_seal_init(seal, context_key, out, h->header_bytes, error));
    memcpy(h->commitment, seal->commitment, sizeof h->commitment);
    return ramet_snapshot_header_encode(h, out, error);
}

static ramet_status write_file(const ramet_snapshot_header *h, const uint8_t *head, const ramet_seal *seal,
                               const ramet_snapshot_target *target, const ramet_store_crew *crew,
                               ramet_body_place place, ramet_body_move move, void *user, ramet_error *error) {
    ramet_publisher publisher;
    RAMET_TRY(ramet_publish_begin(target->path, &publisher, error));
    publisher.skip_sync = target->skip_sync;
    ramet_status status = target->is_private ? ramet_publish_restrict(&publisher, error) : RAMET_OK;
    if (status == RAMET_OK) status = ramet_body_write(&publisher, h, head, seal, crew, place, move, user, error);
    if (status != RAMET_OK) {
        ramet_publish_abort(&publisher);
        return status;
    }
    return ramet_publish_commit(&publisher, error);
}

ramet_status ramet_snapshot_publish(ramet_snapshot_header *h, const uint8_t *context_key,
                                    const ramet_snapshot_target *target, const ramet_store_crew *crew,
                                    ramet_body_place place, ramet_body_move move, void *user, ramet_error *error) {
    ramet_seal seal = {0};
    uint8_t head[RAMET_SNAPSHOT_WRITTEN_MAX];
    ramet_status status = encode_header(h, context_key, &seal, head, error);
    if (status == RAMET_OK)
        status = write_file(h, head, context_key ? &seal : NULL, target, crew, place, move, user, error);
    ramet_seal_wipe(&seal);
    return status;
}

/* The content has the rows as the cache has them; the file gets them at the precision of `h`. */
static ramet_status publish(ramet_snapshot_header *h, ramet_snapshot_content *content, const uint8_t *context_key,
                            const ramet_snapshot_target *target, const ramet_store_crew *crew, ramet_error *error) {
    if (h->payload == h->kv)
        return ramet_snapshot_publish(h, context_key, target, crew, ramet_snapshot_place, ramet_snapshot_export,
                                      content, error);
    ramet_recoder recoder = ramet_recoder_of(content->header, h, ramet_snapshot_export, content);
    return ramet_snapshot_publish(h, context_key, target, crew, NULL, ramet_recode, &recoder, error);
}

ramet_status ramet_store_save(ramet_context *context, const ramet_snapshot_identity *identity,
                              const ramet_snapshot_options *options, const uint8_t *context_key, const char *path,
                              const ramet_store_crew *crew, ramet_snapshot_info *out_info, ramet_error *error) {
    static const ramet_snapshot_options none;
    ramet_snapshot_header h, in_cache;
    ramet_snapshot_content content;
    if (!options) options = &none;
    RAMET_TRY(fill_header(context, identity, options, &h, error));
    if (ramet_context_is_lossy(context) && h.payload == h.kv)
        return ramet_fail(
            error, RAMET_E_UNSUPPORTED,
            "the context comes from a lossy snapshot, and a file of %s rows would not say so: save it with a "
            "narrower payload, or run its tokens",
            ramet_kv_name((ramet_kv)h.kv));
    in_cache = h;
    in_cache.payload = h.kv;
    RAMET_TRY(ramet_snapshot_header_measure(&in_cache, error));
    RAMET_TRY(gather(context, &in_cache, identity->layout, options->sampler_state, &content, error));
    ramet_snapshot_target target = {.path = path, .skip_sync = options->skip_sync};
    ramet_status status = publish(&h, &content, context_key, &target, crew, error);
    ramet_snapshot_content_free(&content);
    if (status == RAMET_OK && out_info) ramet_snapshot_header_info(&h, out_info);
    return status;
}

/* ---- restoring ---- */

/* Without a policy: plain files of the current format. */
static const ramet_snapshot_policy *demand(const ramet_snapshot_policy *policy) {
    static const ramet_snapshot_policy plain;
    return policy ? policy : &plain;
}

/* Nobody sees the context before all of the file is in it and sound. */
static ramet_status fill_context(ramet_context *context, const ramet_snapshot_reader *r, const ramet_kv_layout *layout,
                                 const ramet_store_crew *crew, ramet_snapshot_content *content, ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    RAMET_TRY(ramet_context_use(context, error));
    RAMET_TRY(ramet_context_writable(context, h->n_tokens, error));
    if (h->has_logits) RAMET_TRY(ramet_context_reserve_tail(context, error));
    RAMET_TRY(ramet_snapshot_load_pages(r, context, layout, crew, content, error));
    ramet_context_commit(context, content->sections[RAMET_SECTION_TOKENS], h->n_tokens);
    if (h->payload != h->kv) ramet_context_mark_lossy(context);
    if (!h->has_logits) return RAMET_OK;
    float *row = ramet_context_logits_writable(context);
    RAMET_ASSERT(row, "a reserved row of logits is gone");
    memcpy(row, content->sections[RAMET_SECTION_LOGITS], (size_t)h->section_bytes[RAMET_SECTION_LOGITS]);
    return RAMET_OK;
}

static ramet_status restore_from(ramet_cache *cache, const ramet_snapshot_identity *identity,
                                 const ramet_snapshot_reader *r, const ramet_store_crew *crew, ramet_context **out,
                                 ramet_snapshot_content *content, ramet_error *error) {
    ramet_context *context;
    RAMET_TRY(ramet_snapshot_check_identity(r, identity, error));
    RAMET_TRY(ramet_snapshot_check_before_evicting(r, cache, crew, error));
    RAMET_TRY(ramet_snapshot_content_create(&r->header, RAMET_SECTION_POSITIONS, content, error));
    RAMET_TRY(ramet_cache_context_create(cache, &context, error));
    ramet_status entered = ramet_context_enter(context, NULL);
    RAMET_ASSERT(entered == RAMET_OK, "a new context is busy");
    ramet_status status = fill_context(context, r, identity->layout, crew, content, error);
    if (status != RAMET_OK) {
        ramet_context_destroy(&context);
        return status;
    }
    ramet_context_leave(context);
    *out = context;
    return RAMET_OK;
}

ramet_status ramet_store_restore(ramet_cache *cache, const ramet_snapshot_identity *identity,
                                 const ramet_snapshot_policy *policy, const char *path, const ramet_store_crew *crew,
                                 ramet_context **out, void **out_sampler, size_t *out_sampler_bytes,
                                 ramet_snapshot_info *out_info, ramet_error *error) {
    ramet_snapshot_reader reader;
    ramet_snapshot_content content = {0};
    *out = NULL;
    if (out_sampler) *out_sampler = NULL;
    if (out_sampler_bytes) *out_sampler_bytes = 0;
    RAMET_TRY(ramet_snapshot_reader_open(path, demand(policy), &reader, error));
    ramet_status status = restore_from(cache, identity, &reader, crew, out, &content, error);
    if (status == RAMET_OK) {
        if (out_info) ramet_snapshot_header_info(&reader.header, out_info);
        if (out_sampler_bytes) *out_sampler_bytes = (size_t)reader.header.section_bytes[RAMET_SECTION_SAMPLER];
        if (out_sampler) {
            *out_sampler = content.sections[RAMET_SECTION_SAMPLER];
            content.sections[RAMET_SECTION_SAMPLER] = NULL;
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
    RAMET_TRY(ramet_snapshot_reader_open(path, NULL, &reader, error));
    ramet_snapshot_header_info(&reader.header, out);
    ramet_snapshot_reader_close(&reader);
    return RAMET_OK;
}

ramet_status ramet_store_verify(const char *path, const ramet_snapshot_policy *policy, ramet_error *error) {
    ramet_snapshot_reader reader;
    RAMET_TRY(ramet_snapshot_reader_open(path, demand(policy), &reader, error));
    ramet_status status = ramet_snapshot_check(&reader, NULL, error);
    ramet_snapshot_reader_close(&reader);
    return status;
}

/* An empty context has no memory of tokens; the caller gets a pointer to free all the same. */
static ramet_status take_tokens(const ramet_snapshot_reader *r, ramet_snapshot_content *content, int32_t **out,
                                ramet_error *error) {
    RAMET_TRY(ramet_snapshot_content_create(&r->header, 1, content, error));
    RAMET_TRY(ramet_snapshot_load(r, RAMET_SECTION_TOKENS, NULL, content, error));
    *out = content->sections[RAMET_SECTION_TOKENS];
    content->sections[RAMET_SECTION_TOKENS] = NULL;
    if (!*out) *out = ramet_alloc(0, 1);
    return *out ? RAMET_OK : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for no tokens");
}

ramet_status ramet_store_read_tokens(const char *path, const ramet_snapshot_policy *policy, int32_t **out,
                                     uint32_t *out_n, ramet_error *error) {
    ramet_snapshot_reader reader;
    ramet_snapshot_content content = {0};
    *out = NULL;
    *out_n = 0;
    RAMET_TRY(ramet_snapshot_reader_open(path, demand(policy), &reader, error));
    ramet_status status = take_tokens(&reader, &content, out, error);
    if (status == RAMET_OK) *out_n = reader.header.n_tokens;
    ramet_snapshot_content_free(&content);
    ramet_snapshot_reader_close(&reader);
    return status;
}
