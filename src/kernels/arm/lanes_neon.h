/* lanes_neon.h - 4 floats at a time, for lanes.h. vmaxq and vminq have their own opinion of NaN and of -0, so maximum and
 * minimum are a comparison and a selection. */
#ifndef RAMET_KERNELS_ARM_LANES_NEON_H
#define RAMET_KERNELS_ARM_LANES_NEON_H

#include "kernels/inline.h"
#include "kernels/tables.h"

#include <arm_neon.h>
#include <string.h>

#define FVEC                float32x4_t
#define FLANES              4
#define FMASK               uint32x4_t
#define FLOAD               vld1q_f32
#define FLOAD_SOME          load_some
#define FSTORE              vst1q_f32
#define FSTORE_SOME         store_some
#define FSET1               vdupq_n_f32
#define FADD                vaddq_f32
#define FSUB                vsubq_f32
#define FMUL                vmulq_f32
#define FDIV                vdivq_f32
#define FNEG                vnegq_f32
#define FABS                vabsq_f32
#define FFMA(a, b, c)       vfmaq_f32(c, a, b)
#define FMAX                max_lanes
#define FMIN                min_lanes
#define FLESS_EQUAL         vcleq_f32
#define FALL(mask)          (vminvq_u32(mask) == UINT32_MAX)
#define FSELECT(mask, a, b) vbslq_f32(mask, a, b)

ALWAYS_INLINE float32x4_t load_some(const float *p, size_t n) {
    if (n >= 4) return vld1q_f32(p);
    float some[4] = {0};
    memcpy(some, p, n * sizeof *p);
    return vld1q_f32(some);
}

ALWAYS_INLINE void store_some(float *p, size_t n, float32x4_t v) {
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    float some[4];
    vst1q_f32(some, v);
    memcpy(p, some, n * sizeof *p);
}

ALWAYS_INLINE float32x4_t max_lanes(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

ALWAYS_INLINE float32x4_t min_lanes(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

ALWAYS_INLINE uint32x4_t visible_lanes(uint32_t first, uint32_t lo, uint32_t hi) {
    static const uint32_t lanes[4] = {0, 1, 2, 3};
    const uint32x4_t p = vaddq_u32(vld1q_u32(lanes), vdupq_n_u32(first));
    return vandq_u32(vcgeq_u32(p, vdupq_n_u32(lo)), vcltq_u32(p, vdupq_n_u32(hi)));
}

ALWAYS_INLINE float tree16_add(const float32x4_t t[4]) {
    const float32x4_t t4 = vaddq_f32(vaddq_f32(t[0], t[2]), vaddq_f32(t[1], t[3]));
    const float32x2_t t2 = vadd_f32(vget_low_f32(t4), vget_high_f32(t4));
    return vget_lane_f32(t2, 0) + vget_lane_f32(t2, 1);
}

ALWAYS_INLINE float tree16_max(const float32x4_t t[4]) {
    const float32x4_t t4 = max_lanes(max_lanes(t[0], t[2]), max_lanes(t[1], t[3]));
    const float32x4_t t2 = max_lanes(t4, vextq_f32(t4, t4, 2));
    return ramet_max(vgetq_lane_f32(t2, 0), vgetq_lane_f32(t2, 1));
}

ALWAYS_INLINE float tree16_min(const float32x4_t t[4]) {
    const float32x4_t t4 = min_lanes(min_lanes(t[0], t[2]), min_lanes(t[1], t[3]));
    const float32x4_t t2 = min_lanes(t4, vextq_f32(t4, t4, 2));
    return ramet_min(vgetq_lane_f32(t2, 0), vgetq_lane_f32(t2, 1));
}

/* As ramet_expf: two factors, of which the first multiplies exactly. */
ALWAYS_INLINE float32x4_t multiply_power(float32x4_t p, float32x4_t n, float32x4_t shifted) {
    (void)n;
    const int32x4_t bias = vdupq_n_s32(127), magic = vreinterpretq_s32_f32(vdupq_n_f32(0x1.8p23f));
    const int32x4_t whole = vsubq_s32(vreinterpretq_s32_f32(shifted), magic), half = vshrq_n_s32(whole, 1);
    const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}

ALWAYS_INLINE void load_pairs(const float *p, float32x4_t *a, float32x4_t *b) {
    const float32x4x2_t v = vld2q_f32(p);
    *a = v.val[0], *b = v.val[1];
}

ALWAYS_INLINE void store_pairs(float *p, float32x4_t a, float32x4_t b) {
    vst2q_f32(p, (float32x4x2_t){{a, b}});
}

ALWAYS_INLINE float32x4_t load_halves(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

ALWAYS_INLINE void store_halves(uint8_t *p, float32x4_t v) {
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v)));
}

ALWAYS_INLINE float32x4_t load_bytes(const uint8_t *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    const int16x8_t v = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(v)));
}

ALWAYS_INLINE void store_bytes(uint8_t *p, float32x4_t v) {
    const int16x4_t q = vmovn_s32(vcvtnq_s32_f32(v));
    const int32_t word = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(q, q))), 0);
    memcpy(p, &word, sizeof word);
}

#include "kernels/lanes.h"

#endif
