/* vector_neon.c - norm, rotation, gates, sums and the int8 activations, 4 lanes wide. */
#if defined(__aarch64__)
#include "kernels/arm/lanes_neon.h"
#include "numerics/math.h"

#include <float.h>
#include <math.h>

static void normalize_rms(const float *x, const float *w, uint32_t n, float eps, float *y) {
    float32x4_t t[4];
    for (uint32_t j = 0; j < 4; ++j) t[j] = vdupq_n_f32(0.0f);
    for (uint32_t i = 0; i < n; i += 16) /* absent lanes add +0 to a sum that is never -0 */
        for (uint32_t j = 0; j < 4 && i + 4 * j < n; ++j) {
            const float32x4_t v = load_some(x + i + 4 * j, n - i - 4 * j);
            t[j] = fma_lanes(v, v, t[j]);
        }
    const float mean = tree16_add_lanes(t) / (float)n, r = 1.0f / ramet_sqrtf(mean + eps);
    for (uint32_t i = 0; i < n; i += 4) {
        const float32x4_t v = vmulq_n_f32(load_some(x + i, n - i), r);
        store_some(y + i, n - i, vmulq_f32(v, load_some(w + i, n - i)));
    }
}

static inline void rotate_lanes(float32x4_t *a, float32x4_t *b, float32x4_t cos, float32x4_t sin) {
    const float32x4_t x = *a, y = *b;
    *a = fma_lanes(x, cos, vnegq_f32(vmulq_f32(y, sin)));
    *b = fma_lanes(x, sin, vmulq_f32(y, cos));
}

static uint32_t rotate_neighbours(float *x, const float *cos, const float *sin, uint32_t n_pairs) {
    uint32_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        float32x4x2_t pairs = vld2q_f32(x + 2 * i);
        rotate_lanes(&pairs.val[0], &pairs.val[1], vld1q_f32(cos + i), vld1q_f32(sin + i));
        vst2q_f32(x + 2 * i, pairs);
    }
    return i;
}

static uint32_t rotate_halves(float *x, const float *cos, const float *sin, uint32_t n_pairs) {
    uint32_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + n_pairs + i);
        rotate_lanes(&a, &b, vld1q_f32(cos + i), vld1q_f32(sin + i));
        vst1q_f32(x + i, a);
        vst1q_f32(x + n_pairs + i, b);
    }
    return i;
}

static void rotate_pairs(float *x, const float *cos, const float *sin, uint32_t n_pairs, bool neighbours) {
    uint32_t i = neighbours ? rotate_neighbours(x, cos, sin, n_pairs) : rotate_halves(x, cos, sin, n_pairs);
    for (; i < n_pairs; ++i) {
        float *first = neighbours ? x + 2 * i : x + i, *second = neighbours ? first + 1 : first + n_pairs;
        const float a = *first, b = *second;
        *first = fmaf(a, cos[i], -(b * sin[i]));
        *second = fmaf(a, sin[i], b * cos[i]);
    }
}

static void multiply_silu(const float *gate, const float *up, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += 4) {
        const float32x4_t x = load_some(gate + i, n - i), e = exp_lanes(vnegq_f32(x));
        const float32x4_t silu = vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), e));
        store_some(out + i, n - i, vmulq_f32(silu, load_some(up + i, n - i)));
    }
}

static void multiply_gelu(const float *gate, const float *up, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += 4) {
        const float32x4_t x = load_some(gate + i, n - i);
        const float32x4_t square = vmulq_n_f32(vmulq_f32(x, x), 0x1.6e4e26p-5f);
        const float32x4_t e = exp_lanes(vmulq_n_f32(fma_lanes(square, x, x), -0x1.988454p0f));
        const float32x4_t gelu = vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), e));
        store_some(out + i, n - i, vmulq_f32(gelu, load_some(up + i, n - i)));
    }
}

static void add_vector(float *x, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 4)
        store_some(x + i, n - i, vaddq_f32(load_some(x + i, n - i), load_some(y + i, n - i)));
}

static void scale_vector(float *x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 4) store_some(x + i, n - i, vmulq_n_f32(load_some(x + i, n - i), factor));
}

static void add_scaled(float *x, float factor, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 4) {
        const float32x4_t sum = vfmaq_n_f32(load_some(x + i, n - i), load_some(y + i, n - i), factor);
        store_some(x + i, n - i, sum);
    }
}

/* ---- int8 activations: see c/quantize.c */

/* lo and hi of 32 elements; false when one is not finite or their distance is not. */
static inline bool find_range(const float32x4_t v[8], float *out_lo, float *out_hi) {
    uint32x4_t finite = vdupq_n_u32(UINT32_MAX);
    float32x4_t lo[4], hi[4];
    for (int i = 0; i < 8; ++i) finite = vandq_u32(finite, vcleq_f32(vabsq_f32(v[i]), vdupq_n_f32(FLT_MAX)));
    for (int i = 0; i < 4; ++i) lo[i] = min_lanes(v[i], v[i + 4]), hi[i] = max_lanes(v[i], v[i + 4]);
    *out_lo = tree16_min_lanes(lo);
    *out_hi = tree16_max_lanes(hi);
    return vminvq_u32(finite) != 0 && *out_hi - *out_lo <= FLT_MAX;
}

/* 4 elements as int16; the conversion rounds half to even. */
static inline int16x4_t quantize_lanes(float32x4_t x, float z, float id) {
    float32x4_t t = vmulq_n_f32(vsubq_f32(x, vdupq_n_f32(z)), id);
    t = max_lanes(min_lanes(t, vdupq_n_f32(127.0f)), vdupq_n_f32(-127.0f));
    return vmovn_s32(vcvtnq_s32_f32(t));
}

static inline int8x16_t quantize_16(const float32x4_t v[4], float z, float id) {
    const int16x8_t low = vcombine_s16(quantize_lanes(v[0], z, id), quantize_lanes(v[1], z, id));
    const int16x8_t high = vcombine_s16(quantize_lanes(v[2], z, id), quantize_lanes(v[3], z, id));
    return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

static inline void quantize_block(ramet_acts *acts, size_t at, const float *x) {
    float32x4_t v[8];
    float lo, hi;
    for (int i = 0; i < 8; ++i) v[i] = vld1q_f32(x + 4 * i);
    const bool finite = find_range(v, &lo, &hi);
    const float range = hi - lo;
    const bool flat = range < RAMET_FLAT_RANGE;
    const float d = !finite ? NAN : flat ? 0.0f : range / 254.0f;
    const float z = finite ? fmaf(0.5f, lo, 0.5f * hi) : NAN;
    acts->d[at] = d;
    acts->z[at] = z;
    for (uint32_t i = 0; i < 2; ++i) {
        const int8x16_t q = finite && !flat ? quantize_16(v + 4 * i, z, 254.0f / range) : vdupq_n_s8(0);
        const int32_t sum = vaddlvq_s8(q);
        vst1q_s8(acts->q + 32 * at + 16 * i, q);
        acts->sum16[2 * at + i] = sum;
        acts->s16[2 * at + i] = fmaf(d, (float)sum, 16.0f * z);
    }
    acts->sum32[at] = acts->sum16[2 * at] + acts->sum16[2 * at + 1];
    acts->s32[at] = fmaf(d, (float)acts->sum32[at], 32.0f * z);
}

static void quantize_column(ramet_acts *acts, uint32_t col, const float *x) {
    const size_t n_blocks = acts->n_k / 32;
    for (size_t b = 0; b < n_blocks; ++b) quantize_block(acts, col * n_blocks + b, x + 32 * b);
}

void ramet_vector_fill_neon(ramet_kernels *table) {
    table->quantize = quantize_column;
    table->rms_norm = normalize_rms;
    table->rope = rotate_pairs;
    table->silu_mul = multiply_silu;
    table->gelu_mul = multiply_gelu;
    table->add = add_vector;
    table->scale = scale_vector;
    table->axpy = add_scaled;
}
#endif
