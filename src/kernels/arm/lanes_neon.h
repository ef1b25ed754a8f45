/* lanes_neon.h - 4 floats at a time: vectors with a tail, the fixed tree, and exp of numerics/math.c step by step.
 * vmaxq and vminq have their own opinion of NaN and of -0, so maximum and minimum are a comparison and a selection. */
#ifndef RAMET_KERNELS_ARM_LANES_NEON_H
#define RAMET_KERNELS_ARM_LANES_NEON_H

#include "kernels/inline.h"
#include "kernels/tables.h"

#include <arm_neon.h>
#include <string.h>

/* The first `n` floats at p, then zeros; nothing else is touched. */
static inline float32x4_t load_some(const float *p, size_t n) {
    if (n >= 4) return vld1q_f32(p);
    float some[4] = {0};
    memcpy(some, p, n * sizeof *p);
    return vld1q_f32(some);
}

static inline void store_some(float *p, size_t n, float32x4_t v) {
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    float some[4];
    vst1q_f32(some, v);
    memcpy(p, some, n * sizeof *p);
}

/* a > b ? a : b */
static inline float32x4_t max_lanes(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline float32x4_t min_lanes(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

/* The trees of tables.h for lanes 4 i .. 4 i + 3 in t[i]. */
static inline float tree16_add_lanes(const float32x4_t t[4]) {
    const float32x4_t t4 = vaddq_f32(vaddq_f32(t[0], t[2]), vaddq_f32(t[1], t[3]));
    const float32x2_t t2 = vadd_f32(vget_low_f32(t4), vget_high_f32(t4));
    return vget_lane_f32(t2, 0) + vget_lane_f32(t2, 1);
}

static inline float tree16_max_lanes(const float32x4_t t[4]) {
    const float32x4_t t4 = max_lanes(max_lanes(t[0], t[2]), max_lanes(t[1], t[3]));
    const float32x4_t t2 = max_lanes(t4, vextq_f32(t4, t4, 2));
    return ramet_max(vgetq_lane_f32(t2, 0), vgetq_lane_f32(t2, 1));
}

static inline float tree16_min_lanes(const float32x4_t t[4]) {
    const float32x4_t t4 = min_lanes(min_lanes(t[0], t[2]), min_lanes(t[1], t[3]));
    const float32x4_t t2 = min_lanes(t4, vextq_f32(t4, t4, 2));
    return ramet_min(vgetq_lane_f32(t2, 0), vgetq_lane_f32(t2, 1));
}

/* a * b + c in one rounding, in the order of fmaf. */
static inline float32x4_t fma_lanes(float32x4_t a, float32x4_t b, float32x4_t c) {
    return vfmaq_f32(c, a, b);
}

static inline float32x4_t exp_lanes(float32x4_t x) {
    x = min_lanes(vdupq_n_f32(89.0f), x);
    x = max_lanes(vdupq_n_f32(-104.0f), x);

    const float32x4_t magic = vdupq_n_f32(0x1.8p23f);
    const float32x4_t shifted = fma_lanes(x, vdupq_n_f32(0x1.715476p0f), magic);
    const float32x4_t n = vsubq_f32(shifted, magic);
    float32x4_t r = fma_lanes(n, vdupq_n_f32(-0x1.62e43p-1f), x);
    r = fma_lanes(n, vdupq_n_f32(0x1.05c61p-29f), r);

    float32x4_t p = vdupq_n_f32(0x1.6a53ecp-10f);
    p = fma_lanes(p, r, vdupq_n_f32(0x1.123986p-7f));
    p = fma_lanes(p, r, vdupq_n_f32(0x1.5558aep-5f));
    p = fma_lanes(p, r, vdupq_n_f32(0x1.555492p-3f));
    p = fma_lanes(p, r, vdupq_n_f32(0x1.fffffcp-2f));
    p = fma_lanes(p, r, vdupq_n_f32(1.0f));
    p = fma_lanes(p, r, vdupq_n_f32(1.0f));

    const int32x4_t bias = vdupq_n_s32(127);
    const int32x4_t whole = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(magic));
    const int32x4_t half = vshrq_n_s32(whole, 1);
    const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}

#endif
