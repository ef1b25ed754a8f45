/* matmul_avx2.c - the matmuls with 8 rows to a vector: a panel is two halves, a tile up to 4 columns. For few columns;
 * gemm_avx2.c is for many. */
#if defined(__x86_64__)
#include "kernels/x86/rows_avx2.h"

enum { MAX_COLUMNS = 4, PREFETCH_BYTES = 2048 };

ALWAYS_INLINE void prefetch_ahead(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + PREFETCH_BYTES + i, _MM_HINT_T0);
}

ALWAYS_INLINE void store_columns(__m256 acc[2][MAX_COLUMNS], uint32_t columns, float *out, size_t out_stride) {
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        _mm256_storeu_ps(out + c * out_stride, acc[0][c]);
        _mm256_storeu_ps(out + c * out_stride + 8, acc[1][c]);
    }
}

/* Which part of each unsigned quant a dot takes. */
typedef enum quant_part { WHOLE, LOW_NIBBLE, HIGH_NIBBLE } quant_part;

/* dot[c] = the int16 sums of words [first, first + n) of one run, added to dot[c] unless `fresh`. */
ALWAYS_INLINE void add_words(ramet_dtype type, quant_part part, const uint8_t *block, uint32_t outer, uint32_t inner,
                             uint32_t at, const int8_t *const *x, uint32_t columns, uint32_t first, uint32_t n,
                             bool fresh, __m256i *dot) {
    UNROLL
    for (uint32_t word = first; word < first + n; ++word) {
        __m256i w = unpack_word(type, block, outer, inner, word, at);
        if (part != WHOLE) w = move_bits(w, part == HIGH_NIBBLE ? 4 : 0, 0, 0x0f);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            __m256i p = _mm256_maddubs_epi16(w, broadcast_4_bytes(x[c] + 4 * word));
            dot[c] = fresh && word == first ? p : _mm256_add_epi16(dot[c], p);
        }
    }
}

/* ---- int8 */

/* A half of 32 that is all ones: what it sums is the quants themselves. */
static const int8_t ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* isum[c] += factor * the dot of one half with (a part of) the unsigned quants; no integer scales. */
ALWAYS_INLINE void dot_plain(ramet_dtype type, quant_part which, int16_t factor, const uint8_t *block, uint32_t part,
                             uint32_t half, uint32_t at, const int8_t *const *x, uint32_t columns, __m256i *isum) {
    const bool narrow = type != RAMET_Q5_0 && type != RAMET_Q5_1 && type != RAMET_Q5_K; /* 4 bits: 32 fit int16 */
    __m256i dot[MAX_COLUMNS + 1];
    UNROLL
    for (uint32_t run = 0; run < 2; ++run) {
        const int8_t *at_run[MAX_COLUMNS + 1];
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) at_run[c] = x[c] + 16 * run;
        add_words(type, which, block, part, 2 * half + run, at, at_run, columns, 0, 4, run == 0 || !narrow, dot);
        if (narrow && run == 0) continue;
        UNROLL
        for (uint32_t c = 0; c < columns; ++c)
            isum[c] = _mm256_add_epi32(isum[c], _mm256_madd_epi16(dot[c], _mm256_set1_epi16(factor)));
    }
}

/* isum[c] += scale * the dot of one run; `scale` stands in both int16 of each lane. */
ALWAYS_INLINE void dot_scaled(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t inner, uint32_t at,
                              __m256i scale, const int8_t *const *x, uint32_t columns, __m256i *isum) {
    const uint32_t words_per_sum = type == RAMET_Q6_K ? 2 : 4;
    const int8_t *at_run[MAX_COLUMNS + 1];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) at_run[c] = x[c] + 16 * (inner % 2);
    UNROLL
    for (uint32_t word = 0; word < 4; word += words_per_sum) {
        __m256i dot[MAX_COLUMNS + 1];
        add_words(type, WHOLE, block, part, inner, at, at_run, columns, word, words_per_sum, true, dot);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) isum[c] = _mm256_add_epi32(isum[c], _mm256_madd_epi16(dot[c], scale));
    }
}

/* Takes the offset of the unsigned quants off again: isum -= offset * sum of scale * activations. */
ALWAYS_INLINE __m256i take_off(ramet_dtype type, __m256i isum, const __m256i scale[2], int32_t sum0, int32_t sum1) {
    const int32_t offset = quant_offset(type);
    if (!has_run_scales(type)) return _mm256_sub_epi32(isum, _mm256_set1_epi32(offset * (sum0 + sum1)));
    __m256i excess = _mm256_mullo_epi32(scale[0], _mm256_set1_epi32(offset * sum0));
    excess = _mm256_add_epi32(excess, _mm256_mullo_epi32(scale[1], _mm256_set1_epi32(offset * sum1)));
    return _mm256_sub_epi32(isum, excess);
}

/* isum[c] of one half of 32, signed, for 8 rows from `row`: all columns and, last, the ones. */
ALWAYS_INLINE void dot_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half, uint32_t row,
                            const ramet_acts *acts, const size_t *at, uint32_t columns, __m256i *isum) {
    const int8_t *x[MAX_COLUMNS + 1];
    __m256i scale[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    UNROLL
    for (uint32_t c = 0; c <= columns; ++c) {
        x[c] = c < columns ? acts->q + 32 * at[c] : ones;
        isum[c] = _mm256_setzero_si256();
    }
    if (has_run_scales(type)) {
        UNROLL
        for (uint32_t run = 0; run < 2; ++run) {
            const uint32_t inner = 2 * half + run;
            scale[run] = load_run_scale(type, block, 2 * halves_per_part(type) * part + inner, row);
            const __m256i pairs = _mm256_or_si256(_mm256_and_si256(scale[run], _mm256_set1_epi32(0xffff)),
                                                  _mm256_slli_epi32(scale[run], 16));
            dot_scaled(type, block, part, inner, 4 * row, pairs, x, columns + 1, isum);
        }
    } else if (type == RAMET_Q8_0) {
        dot_plain(type, LOW_NIBBLE, 1, block, part, half, 4 * row, x, columns + 1, isum);
        dot_plain(type, HIGH_NIBBLE, 16, block, part, half, 4 * row, x, columns + 1, isum);
    } else {
        dot_plain(type, WHOLE, 1, block, part, half, 4 * row, x, columns + 1, isum);
    }
    if (!quant_offset(type)) return;
    UNROLL
    for (uint32_t c = 0; c < columns; ++c)
        isum[c] = take_off(type, isum[c], scale, acts->sum16[2 * at[c]], acts->sum16[2 * at[c] + 1]);
    isum[columns] = take_off(type, isum[columns], scale, 16, 16);
}

/* The float chain of one half; isum as dot_half leaves it. */
ALWAYS_INLINE void add_half(ramet_dtype type, const uint8_t *block, uint32_t i, uint32_t row, const ramet_acts *acts,
                            const size_t *at, const __m256i *isum, uint32_t columns, __m256 *acc) {
    const __m256 step = load_step(type, block, i, row), wsum = _mm256_mul_ps(step, _mm256_cvtepi32_ps(isum[columns]));
    __m256 offset = _mm256_setzero_ps(), second = offset;
    if (has_offset32(type)) offset = load_offset32(type, block, i, row);
    if (type == RAMET_Q2_K) offset = load_offset16(block, 2 * i, row), second = load_offset16(block, 2 * i + 1, row);
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        const __m256 d = _mm256_mul_ps(step, _mm256_set1_ps(acts->d[at[c]]));
        acc[c] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum[c]), acc[c]);
        acc[c] = _mm256_fmadd_ps(wsum, _mm256_set1_ps(acts->z[at[c]]), acc[c]);
        if (has_offset32(type)) acc[c] = _mm256_fmadd_ps(offset, _mm256_set1_ps(acts->s32[at[c]]), acc[c]);
        if (type != RAMET_Q2_K) continue;
        acc[c] = _mm256_fmadd_ps(offset, _mm256_set1_ps(acts->s16[2 * at[c]]), acc[c]);
        acc[c] = _mm256_fmadd_ps(second, _mm256_set1_ps(acts->s16[2 * at[c] + 1]), acc[c]);
    }
}

ALWAYS_INLINE void multiply_blocks(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const uint32_t parts = parts_per_block(type), halves = halves_per_part(type);
    const size_t n_halves = acts->n_k / 32, n_blocks = n_halves / (parts * halves), bytes = block_bytes(type);
    size_t at[MAX_COLUMNS];
    __m256 acc[2][MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) acc[0][c] = acc[1][c] = _mm256_setzero_ps(), at[c] = (col + c) * n_halves;
    for (size_t b = 0; b < n_blocks; ++b, panel += bytes)
        for (uint32_t part = 0; part < parts; ++part) {
            prefetch_ahead(panel + part * (bytes / parts), bytes / parts);
            UNROLL
            for (uint32_t half = 0; half < halves; ++half) {
                UNROLL
                for (uint32_t rows = 0; rows < 2; ++rows) {
                    __m256i isum[MAX_COLUMNS + 1];
                    dot_half(type, panel, part, half, 8 * rows, acts, at, columns, isum);
                    add_half(type, panel, part * halves + half, 8 * rows, acts, at, isum, columns, acc[rows]);
                }
                UNROLL
                for (uint32_t c = 0; c < columns; ++c) ++at[c];
            }
        }
    store_columns(acc, columns, out, out_stride);
}

/* ---- floats */

ALWAYS_INLINE void multiply_floats(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const size_t n_k = acts->n_k, bytes = type == RAMET_F32 ? 64 : 32;
    const float *x = acts->f32 + col * n_k;
    __m256 acc[2][MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) acc[0][c] = acc[1][c] = _mm256_setzero_ps();
    for (size_t k = 0; k < n_k; ++k, panel += bytes) {
        prefetch_ahead(panel, 1);
        __m256 w0 = load_8_weights(type, panel, 0), w1 = load_8_weights(type, panel, 1);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            __m256 v = _mm256_set1_ps(x[c * n_k + k]);
            acc[0][c] = _mm256_fmadd_ps(w0, v, acc[0][c]);
            acc[1][c] = _mm256_fmadd_ps(w1, v, acc[1][c]);
        }
    }
    store_columns(acc, columns, out, out_stride);
}

#define TILE_WIDTHS(X) X(4) X(2) X(1)
#include "kernels/matmul_tiles.h"

void ramet_matmul_fill_avx2(ramet_kernels *table) {
    fill_matmul(table);
    ramet_gemm_fill_avx2(table);
}
#endif
