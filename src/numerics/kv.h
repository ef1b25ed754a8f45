/* kv.h - how keys and values lie inside a page, and the row codecs of each KV precision.
 *
 * A page holds `page_tokens` consecutive positions of all layers. Per (layer, kv head) a K area, then per (layer,
 * kv head) a V area, all 64-byte aligned:
 *     K: [head_dim][page_tokens]   a SIMD lane is a position
 *     V: [page_tokens][head_dim]   a SIMD lane is a dimension
 * f32: K and V float32. f16: K and V binary16. vq8: K binary16, V q8. q8: K and V q8.
 * q8 is int8 in blocks of 32 along the head dimension (the last may be short) with one binary16 scale each. Scales of a
 * K area follow it as [n_blocks][page_tokens], of a V area as [page_tokens][n_blocks]. value = scale * q, where the
 * scale is amax / 127 rounded and q = x / scale rounded half to even, clamped to +-127; a scale of 0 has q = 0. A block
 * with a NaN or an infinity, or whose scale overflows (amax from 8.3e6 on), reads as NaN throughout: it is seen.
 *
 * A tile is the exported form of n consecutive positions: what a page of just n positions would hold, without padding.
 * It does not depend on page_tokens: this is what snapshots store. A tile of 64 and a page of 64 are the same bytes. A
 * tile of one position is a "row": for each layer, for each kv head K, then for each kv head V; a vector is its elements
 * then its scales.
 *
 * Owns layout, codecs and the names of the precisions (ramet_kv_name and ramet_kv_parse of ramet.h); refuses to know
 * pages' lifetime. */
#ifndef RAMET_NUMERICS_KV_H
#define RAMET_NUMERICS_KV_H

#include "ramet.h"

enum {
    RAMET_KV_ONE_BIT = 4, /* for tests only: sign and mean magnitude per block; must fail every quality bound */
    RAMET_KV_BLOCK = 32,
};

typedef enum ramet_kv_code { RAMET_KV_CODE_F32, RAMET_KV_CODE_F16, RAMET_KV_CODE_Q8, RAMET_KV_CODE_BIT } ramet_kv_code;

typedef struct ramet_kv_layout {
    uint32_t n_layers, n_kv_heads, head_dim, page_tokens;
    int precision; /* ramet_kv or RAMET_KV_ONE_BIT */
    ramet_kv_code k_code, v_code;
    uint32_t n_blocks;                     /* per head vector */
    size_t k_head_bytes, v_head_bytes;     /* one (layer, head) area, scales included, padded to 64 */
    size_t k_scales_off, v_scales_off;     /* of the scales inside such an area */
    size_t layer_bytes;                    /* n_kv_heads * (k_head_bytes + v_head_bytes) */
    size_t page_bytes;                     /* n_layers * layer_bytes */
    size_t k_vector_bytes, v_vector_bytes; /* exported, one head */
    size_t row_bytes;                      /* exported, one position, all layers */
} ramet_kv_layout;

/* False when a count is 0, page_tokens is no power of two up to 256, the precision is unknown, or a size overflows. */
bool ramet_kv_layout_init(ramet_kv_layout *out, int precision, uint32_t n_layers, uint32_t n_kv_heads,
                          uint32_t head_dim, uint32_t page_tokens);

static inline size_t ramet_kv_k_off(const ramet_kv_layout *l, uint32_t layer, uint32_t head) {
    return (size_t)layer * l->layer_bytes + (size_t)head * l->k_head_bytes;
}
static inline size_t ramet_kv_v_off(const ramet_kv_layout *l, uint32_t layer, uint32_t head) {
    return (size_t)layer * l->layer_bytes + (size_t)l->n_kv_heads * l->k_head_bytes + (size_t)head * l->v_head_bytes;
}

/* Stores one position's K and V of one layer: k, v are [n_kv_heads][head_dim]. Quantised here and nowhere else. */
void ramet_kv_write(const ramet_kv_layout *l, uint8_t *page, uint32_t layer, uint32_t slot, const float *k,
                    const float *v);
/* Positions [slot, slot + n) of one head as float32 tiles: K to out[head_dim][stride], V to out[n][head_dim]. The
 * definition; kernels has faster ones that equal it. */
void ramet_kv_read_k(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                     uint32_t n, float *out, size_t stride);
void ramet_kv_read_v(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                     uint32_t n, float *out);
/* Where positions of a tile of `tile_tokens` lie in a page: [first, first + n) of the tile are slots [slot, slot + n). */
typedef struct ramet_kv_span {
    uint32_t tile_tokens, first, slot, n;
} ramet_kv_span;
/* Bytes [from, to) of the tile (of tile_tokens * row_bytes) between memory that starts with byte `from` and a page: those
 * of the span's positions; the others are left alone. Exact inverses of one another. */
void ramet_kv_export_tile(const ramet_kv_layout *l, const uint8_t *page, ramet_kv_span span, size_t from, size_t to,
                          uint8_t *out);
void ramet_kv_import_tile(const ramet_kv_layout *l, uint8_t *page, ramet_kv_span span, size_t from, size_t to,
                          const uint8_t *bytes);
/* Positions [slot, slot + n) as rows, n * row_bytes, and back. */
void ramet_kv_export(const ramet_kv_layout *l, const uint8_t *page, uint32_t slot, uint32_t n, uint8_t *out);
void ramet_kv_import(const ramet_kv_layout *l, uint8_t *page, uint32_t slot, uint32_t n, const uint8_t *rows);

#endif
