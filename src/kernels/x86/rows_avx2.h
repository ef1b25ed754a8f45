/* rows_avx2.h - what both AVX2 matmuls read from a panel, 8 of its 16 rows at a time: words of quants, and vectors of the
 * rows' scales.
 *
 * maddubs adds two products u8 * s8 to one int16, which we go on adding in int16 where that cannot overflow. With
 * |q| <= 127 a run of 16 gives each int16 lane 8 products, a block of 32 gives it 16:
 *   4 bits: 16 * 15 * 127 = 30480    5 bits: 8 * 31 * 127 = 31496    6 bits: 4 * 63 * 127 = 32004, half a run
 * Q8_0 is two times 4 bits, the upper of which count 16. */
#ifndef RAMET_KERNELS_X86_ROWS_AVX2_H
#define RAMET_KERNELS_X86_ROWS_AVX2_H

#include "kernels/tables.h"
#include "numerics/half.h"

#include <immintrin.h>
#include <string.h>

#define VEC        __m256i
#define VLOAD(p)   _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define VAND       _mm256_and_si256
#define VOR        _mm256_or_si256
#define VXOR       _mm256_xor_si256
#define VBYTES     _mm256_set1_epi8
#define VSLL(v, n) _mm256_sll_epi16(v, _mm_cvtsi32_si128(n))
#define VSRL(v, n) _mm256_srl_epi16(v, _mm_cvtsi32_si128(n))
#include "kernels/words.h"

ALWAYS_INLINE __m256i broadcast_4_bytes(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
}

ALWAYS_INLINE __m256 load_8_halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* 8 bytes of an array of rows as int32, zero or sign extended. */
ALWAYS_INLINE __m256i widen_rows(const uint8_t *p, bool is_signed) {
    const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return is_signed ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v);
}

/* The integer scale of run `run`, of 8 rows from `row`, as int32. */
ALWAYS_INLINE __m256i load_run_scale(ramet_dtype type, const uint8_t *block, uint32_t run, uint32_t row) {
    const __m256i v = widen_rows(run_scales(type, block) + 16 * run + row, type != RAMET_Q2_K);
    return type == RAMET_Q2_K ? _mm256_and_si256(v, _mm256_set1_epi32(15)) : v;
}

/* Row vectors of a half: what multiplies the integer sums, and what is added per 32. `i` counts halves in the block. */
ALWAYS_INLINE __m256 load_step(ramet_dtype type, const uint8_t *block, uint32_t i, uint32_t row) {
    const __m256 d = load_8_halves(block + 2 * row);
    if (!is_q45_k(type)) return d;
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(widen_rows(block + RAMET_Q4_K_SCALES + 16 * i + row, false)));
}

ALWAYS_INLINE __m256 negate(__m256 v) {
    return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f));
}

ALWAYS_INLINE __m256 load_offset32(ramet_dtype type, const uint8_t *block, uint32_t i, uint32_t row) {
    const __m256 m = load_8_halves(block + SECOND_SCALE + 2 * row);
    if (!is_q45_k(type)) return m;
    return negate(_mm256_mul_ps(m, _mm256_cvtepi32_ps(widen_rows(block + RAMET_Q4_K_MINS + 16 * i + row, false))));
}

/* Q2_K: of run `run`. */
ALWAYS_INLINE __m256 load_offset16(const uint8_t *block, uint32_t run, uint32_t row) {
    const __m256i min = _mm256_srli_epi32(widen_rows(block + RAMET_Q2_K_SCALES + 16 * run + row, false), 4);
    return negate(_mm256_mul_ps(load_8_halves(block + SECOND_SCALE + 2 * row), _mm256_cvtepi32_ps(min)));
}

ALWAYS_INLINE __m256 load_8_weights(ramet_dtype type, const uint8_t *p, uint32_t half) {
    if (type == RAMET_F32) return _mm256_castsi256_ps(VLOAD(p + 32 * half));
    if (type == RAMET_F16) return load_8_halves(p + 16 * half);
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * half));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* gemm_avx2.c: many columns. */
void ramet_gemm_fill_avx2(ramet_kernels *table);

#endif
