/* attend_neon.c - attention 4 lanes wide, four queries at a time, and the merging of parts. */
#if defined(__aarch64__)
#include "kernels/arm/lanes_neon.h"

#include <math.h>

#define FVEC        float32x4_t
#define FLANES      4
#define FLOAD       vld1q_f32
#define FLOAD_SOME  load_some
#define FSTORE      vst1q_f32
#define FSTORE_SOME store_some
#define FSET1       vdupq_n_f32
#define FMUL        vmulq_f32
#define FFMA        fma_lanes
#define MAX_QUERIES 4

/* Up to sixteen sums at once, of 32 registers. */
ALWAYS_INLINE uint32_t widest_tile(uint32_t queries) {
    return queries == 4 ? 4 : 8;
}

/* Lanes of 4 positions from `first` on that lie in [lo, hi). */
static inline uint32x4_t visible_lanes(uint32_t first, uint32_t lo, uint32_t hi) {
    static const uint32_t lanes[4] = {0, 1, 2, 3};
    const uint32x4_t p = vaddq_u32(vld1q_u32(lanes), vdupq_n_u32(first));
    return vandq_u32(vcgeq_u32(p, vdupq_n_u32(lo)), vcltq_u32(p, vdupq_n_u32(hi)));
}

static inline float exp_one(float x) {
    return vgetq_lane_f32(exp_lanes(vdupq_n_f32(x)), 0);
}

static float weigh_positions(float *s, uint32_t lo, uint32_t hi, float *m, float *l) {
    const uint32_t first = lo / 4, end = (hi + 3) / 4; /* vectors with a visible lane */
    float32x4_t max[4], sum[4];
    for (int i = 0; i < 4; ++i) max[i] = vdupq_n_f32(-INFINITY), sum[i] = vdupq_n_f32(0.0f);
    for (uint32_t j = first; j < end; ++j) {
        const float32x4_t larger = max_lanes(max[j % 4], vld1q_f32(s + 4 * j));
        max[j % 4] = vbslq_f32(visible_lanes(4 * j, lo, hi), larger, max[j % 4]);
    }
    const float new_m = ramet_max(*m, tree16_max_lanes(max)), a = exp_one(*m - new_m);
    for (uint32_t j = first; j < end; ++j) { /* absent lanes add +0 to a sum that is never -0 */
        const float32x4_t w = exp_lanes(vsubq_f32(vld1q_f32(s + 4 * j), vdupq_n_f32(new_m)));
        const uint32x4_t visible = vandq_u32(vreinterpretq_u32_f32(w), visible_lanes(4 * j, lo, hi));
        vst1q_f32(s + 4 * j, vreinterpretq_f32_u32(visible));
        sum[j % 4] = vaddq_f32(sum[j % 4], vreinterpretq_f32_u32(visible));
    }
    *l = fmaf(*l, a, tree16_add_lanes(sum));
    *m = new_m;
    return a;
}

#include "kernels/attend_tiles.h"

static bool is_empty(float m, float l) {
    return l == 0.0f && m == -INFINITY;
}

static void merge_parts(float *m, float *l, float *o, float m2, float l2, const float *o2, uint32_t head_dim) {
    if (is_empty(m2, l2)) return;
    if (is_empty(*m, *l)) {
        *m = m2, *l = l2;
        memcpy(o, o2, head_dim * sizeof *o);
        return;
    }
    const float max = ramet_max(*m, m2), a = exp_one(*m - max), b = exp_one(m2 - max);
    for (uint32_t d = 0; d < head_dim; d += 4) {
        const float32x4_t later = vmulq_n_f32(load_some(o2 + d, head_dim - d), b);
        store_some(o + d, head_dim - d, vfmaq_n_f32(later, load_some(o + d, head_dim - d), a));
    }
    *l = fmaf(*l, a, l2 * b);
    *m = max;
}

static void finish_part(float *o, float l, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d += 4)
        store_some(o + d, head_dim - d, vdivq_f32(load_some(o + d, head_dim - d), vdupq_n_f32(l)));
}

void ramet_attend_fill_neon(ramet_kernels *table) {
    table->attend = attend_segment;
    table->attend_merge = merge_parts;
    table->attend_finish = finish_part;
}
#endif
