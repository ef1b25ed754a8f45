/* lanes_avx512.h - 16 floats at a time, for lanes.h. min and max return the second operand when one is NaN. */
#ifndef RAMET_KERNELS_X86_LANES_AVX512_H
#define RAMET_KERNELS_X86_LANES_AVX512_H

#include "kernels/inline.h"
#include "kernels/tables.h"
#include "kernels/x86/tree8.h"

#include <immintrin.h>

#define FVEC                 __m512
#define FLANES               16
#define FMASK                __mmask16
#define FLOAD                _mm512_loadu_ps
#define FLOAD_SOME(p, n)     _mm512_maskz_loadu_ps(first_lanes(n), p)
#define FSTORE               _mm512_storeu_ps
#define FSTORE_SOME(p, n, v) _mm512_mask_storeu_ps(p, first_lanes(n), v)
#define FSET1                _mm512_set1_ps
#define FADD                 _mm512_add_ps
#define FSUB                 _mm512_sub_ps
#define FMUL                 _mm512_mul_ps
#define FDIV                 _mm512_div_ps
#define FNEG(x)              _mm512_xor_ps(x, _mm512_set1_ps(-0.0f))
#define FABS                 _mm512_abs_ps
#define FFMA                 _mm512_fmadd_ps
#define FMAX                 _mm512_max_ps
#define FMIN                 _mm512_min_ps
#define FLESS_EQUAL(a, b)    _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)
#define FALL(mask)           ((mask) == 0xffff)
#define FSELECT(mask, a, b)  _mm512_mask_blend_ps(mask, b, a)

ALWAYS_INLINE __mmask16 first_lanes(size_t n) {
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff);
}

ALWAYS_INLINE __mmask16 visible_lanes(uint32_t first, uint32_t lo, uint32_t hi) {
    const uint32_t hidden = lo > first ? first_lanes(lo - first) : 0, ahead = hi > first ? first_lanes(hi - first) : 0;
    return (__mmask16)(ahead & ~hidden);
}

#define DEFINE_TREE16(op)                                                                                              \
    ALWAYS_INLINE float tree16_##op(const __m512 t[1]) {                                                               \
        const __m256 t8 = _mm256_##op##_ps(_mm512_castps512_ps256(t[0]), _mm512_extractf32x8_ps(t[0], 1));             \
        return tree8_##op(t8);                                                                                         \
    }
DEFINE_TREE16(add)
DEFINE_TREE16(max)
DEFINE_TREE16(min)

/* The instruction rounds once, denormal results included. */
ALWAYS_INLINE __m512 multiply_power(__m512 p, __m512 n, __m512 shifted) {
    (void)shifted;
    return _mm512_scalef_ps(p, n);
}

ALWAYS_INLINE void load_pairs(const float *p, __m512 *a, __m512 *b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512 v0 = _mm512_loadu_ps(p), v1 = _mm512_loadu_ps(p + 16);
    *a = _mm512_permutex2var_ps(v0, even, v1);
    *b = _mm512_permutex2var_ps(v0, _mm512_add_epi32(even, _mm512_set1_epi32(1)), v1);
}

ALWAYS_INLINE void store_pairs(float *p, __m512 a, __m512 b) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(a, first, b));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(a, _mm512_add_epi32(first, _mm512_set1_epi32(8)), b));
}

ALWAYS_INLINE __m512 load_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ALWAYS_INLINE void store_halves(uint8_t *p, __m512 v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

ALWAYS_INLINE __m512 load_bytes(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

ALWAYS_INLINE void store_bytes(uint8_t *p, __m512 v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

#include "kernels/lanes.h"

#endif
