/* recode.c - see recode.h. */
#include "store/recode.h"
#include "base/memory.h"
#include "store/content.h"

#include <stdlib.h>

static ramet_kv_layout head_page(const ramet_snapshot_header *h) {
    ramet_kv_layout l;
    uint32_t page_tokens = 1; /* no more than twice what a tile has: a small file asks for little memory */
    while (page_tokens < RAMET_TILE_TOKENS && page_tokens < h->n_tokens) page_tokens *= 2;
    bool is_valid = ramet_kv_layout_init(&l, (int)h->payload, 1, 1, h->head_dim, page_tokens);
    RAMET_ASSERT(is_valid, "a head of %u", h->head_dim);
    return l;
}

ramet_recoder ramet_recoder_of(const ramet_snapshot_header *from, const ramet_snapshot_header *to,
                               ramet_body_move source, void *user) {
    return (ramet_recoder){
        .from = from, .to = to, .source = source, .user = user, .from_page = head_page(from), .to_page = head_page(to)};
}

/* What one call works in. */
typedef struct workspace {
    uint8_t *layer;     /* of a tile, as the source has it */
    uint8_t *from, *to; /* one head of it as a page, at both precisions */
    float *k, *v;       /* one position of that */
} workspace;

static void workspace_free(workspace *w) {
    free(w->layer);
    free(w->from);
    free(w->to);
    free(w->k);
    free(w->v);
}

static ramet_status workspace_create(const ramet_recoder *r, workspace *out, ramet_error *error) {
    size_t layer_row_bytes = r->from->n_kv_heads * r->from_page.row_bytes;
    *out = (workspace){.layer = ramet_alloc(r->from_page.page_tokens, layer_row_bytes),
                       .from = ramet_alloc(1, r->from_page.page_bytes),
                       .to = ramet_alloc(1, r->to_page.page_bytes),
                       .k = ramet_alloc(r->from->head_dim, sizeof(float)),
                       .v = ramet_alloc(r->from->head_dim, sizeof(float))};
    if (out->layer && out->from && out->to && out->k && out->v) return RAMET_OK;
    workspace_free(out);
    return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to change the precision of rows of %zu bytes",
                      layer_row_bytes);
}

/* ---- one head of a layer of a tile ---- */

/* Where the head's K and V lie in that layer: in a tile of this head alone the V would follow the K. */
typedef struct head_place {
    size_t k, k_bytes, v, v_bytes;
} head_place;

static head_place place_of_head(const ramet_kv_layout *l, uint32_t n_heads, uint32_t head, uint32_t n) {
    size_t k_bytes = n * l->k_vector_bytes, v_bytes = n * l->v_vector_bytes;
    return (head_place){head * k_bytes, k_bytes, n_heads * k_bytes + head * v_bytes, v_bytes};
}

static bool overlaps(size_t off, size_t bytes, size_t begin, size_t end) {
    return off < end && off + bytes > begin;
}

/* All n positions of the head from the source's layer to a page of the other precision. */
static void recode_head(const ramet_recoder *r, const workspace *w, uint32_t head, ramet_kv_span span) {
    const ramet_kv_layout *from = &r->from_page;
    head_place at = place_of_head(from, r->from->n_kv_heads, head, span.n);
    ramet_kv_import_tile(from, w->from, span, 0, at.k_bytes, w->layer + at.k);
    ramet_kv_import_tile(from, w->from, span, at.k_bytes, at.k_bytes + at.v_bytes, w->layer + at.v);
    for (uint32_t slot = 0; slot < span.n; slot++) {
        ramet_kv_read_k(from, w->from, 0, 0, slot, 1, w->k, 1);
        ramet_kv_read_v(from, w->from, 0, 0, slot, 1, w->v);
        ramet_kv_write(&r->to_page, w->to, 0, slot, w->k, w->v);
    }
}

/* What of the head's K (`in_head` 0) or V is asked for: it lies at `off` of the layer. */
static void export_part(const ramet_recoder *r, const workspace *w, ramet_kv_span span, size_t in_head, size_t off,
                        size_t n, size_t begin, size_t end, uint8_t *bytes) {
    if (!overlaps(off, n, begin, end)) return;
    size_t from = begin > off ? begin : off, to = end < off + n ? end : off + n;
    ramet_kv_export_tile(&r->to_page, w->to, span, in_head + from - off, in_head + to - off, bytes + (from - begin));
}

/* Bytes [begin, end) of layer `layer` of the tile of n positions from `pos` on: of the heads that have some of them. */
static ramet_status recode_layer(const ramet_recoder *r, const workspace *w, uint32_t pos, uint32_t n, uint64_t layer,
                                 size_t begin, size_t end, uint8_t *bytes, ramet_error *error) {
    const ramet_kv_span all = {.tile_tokens = n, .n = n};
    const uint32_t n_heads = r->to->n_kv_heads;
    size_t layer_bytes = (size_t)n * n_heads * r->from_page.row_bytes;
    uint64_t off = ramet_snapshot_section_off(r->from, RAMET_SECTION_POSITIONS) + pos * r->from->row_bytes;
    RAMET_TRY(r->source(r->user, off + layer * layer_bytes, layer_bytes, w->layer, error));
    for (uint32_t head = 0; head < n_heads; head++) {
        head_place at = place_of_head(&r->to_page, n_heads, head, n);
        if (!overlaps(at.k, at.k_bytes, begin, end) && !overlaps(at.v, at.v_bytes, begin, end)) continue;
        recode_head(r, w, head, all);
        export_part(r, w, all, 0, at.k, at.k_bytes, begin, end, bytes);
        export_part(r, w, all, at.k_bytes, at.v, at.v_bytes, begin, end, bytes);
    }
    return RAMET_OK;
}

/* ---- a range of the body ---- */

/* Bytes [off, off + n) of the positions, layer by layer. */
static ramet_status recode_positions(const ramet_recoder *r, const workspace *w, uint64_t off, size_t n, uint8_t *bytes,
                                     ramet_error *error) {
    const uint64_t row_bytes = r->to->row_bytes, tile_bytes = RAMET_TILE_TOKENS * row_bytes;
    while (n > 0) {
        uint32_t pos = (uint32_t)(off / tile_bytes) * RAMET_TILE_TOKENS;
        uint32_t tile_tokens = ramet_min_u32(r->to->n_tokens - pos, RAMET_TILE_TOKENS);
        uint64_t in_tile = off - pos * row_bytes, layer_bytes = tile_tokens * row_bytes / r->to->n_layers;
        size_t begin = (size_t)(in_tile % layer_bytes), run = (size_t)layer_bytes - begin;
        if (run > n) run = n;
        RAMET_TRY(recode_layer(r, w, pos, tile_tokens, in_tile / layer_bytes, begin, begin + run, bytes, error));
        off += run;
        bytes += run;
        n -= run;
    }
    return RAMET_OK;
}

ramet_status ramet_recode(void *recoder, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error) {
    const ramet_recoder *r = recoder;
    uint64_t begin = ramet_snapshot_section_off(r->to, RAMET_SECTION_POSITIONS); /* as in the source */
    if (r->from->payload == r->to->payload) return r->source(r->user, off, n, bytes, error);
    if (off < begin) {
        size_t before = n < begin - off ? n : (size_t)(begin - off);
        RAMET_TRY(r->source(r->user, off, before, bytes, error));
        off += before;
        bytes += before;
        n -= before;
    }
    if (n == 0) return RAMET_OK;
    workspace w;
    RAMET_TRY(workspace_create(r, &w, error));
    ramet_status status = recode_positions(r, &w, off - begin, n, bytes, error);
    workspace_free(&w);
    return status;
}
