/* rows_avx512.h - what both AVX-512 matmuls read from a panel: words of quants, and vectors of the 16 rows' scales. */
#ifndef RAMET_KERNELS_X86_ROWS_AVX512_H
#define RAMET_KERNELS_X86_ROWS_AVX512_H

#include "kernels/tables.h"

#include <immintrin.h>
#include <string.h>

/* Float chains per output. One is the contract; a tool compiles two, to see what the order of the sums costs. */
#ifndef CHAINS
#define CHAINS 1
#endif

#define VEC        __m512i
#define VLOAD(p)   _mm512_loadu_si512(p)
#define VAND       _mm512_and_si512
#define VOR        _mm512_or_si512
#define VXOR       _mm512_xor_si512
#define VBYTES     _mm512_set1_epi8
#define VSLL(v, n) _mm512_sll_epi16(v, _mm_cvtsi32_si128(n))
#define VSRL(v, n) _mm512_srl_epi16(v, _mm_cvtsi32_si128(n))
#include "kernels/words.h"

ALWAYS_INLINE __m512i broadcast_4_bytes(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

ALWAYS_INLINE __m512 load_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* 16 bytes of an array of rows as int32, zero or sign extended. */
ALWAYS_INLINE __m512i widen_rows(const uint8_t *p, bool is_signed) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return is_signed ? _mm512_cvtepi8_epi32(v) : _mm512_cvtepu8_epi32(v);
}

ALWAYS_INLINE __m512i load_run_scale(ramet_dtype type, const uint8_t *block, uint32_t run) {
    const __m512i v = widen_rows(run_scales(type, block) + 16 * run, type != RAMET_Q2_K);
    return type == RAMET_Q2_K ? _mm512_and_si512(v, _mm512_set1_epi32(15)) : v;
}

/* Row vectors of a half: what multiplies the integer sums, and what is added per 32. `i` counts halves in the block. */
ALWAYS_INLINE __m512 load_step(ramet_dtype type, const uint8_t *block, uint32_t i) {
    const __m512 d = load_halves(block);
    if (!is_q45_k(type)) return d;
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(widen_rows(block + RAMET_Q4_K_SCALES + 16 * i, false)));
}

ALWAYS_INLINE __m512 negate(__m512 v) {
    return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f));
}

ALWAYS_INLINE __m512 load_offset32(ramet_dtype type, const uint8_t *block, uint32_t i) {
    const __m512 m = load_halves(block + SECOND_SCALE);
    if (!is_q45_k(type)) return m;
    return negate(_mm512_mul_ps(m, _mm512_cvtepi32_ps(widen_rows(block + RAMET_Q4_K_MINS + 16 * i, false))));
}

/* Q2_K: of run `run`. */
ALWAYS_INLINE __m512 load_offset16(const uint8_t *block, uint32_t run) {
    const __m512i min = _mm512_srli_epi32(widen_rows(block + RAMET_Q2_K_SCALES + 16 * run, false), 4);
    return negate(_mm512_mul_ps(load_halves(block + SECOND_SCALE), _mm512_cvtepi32_ps(min)));
}

ALWAYS_INLINE __m512 load_weights(ramet_dtype type, const uint8_t *p) {
    if (type == RAMET_F32) return _mm512_castsi512_ps(VLOAD(p));
    if (type == RAMET_F16) return load_halves(p);
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* gemm_avx512.c: two panels at once. */
void ramet_gemm_fill_avx512(ramet_kernels *table);

#endif
