/* content.c - see content.h. */
#include "store/content.h"
#include "base/hash.h"
#include "base/memory.h"
#include "store/recode.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

ramet_status ramet_snapshot_content_create(const ramet_snapshot_header *header, size_t n_sections,
                                           ramet_snapshot_content *out, ramet_error *error) {
    *out = (ramet_snapshot_content){.header = header, .n_owned = n_sections};
    for (size_t i = 0; i < n_sections; i++) {
        uint64_t bytes = header->section_bytes[i];
        if (bytes == 0) continue;
        out->sections[i] = ramet_alloc((size_t)bytes, 1);
        if (out->sections[i]) continue;
        ramet_snapshot_content_free(out);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %llu bytes of a snapshot",
                          (unsigned long long)bytes);
    }
    return RAMET_OK;
}

void ramet_snapshot_content_free(ramet_snapshot_content *content) {
    for (size_t i = 0; i < content->n_owned; i++) free(content->sections[i]);
    *content = (ramet_snapshot_content){0};
}

/* ---- moving ---- */

/* Bytes [from, from + n) of the tile that begins at position `pos`, page by page. */
static void move_tile(const ramet_snapshot_content *c, uint32_t pos, uint32_t tile_tokens, size_t from, size_t n,
                      uint8_t *bytes, bool is_export) {
    const ramet_kv_layout *l = c->layout;
    for (uint32_t first = 0, run; first < tile_tokens; first += run) {
        uint32_t slot = (pos + first) % l->page_tokens;
        run = tile_tokens - first < l->page_tokens - slot ? tile_tokens - first : l->page_tokens - slot;
        ramet_kv_span span = {.tile_tokens = tile_tokens, .first = first, .slot = slot, .n = run};
        if (is_export)
            ramet_kv_export_tile(l, ramet_context_page_read(c->context, pos + first), span, from, from + n, bytes);
        else
            ramet_kv_import_tile(l, ramet_context_page_own(c->context, pos + first), span, from, from + n, bytes);
    }
}

static void move_positions(const ramet_snapshot_content *c, uint64_t off, uint64_t n, uint8_t *bytes, bool is_export) {
    uint64_t row_bytes = c->header->row_bytes, tile_bytes = RAMET_TILE_TOKENS * row_bytes;
    while (n > 0) {
        uint32_t pos = (uint32_t)(off / tile_bytes) * RAMET_TILE_TOKENS, left = c->header->n_tokens - pos;
        uint32_t tile_tokens = left < RAMET_TILE_TOKENS ? left : RAMET_TILE_TOKENS;
        uint64_t from = off % tile_bytes, run = tile_tokens * row_bytes - from;
        if (run > n) run = n;
        move_tile(c, pos, tile_tokens, (size_t)from, (size_t)run, bytes, is_export);
        off += run;
        n -= run;
        bytes += run;
    }
}

static void move(const ramet_snapshot_content *c, uint64_t off, size_t n, uint8_t *bytes, bool is_export) {
    uint64_t begin = 0, end = off + n;
    for (size_t i = 0; i < RAMET_SECTION_COUNT; begin += c->header->section_bytes[i++]) {
        uint64_t from = off > begin ? off : begin, to = begin + c->header->section_bytes[i];
        if (to > end) to = end;
        if (from >= to) continue;
        uint8_t *in_body = bytes + (from - off);
        if (i == RAMET_SECTION_POSITIONS) {
            if (c->context) move_positions(c, from - begin, to - from, in_body, is_export);
        } else if (c->sections[i]) {
            uint8_t *in_section = (uint8_t *)c->sections[i] + (from - begin);
            memcpy(is_export ? in_body : in_section, is_export ? in_section : in_body, (size_t)(to - from));
        }
    }
}

ramet_status ramet_snapshot_export(void *content, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error) {
    (void)error;
    move(content, off, n, bytes, true);
    return RAMET_OK;
}

ramet_status ramet_snapshot_import(void *content, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error) {
    (void)error;
    move(content, off, n, bytes, false);
    return RAMET_OK;
}

uint8_t *ramet_snapshot_place(void *content, uint64_t off, size_t n) {
    const ramet_snapshot_content *c = content;
    uint64_t begin = ramet_snapshot_section_off(c->header, RAMET_SECTION_POSITIONS);
    if (!c->context || c->layout->page_tokens != RAMET_TILE_TOKENS || off < begin) return NULL;
    uint64_t tile_bytes = c->layout->page_bytes, tile = (off - begin) / tile_bytes, from = (off - begin) % tile_bytes;
    bool is_full = (tile + 1) * RAMET_TILE_TOKENS <= c->header->n_tokens;
    if (!is_full || n > tile_bytes - from) return NULL;
    const uint8_t *page = ramet_context_page_read(c->context, (uint32_t)tile * RAMET_TILE_TOKENS);
    return (uint8_t *)(uintptr_t)page + from; /* written by a load alone, which has been given the page to write */
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

/* Rows of a narrower precision than the cache's lead to other bits, in a cache of either precision: the one law. */
static ramet_status check_precision(const ramet_snapshot_reader *r, int precision, ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    bool is_of_rows = (int)h->payload == precision && r->allow_lossy;
    if ((int)h->kv != precision && !is_of_rows)
        return ramet_fail(error, RAMET_E_MODEL_MISMATCH, "%s was saved with --kv %s; start with --kv %s", r->path,
                          kv_name(h->kv), kv_name(h->kv));
    if (h->payload != h->kv && !r->allow_lossy)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "%s has %s rows of a cache with --kv %s: what follows would not be the same bits; "
                          "restore it with --allow-lossy-payload, or prefill again",
                          r->path, kv_name(h->payload), kv_name(h->kv));
    return RAMET_OK;
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
    return check_precision(r, l->precision, error);
}

/* ---- loading ---- */

static ramet_status check_tokens(const ramet_snapshot_reader *r, const int32_t *tokens, ramet_error *error) {
    for (uint32_t i = 0; i < r->header.n_tokens; i++)
        if ((uint32_t)tokens[i] >= r->header.n_vocab)
            return ramet_fail(error, RAMET_E_CORRUPT, "%s: token %d at %u is outside the vocabulary", r->path,
                              tokens[i], i);
    return RAMET_OK;
}

ramet_status ramet_snapshot_load(const ramet_snapshot_reader *r, ramet_section last, const ramet_store_crew *crew,
                                 ramet_snapshot_content *content, ramet_error *error) {
    uint64_t end = ramet_snapshot_section_off(&r->header, last) + r->header.section_bytes[last];
    RAMET_TRY(ramet_body_read(r, 0, end, crew, ramet_snapshot_place, ramet_snapshot_import, content, error));
    return check_tokens(r, content->sections[RAMET_SECTION_TOKENS], error);
}

ramet_status ramet_snapshot_check(const ramet_snapshot_reader *r, const ramet_store_crew *crew, ramet_error *error) {
    ramet_snapshot_content tokens;
    RAMET_TRY(ramet_snapshot_content_create(&r->header, 1, &tokens, error));
    ramet_status status = ramet_snapshot_load(r, RAMET_SECTION_POSITIONS, crew, &tokens, error);
    ramet_snapshot_content_free(&tokens);
    return status;
}

/* ---- loading rows of another precision ---- */

/* The file as it would be with the rows of the pages' precision: its chunks are jobs, made and imported. */
typedef struct recode_run {
    ramet_recoder *recoder;
    ramet_snapshot_content *content;
    atomic_bool has_failed; /* the first to fail says why; the jobs that are left do nothing */
    ramet_status status;
    ramet_error error;
} recode_run;

static ramet_status recode_chunk(recode_run *run, uint32_t index, ramet_error *error) {
    ramet_chunk c = ramet_snapshot_chunk(run->content->header, index);
    uint8_t *bytes = ramet_alloc(c.bytes, 1);
    if (!bytes) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a chunk of %zu bytes", c.bytes);
    ramet_status status = ramet_recode(run->recoder, c.off, c.bytes, bytes, error);
    if (status == RAMET_OK) move(run->content, c.off, c.bytes, bytes, false);
    free(bytes);
    return status;
}

static void run_recode_chunk(void *user, uint32_t index, uint32_t worker) {
    recode_run *run = user;
    ramet_error error = {0};
    (void)worker;
    if (atomic_load_explicit(&run->has_failed, memory_order_relaxed)) return;
    ramet_status status = recode_chunk(run, index, &error);
    if (status == RAMET_OK || atomic_exchange(&run->has_failed, true)) return;
    run->status = status;
    run->error = error;
}

static ramet_status load_recoded(const ramet_snapshot_reader *r, const ramet_store_crew *crew,
                                 const ramet_snapshot_content *content, ramet_error *error) {
    ramet_snapshot_header in_pages = r->header;
    in_pages.payload = (uint32_t)content->layout->precision;
    RAMET_TRY(ramet_snapshot_header_measure(&in_pages, error));
    ramet_recoder recoder =
        ramet_recoder_of(&r->header, &in_pages, ramet_body_read_range, (void *)(uintptr_t)r); /* read only */
    ramet_snapshot_content at = *content;
    at.header = &in_pages;
    recode_run run = {.recoder = &recoder, .content = &at};
    if (in_pages.n_chunks > UINT32_MAX) return ramet_fail(error, RAMET_E_UNSUPPORTED, "%s is too large", r->path);
    if (crew)
        crew->run(crew->user, (uint32_t)in_pages.n_chunks, run_recode_chunk, &run);
    else
        ramet_pool_run(NULL, (uint32_t)in_pages.n_chunks, run_recode_chunk, &run);
    if (run.status != RAMET_OK && error) *error = run.error;
    RAMET_TRY(run.status);
    return check_tokens(r, content->sections[RAMET_SECTION_TOKENS], error);
}

ramet_status ramet_snapshot_load_pages(const ramet_snapshot_reader *r, ramet_context *context,
                                       const ramet_kv_layout *layout, const ramet_store_crew *crew,
                                       ramet_snapshot_content *content, ramet_error *error) {
    for (uint32_t pos = 0; pos < r->header.n_tokens; pos += layout->page_tokens)
        ramet_context_page_write(context, pos); /* vouches for what ramet_context_page_own gives to the crew */
    content->context = context;
    content->layout = layout;
    if ((int)r->header.payload != layout->precision) return load_recoded(r, crew, content, error);
    return ramet_snapshot_load(r, RAMET_SECTION_POSITIONS, crew, content, error);
}

ramet_status ramet_snapshot_check_before_evicting(const ramet_snapshot_reader *r, ramet_cache *cache,
                                                  const ramet_store_crew *crew, ramet_error *error) {
    uint32_t page_tokens = ramet_cache_get_options(cache)->page_tokens;
    uint64_t n_pages = ((uint64_t)r->header.n_tokens + page_tokens - 1) / page_tokens;
    if (ramet_cache_has_room(cache, n_pages)) return RAMET_OK;
    return ramet_snapshot_check(r, crew, error);
}
