/* lanes_avx2.h - 8 floats at a time: vectors with a tail, the fixed tree, and exp of numerics/math.c step by step.
 * min and max of AVX return the second operand when one is NaN, so that MAX(a, b) is a > b ? a : b. */
#ifndef RAMET_KERNELS_X86_LANES_AVX2_H
#define RAMET_KERNELS_X86_LANES_AVX2_H

#include "kernels/inline.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* All ones in the first `n` lanes (all 8 when there are more). */
static inline __m256i first_lanes(size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int32_t)n : 8), lane);
}

/* The first `n` floats at p, then zeros; nothing else is touched. */
static inline __m256 load_some(const float *p, size_t n) {
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes(n));
}

static inline void store_some(float *p, size_t n, __m256 v) {
    if (n >= 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* The trees of tables.h for lanes 0..7 in `low` and 8..15 in `high`. */
static inline float tree16_add(__m256 low, __m256 high) {
    __m256 t8 = _mm256_add_ps(low, high);
    __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_movehdup_ps(t2)));
}

static inline float tree16_max(__m256 low, __m256 high) {
    __m256 t8 = _mm256_max_ps(low, high);
    __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
}

static inline float tree16_min(__m256 low, __m256 high) {
    __m256 t8 = _mm256_min_ps(low, high);
    __m128 t4 = _mm_min_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_min_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_min_ss(t2, _mm_movehdup_ps(t2)));
}

static inline __m256 exp_lanes(__m256 x) {
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x);

    const __m256 magic = _mm256_set1_ps(0x1.8p23f);
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p0f), magic);
    __m256 n = _mm256_sub_ps(shifted, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e43p-1f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c61p-29f), r);

    __m256 p = _mm256_set1_ps(0x1.6a53ecp-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123986p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558aep-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));

    const __m256i bias = _mm256_set1_epi32(127);
    __m256i whole = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(magic));
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}

static inline float exp_one(float x) {
    return _mm256_cvtss_f32(exp_lanes(_mm256_set1_ps(x)));
}

#endif
