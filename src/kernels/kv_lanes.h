/* kv_lanes.h - pages to float32 tiles and rows into pages, for whatever width lanes.h has: ramet_kv_read_k, _read_v and
 * _write of numerics/kv.h. A row of K is positions of one dimension, a row of V dimensions of one position. */
#ifndef RAMET_KERNELS_KV_LANES_H
#define RAMET_KERNELS_KV_LANES_H

#include "numerics/half.h"

#include <float.h>
#include <string.h>

enum { SCALE_BYTES = 2, MAX_PAGE_TOKENS = 256, KV_VECTORS = RAMET_KV_BLOCK / FLANES };

static inline float read_half(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return ramet_f16_to_f32(half);
}

static void read_halves(const uint8_t *p, uint32_t n, float *out) {
    uint32_t i = 0;
    for (; i + FLANES <= n; i += FLANES) FSTORE(out + i, load_halves(p + 2 * i));
    for (; i < n; ++i) out[i] = read_half(p + 2 * i);
}

/* Elements with a scale each. */
static void read_scaled(const uint8_t *p, const float *scales, uint32_t n, float *out) {
    uint32_t i = 0;
    for (; i + FLANES <= n; i += FLANES) FSTORE(out + i, FMUL(FLOAD(scales + i), load_bytes(p + i)));
    for (; i < n; ++i) out[i] = scales[i] * (float)(int8_t)p[i];
}

/* A block that shares one scale. */
static void read_block(const uint8_t *p, float scale, uint32_t n, float *out) {
    uint32_t i = 0;
    for (; i + FLANES <= n; i += FLANES) FSTORE(out + i, FMUL(FSET1(scale), load_bytes(p + i)));
    for (; i < n; ++i) out[i] = scale * (float)(int8_t)p[i];
}

static void read_k(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                   uint32_t n, float *out, size_t stride) {
    const uint8_t *area = page + ramet_kv_k_off(l, layer, head), *scales_of_block = area + l->k_scales_off;
    float scales[MAX_PAGE_TOKENS];
    for (uint32_t d = 0; d < l->head_dim; ++d, out += stride) {
        const size_t at = (size_t)d * l->page_tokens + slot;
        if (l->k_code == RAMET_KV_CODE_F32) {
            memcpy(out, area + 4 * at, n * sizeof *out);
        } else if (l->k_code == RAMET_KV_CODE_F16) {
            read_halves(area + 2 * at, n, out);
        } else {
            const size_t block = d / RAMET_KV_BLOCK;
            if (d % RAMET_KV_BLOCK == 0)
                read_halves(scales_of_block + SCALE_BYTES * (block * l->page_tokens + slot), n, scales);
            read_scaled(area + at, scales, n, out);
        }
    }
}

static void read_v_scaled(const ramet_kv_layout *l, const uint8_t *area, uint32_t slot, uint32_t n, float *out) {
    const uint8_t *scales = area + l->v_scales_off + (size_t)slot * l->n_blocks * SCALE_BYTES;
    const uint8_t *p = area + (size_t)slot * l->head_dim;
    for (uint32_t i = 0; i < n; ++i)
        for (uint32_t d = 0; d < l->head_dim; d += RAMET_KV_BLOCK, scales += SCALE_BYTES) {
            const uint32_t left = l->head_dim - d, size = left < RAMET_KV_BLOCK ? left : RAMET_KV_BLOCK;
            read_block(p, read_half(scales), size, out);
            p += size, out += size;
        }
}

static void read_v(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                   uint32_t n, float *out) {
    const uint8_t *area = page + ramet_kv_v_off(l, layer, head);
    const size_t at = (size_t)slot * l->head_dim, count = (size_t)n * l->head_dim;
    if (l->v_code == RAMET_KV_CODE_F32)
        memcpy(out, area + 4 * at, count * sizeof *out);
    else if (l->v_code == RAMET_KV_CODE_F16)
        read_halves(area + 2 * at, (uint32_t)count, out);
    else
        read_v_scaled(l, area, slot, n, out);
}

/* ---- writing: a block of a vector is encoded here, then put where its elements lie ---- */

/* The binary16 scale of a block; NaN when the block cannot be represented. */
ALWAYS_INLINE uint16_t choose_scale(const FVEC x[KV_VECTORS]) {
    FVEC max[GROUPS];
    FMASK finite = FLESS_EQUAL(FABS(x[0]), FSET1(FLT_MAX));
    UNROLL
    for (uint32_t j = 1; j < KV_VECTORS; ++j) finite = finite & FLESS_EQUAL(FABS(x[j]), FSET1(FLT_MAX));
    UNROLL
    for (uint32_t j = 0; j < GROUPS; ++j) max[j] = FMAX(FABS(x[j]), FABS(x[j + GROUPS]));
    const uint16_t scale = ramet_f32_to_f16(tree16_max(max) / 127.0f);
    return FALL(finite) && scale < 0x7c00 ? scale : 0x7e00;
}

static uint16_t encode_scaled(const float *x, uint32_t n, uint8_t *out) {
    FVEC v[KV_VECTORS];
    UNROLL
    for (uint32_t j = 0; j < KV_VECTORS; ++j)
        v[j] = FLANES * j < n ? FLOAD_SOME(x + FLANES * j, n - FLANES * j) : FSET1(0.0f);
    const uint16_t bits = choose_scale(v);
    const float scale = ramet_f16_to_f32(bits);
    UNROLL
    for (uint32_t j = 0; j < KV_VECTORS; ++j) {
        const FVEC q = scale > 0.0f ? FDIV(v[j], FSET1(scale)) : FSET1(0.0f);
        store_bytes(out + FLANES * j, FMAX(FMIN(q, FSET1(127.0f)), FSET1(-127.0f)));
    }
    return bits;
}

static void encode_halves(const float *x, uint32_t n, uint8_t *out) {
    for (uint32_t i = 0; i < n; i += FLANES) store_halves(out + 2 * i, FLOAD_SOME(x + i, n - i));
}

/* Where a head's vector lies: element d at to + d * stride, the scale of a block at scales + block * scales_stride. */
typedef struct vector_place {
    ramet_kv_code code;
    uint8_t *to, *scales;
    size_t stride, scales_stride;
} vector_place;

static void put_elements(const vector_place *at, uint32_t d, uint32_t n, const uint8_t *codes, size_t width) {
    uint8_t *to = at->to + d * at->stride;
    if (at->stride == width)
        memcpy(to, codes, n * width);
    else
        for (uint32_t i = 0; i < n; ++i, to += at->stride) memcpy(to, codes + i * width, width);
}

static void write_vector(const vector_place *at, uint32_t head_dim, const float *x) {
    uint8_t codes[2 * RAMET_KV_BLOCK];
    for (uint32_t d = 0; d < head_dim; d += RAMET_KV_BLOCK) {
        const uint32_t n = head_dim - d < RAMET_KV_BLOCK ? head_dim - d : RAMET_KV_BLOCK;
        if (at->code == RAMET_KV_CODE_F32) {
            put_elements(at, d, n, (const uint8_t *)(x + d), 4);
        } else if (at->code == RAMET_KV_CODE_F16) {
            encode_halves(x + d, n, codes);
            put_elements(at, d, n, codes, 2);
        } else {
            const uint16_t scale = encode_scaled(x + d, n, codes);
            memcpy(at->scales + d / RAMET_KV_BLOCK * at->scales_stride, &scale, sizeof scale);
            put_elements(at, d, n, codes, 1);
        }
    }
}

static void write_row(const ramet_kv_layout *l, uint8_t *page, uint32_t layer, uint32_t slot, const float *k,
                      const float *v) {
    static const size_t widths[] = {[RAMET_KV_CODE_F32] = 4, [RAMET_KV_CODE_F16] = 2, [RAMET_KV_CODE_Q8] = 1};
    if (l->precision == RAMET_KV_ONE_BIT) {
        ramet_kv_write(l, page, layer, slot, k, v);
        return;
    }
    const size_t k_width = widths[l->k_code], v_width = widths[l->v_code];
    for (uint32_t head = 0; head < l->n_kv_heads; ++head, k += l->head_dim, v += l->head_dim) {
        uint8_t *to_k = page + ramet_kv_k_off(l, layer, head), *to_v = page + ramet_kv_v_off(l, layer, head);
        const vector_place k_place = {l->k_code, to_k + slot * k_width, to_k + l->k_scales_off + slot * SCALE_BYTES,
                                      l->page_tokens * k_width, l->page_tokens * SCALE_BYTES};
        const vector_place v_place = {l->v_code, to_v + slot * l->head_dim * v_width,
                                      to_v + l->v_scales_off + slot * l->n_blocks * SCALE_BYTES, v_width, SCALE_BYTES};
        write_vector(&k_place, l->head_dim, k);
        write_vector(&v_place, l->head_dim, v);
    }
}

static void fill_kv(ramet_kernels *table) {
    table->kv_read_k = read_k;
    table->kv_read_v = read_v;
    table->kv_write = write_row;
}

#endif
