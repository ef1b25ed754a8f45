/* kv_neon.c - pages as float32 tiles: a row of K is positions of one dimension, a row of V dimensions of one position.
 */
#if defined(__aarch64__)
#include "kernels/tables.h"
#include "numerics/half.h"

#include <arm_neon.h>
#include <string.h>

enum { SCALE_BYTES = 2 };

static inline float32x4x2_t widen_halves(const uint8_t *p) {
    const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(p));
    return (float32x4x2_t){{vcvt_f32_f16(vget_low_f16(v)), vcvt_f32_f16(vget_high_f16(v))}};
}

static inline float32x4x2_t widen_bytes(const uint8_t *p) {
    const int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return (float32x4x2_t){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(v)))}};
}

static inline void store_8(float *out, float32x4_t low, float32x4_t high) {
    vst1q_f32(out, low);
    vst1q_f32(out + 4, high);
}

static inline float read_half(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return ramet_f16_to_f32(half);
}

static void read_halves(const uint8_t *p, uint32_t n, float *out) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4x2_t v = widen_halves(p + 2 * i);
        store_8(out + i, v.val[0], v.val[1]);
    }
    for (; i < n; ++i) out[i] = read_half(p + 2 * i);
}

/* Elements with a scale each. */
static void read_scaled(const uint8_t *p, const uint8_t *scales, uint32_t n, float *out) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4x2_t scale = widen_halves(scales + SCALE_BYTES * i), q = widen_bytes(p + i);
        store_8(out + i, vmulq_f32(scale.val[0], q.val[0]), vmulq_f32(scale.val[1], q.val[1]));
    }
    for (; i < n; ++i) out[i] = read_half(scales + SCALE_BYTES * i) * (float)(int8_t)p[i];
}

/* A block that shares one scale. */
static void read_block(const uint8_t *p, float scale, uint32_t n, float *out) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4x2_t q = widen_bytes(p + i);
        store_8(out + i, vmulq_n_f32(q.val[0], scale), vmulq_n_f32(q.val[1], scale));
    }
    for (; i < n; ++i) out[i] = scale * (float)(int8_t)p[i];
}

static void read_k(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                   uint32_t n, float *out, size_t stride) {
    const uint8_t *area = page + ramet_kv_k_off(l, layer, head);
    for (uint32_t d = 0; d < l->head_dim; ++d, out += stride) {
        const size_t at = (size_t)d * l->page_tokens + slot;
        const size_t scale = (size_t)(d / RAMET_KV_BLOCK) * l->page_tokens + slot;
        if (l->k_code == RAMET_KV_CODE_F32)
            memcpy(out, area + 4 * at, n * sizeof *out);
        else if (l->k_code == RAMET_KV_CODE_F16)
            read_halves(area + 2 * at, n, out);
        else
            read_scaled(area + at, area + l->k_scales_off + SCALE_BYTES * scale, n, out);
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

void ramet_kv_fill_neon(ramet_kernels *table) {
    table->kv_read_k = read_k;
    table->kv_read_v = read_v;
}
#endif
