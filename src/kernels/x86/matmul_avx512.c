/* matmul_avx512.c - the matmuls with all 16 rows of a panel in one vector, a tile up to 8 columns. VNNI adds four
 * products u8 * s8 to an int32, exactly; signed quants come with an offset (words.h), which the sums of the activations
 * take off again. */
#if defined(__x86_64__)
#include "kernels/tables.h"

#include <immintrin.h>
#include <string.h>

#define VEC        __m512i
#define VLOAD(p)   _mm512_loadu_si512(p)
#define VAND       _mm512_and_si512
#define VOR        _mm512_or_si512
#define VXOR       _mm512_xor_si512
#define VBYTES     _mm512_set1_epi8
#define VSLL(v, n) _mm512_sll_epi16(v, _mm_cvtsi32_si128(n))
#define VSRL(v, n) _mm512_srl_epi16(v, _mm_cvtsi32_si128(n))
#include "kernels/words.h"

enum { MAX_COLUMNS = 8, PREFETCH_BYTES = 2048 };

ALWAYS_INLINE __m512i broadcast_4_bytes(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

ALWAYS_INLINE __m512 load_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ALWAYS_INLINE void prefetch_ahead(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + PREFETCH_BYTES + i, _MM_HINT_T0);
}

ALWAYS_INLINE void store_columns(const __m512 *acc, uint32_t columns, float *out, size_t out_stride) {
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) _mm512_storeu_ps(out + c * out_stride, acc[c]);
}

/* A half of 32 that is all ones: what it sums is the quants themselves. */
static const int8_t ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* dot[c] += the dot of one run with the unsigned quants, for all columns and, last, for the ones. */
ALWAYS_INLINE void dot_run(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t inner,
                           const int8_t *const *x, uint32_t columns, __m512i *dot) {
    UNROLL
    for (uint32_t word = 0; word < 4; ++word) {
        const __m512i w = unpack_word(type, block, part, inner, word, 0);
        UNROLL
        for (uint32_t c = 0; c <= columns; ++c)
            dot[c] = _mm512_dpbusd_epi32(dot[c], w, broadcast_4_bytes(x[c] + 16 * (inner % 2) + 4 * word));
    }
}

/* 16 bytes of an array of rows as int32, zero or sign extended. */
ALWAYS_INLINE __m512i widen_rows(const uint8_t *p, bool is_signed) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return is_signed ? _mm512_cvtepi8_epi32(v) : _mm512_cvtepu8_epi32(v);
}

/* Adds scale * dot. Where the dot of a run fits int16 (Q2_K, Q3_K), that is one instruction: the scale stands in the low half
 * of each lane, zero in the high half. */
ALWAYS_INLINE __m512i add_scaled(ramet_dtype type, __m512i sum, __m512i dot, __m512i scale) {
    if (type == RAMET_Q6_K) return _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, scale));
    return _mm512_dpwssd_epi32(sum, dot, _mm512_and_si512(scale, _mm512_set1_epi32(0xffff)));
}

ALWAYS_INLINE __m512i load_run_scale(ramet_dtype type, const uint8_t *block, uint32_t run) {
    const __m512i v = widen_rows(run_scales(type, block) + 16 * run, type != RAMET_Q2_K);
    return type == RAMET_Q2_K ? _mm512_and_si512(v, _mm512_set1_epi32(15)) : v;
}

/* isum[c] of one half, signed, for all columns and the ones; at[c] is the activations' half. */
ALWAYS_INLINE void dot_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half,
                            const ramet_acts *acts, const size_t *at, uint32_t columns, __m512i *isum) {
    const int32_t offset = quant_offset(type);
    const int8_t *x[MAX_COLUMNS + 1];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) x[c] = acts->q + 32 * at[c];
    x[columns] = ones;
    if (!has_run_scales(type)) {
        UNROLL
        for (uint32_t c = 0; c < columns; ++c)
            isum[c] = offset ? _mm512_set1_epi32(-offset * acts->sum32[at[c]]) : _mm512_setzero_si512();
        isum[columns] = _mm512_set1_epi32(-offset * 32);
        dot_run(type, block, part, 2 * half, x, columns, isum);
        dot_run(type, block, part, 2 * half + 1, x, columns, isum);
        return;
    }
    UNROLL
    for (uint32_t run = 0; run < 2; ++run) {
        const uint32_t inner = 2 * half + run;
        const __m512i scale = load_run_scale(type, block, 2 * halves_per_part(type) * part + inner);
        __m512i dot[MAX_COLUMNS + 1];
        UNROLL
        for (uint32_t c = 0; c < columns; ++c)
            dot[c] = offset ? _mm512_set1_epi32(-offset * acts->sum16[2 * at[c] + run]) : _mm512_setzero_si512();
        dot[columns] = _mm512_set1_epi32(-offset * 16);
        dot_run(type, block, part, inner, x, columns, dot);
        UNROLL
        for (uint32_t c = 0; c <= columns; ++c)
            isum[c] = add_scaled(type, run == 0 ? _mm512_setzero_si512() : isum[c], dot[c], scale);
    }
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

/* The float chain of one half; isum as dot_half leaves it. */
ALWAYS_INLINE void add_half(ramet_dtype type, const uint8_t *block, uint32_t i, const ramet_acts *acts,
                            const size_t *at, const __m512i *isum, uint32_t columns, __m512 *acc) {
    const __m512 step = load_step(type, block, i), wsum = _mm512_mul_ps(step, _mm512_cvtepi32_ps(isum[columns]));
    __m512 offset = _mm512_setzero_ps(), second = offset;
    if (has_offset32(type)) offset = load_offset32(type, block, i);
    if (type == RAMET_Q2_K) offset = load_offset16(block, 2 * i), second = load_offset16(block, 2 * i + 1);
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        const __m512 d = _mm512_mul_ps(step, _mm512_set1_ps(acts->d[at[c]]));
        acc[c] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(isum[c]), acc[c]);
        acc[c] = _mm512_fmadd_ps(wsum, _mm512_set1_ps(acts->z[at[c]]), acc[c]);
        if (has_offset32(type)) acc[c] = _mm512_fmadd_ps(offset, _mm512_set1_ps(acts->s32[at[c]]), acc[c]);
        if (type != RAMET_Q2_K) continue;
        acc[c] = _mm512_fmadd_ps(offset, _mm512_set1_ps(acts->s16[2 * at[c]]), acc[c]);
        acc[c] = _mm512_fmadd_ps(second, _mm512_set1_ps(acts->s16[2 * at[c] + 1]), acc[c]);
    }
}

ALWAYS_INLINE void multiply_blocks(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const uint32_t parts = parts_per_block(type), halves = halves_per_part(type);
    const size_t n_halves = acts->n_k / 32, n_blocks = n_halves / (parts * halves), bytes = block_bytes(type);
    size_t at[MAX_COLUMNS];
    __m512 acc[MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) acc[c] = _mm512_setzero_ps(), at[c] = (col + c) * n_halves;
    for (size_t b = 0; b < n_blocks; ++b, panel += bytes)
        for (uint32_t part = 0; part < parts; ++part) {
            prefetch_ahead(panel + part * (bytes / parts), bytes / parts);
            UNROLL
            for (uint32_t half = 0; half < halves; ++half) {
                __m512i isum[MAX_COLUMNS + 1];
                dot_half(type, panel, part, half, acts, at, columns, isum);
                add_half(type, panel, part * halves + half, acts, at, isum, columns, acc);
                UNROLL
                for (uint32_t c = 0; c < columns; ++c) ++at[c];
            }
        }
    store_columns(acc, columns, out, out_stride);
}

/* ---- floats */

ALWAYS_INLINE __m512 load_weights(ramet_dtype type, const uint8_t *p) {
    if (type == RAMET_F32) return _mm512_castsi512_ps(VLOAD(p));
    if (type == RAMET_F16) return load_halves(p);
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

ALWAYS_INLINE void multiply_floats(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const size_t n_k = acts->n_k, bytes = type == RAMET_F32 ? 64 : 32;
    const float *x = acts->f32 + col * n_k;
    __m512 acc[MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) acc[c] = _mm512_setzero_ps();
    for (size_t k = 0; k < n_k; ++k, panel += bytes) {
        prefetch_ahead(panel, 1);
        const __m512 w = load_weights(type, panel);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) acc[c] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[c * n_k + k]), acc[c]);
    }
    store_columns(acc, columns, out, out_stride);
}

/* ---- one function per type; a tile is compiled for each constant width */

ALWAYS_INLINE void multiply_tile(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                 uint32_t columns, float *out, size_t out_stride) {
    if (type == RAMET_F32 || type == RAMET_F16 || type == RAMET_BF16)
        multiply_floats(type, panel, acts, col, columns, out, out_stride);
    else
        multiply_blocks(type, panel, acts, col, columns, out, out_stride);
}

#define MATMUL_MAP(X)                                                                                                  \
    X(F32) X(F16) X(BF16) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K)

#define MATMUL_DEFINE(type)                                                                                            \
    static void matmul_##type(const uint8_t *panel, const ramet_acts *acts, uint32_t col, uint32_t n_cols, float *out, \
                              size_t stride) {                                                                         \
        uint32_t c = 0;                                                                                                \
        for (; n_cols - c >= 8; c += 8)                                                                                \
            multiply_tile(RAMET_##type, panel, acts, col + c, 8, out + c * stride, stride);                            \
        for (; n_cols - c >= 4; c += 4)                                                                                \
            multiply_tile(RAMET_##type, panel, acts, col + c, 4, out + c * stride, stride);                            \
        for (; n_cols - c >= 2; c += 2)                                                                                \
            multiply_tile(RAMET_##type, panel, acts, col + c, 2, out + c * stride, stride);                            \
        for (; n_cols - c >= 1; c += 1)                                                                                \
            multiply_tile(RAMET_##type, panel, acts, col + c, 1, out + c * stride, stride);                            \
    }
MATMUL_MAP(MATMUL_DEFINE)

void ramet_matmul_fill_avx512(ramet_kernels *table) {
#define MATMUL_FILL(type) table->matmul[RAMET_##type] = matmul_##type;
    MATMUL_MAP(MATMUL_FILL)
}
#endif
