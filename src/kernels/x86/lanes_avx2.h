/* lanes_avx2.h - 8 floats at a time, for lanes.h. min and max return the second operand when one is NaN. */
#ifndef RAMET_KERNELS_X86_LANES_AVX2_H
#define RAMET_KERNELS_X86_LANES_AVX2_H

#include "kernels/inline.h"
#include "kernels/tables.h"
#include "kernels/x86/tree8.h"

#include <immintrin.h>

#define FVEC                __m256
#define FLANES              8
#define FMASK               __m256i
#define FLOAD               _mm256_loadu_ps
#define FLOAD_SOME          load_some
#define FSTORE              _mm256_storeu_ps
#define FSTORE_SOME         store_some
#define FSET1               _mm256_set1_ps
#define FADD                _mm256_add_ps
#define FSUB                _mm256_sub_ps
#define FMUL                _mm256_mul_ps
#define FDIV                _mm256_div_ps
#define FNEG(x)             _mm256_xor_ps(x, _mm256_set1_ps(-0.0f))
#define FABS(x)             _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define FFMA                _mm256_fmadd_ps
#define FMAX                _mm256_max_ps
#define FMIN                _mm256_min_ps
#define FLESS_EQUAL(a, b)   _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LE_OQ))
#define FALL(mask)          (_mm256_movemask_epi8(mask) == -1)
#define FSELECT(mask, a, b) _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask))

/* Lanes i with lo <= first + i < hi. */
ALWAYS_INLINE __m256i visible_lanes(uint32_t first, uint32_t lo, uint32_t hi) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i p = _mm256_add_epi32(lane, _mm256_set1_epi32((int32_t)first));
    const __m256i reached = _mm256_cmpgt_epi32(p, _mm256_set1_epi32((int32_t)lo - 1));
    return _mm256_and_si256(reached, _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)hi), p));
}

ALWAYS_INLINE __m256 load_some(const float *p, size_t n) {
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, visible_lanes(0, 0, (uint32_t)n));
}

ALWAYS_INLINE void store_some(float *p, size_t n, __m256 v) {
    if (n >= 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, visible_lanes(0, 0, (uint32_t)n), v);
}

#define DEFINE_TREE16(op)                                                                                              \
    ALWAYS_INLINE float tree16_##op(const __m256 t[2]) {                                                               \
        const __m256 t8 = _mm256_##op##_ps(t[0], t[1]);                                                                \
        return tree8_##op(t8);                                                                                         \
    }
DEFINE_TREE16(add)
DEFINE_TREE16(max)
DEFINE_TREE16(min)

/* As ramet_expf: two factors, of which the first multiplies exactly. */
ALWAYS_INLINE __m256 multiply_power(__m256 p, __m256 n, __m256 shifted) {
    (void)n;
    const __m256i bias = _mm256_set1_epi32(127), magic = _mm256_castps_si256(_mm256_set1_ps(0x1.8p23f));
    const __m256i whole = _mm256_sub_epi32(_mm256_castps_si256(shifted), magic), half = _mm256_srai_epi32(whole, 1);
    const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}

/* Halves 0 2 1 3 of 64 bits: shuffles work within 128 bits. */
ALWAYS_INLINE __m256 swap_middle(__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

ALWAYS_INLINE void load_pairs(const float *p, __m256 *a, __m256 *b) {
    const __m256 v0 = _mm256_loadu_ps(p), v1 = _mm256_loadu_ps(p + 8);
    *a = swap_middle(_mm256_shuffle_ps(v0, v1, 0x88));
    *b = swap_middle(_mm256_shuffle_ps(v0, v1, 0xdd));
}

ALWAYS_INLINE void store_pairs(float *p, __m256 a, __m256 b) {
    const __m256 low = swap_middle(a), high = swap_middle(b);
    _mm256_storeu_ps(p, _mm256_unpacklo_ps(low, high));
    _mm256_storeu_ps(p + 8, _mm256_unpackhi_ps(low, high));
}

ALWAYS_INLINE __m256 load_halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS_INLINE void store_halves(uint8_t *p, __m256 v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

ALWAYS_INLINE __m256 load_bytes(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

ALWAYS_INLINE void store_bytes(uint8_t *p, __m256 v) {
    const __m256i q = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}

#include "kernels/lanes.h"

#endif
