/* matmul_avx512.c - one panel over few columns: all 16 rows in one vector, a tile up to 8 columns, and no more memory read
 * than the weights. VNNI adds four products u8 * s8 to an int32, exactly; signed quants come with an offset (words.h), which
 * the sums of the activations take off again. gemm_avx512.c has many columns. */
#if defined(__x86_64__)
#include "kernels/x86/rows_avx512.h"

enum { MAX_COLUMNS = 8, PREFETCH_BYTES = 2048 };

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

/* (float)isum of one half, signed, for all columns and the ones; at[c] is the activations' half. Scaled runs are put together
 * as floats, exactly: of Q6_K, the largest, each product is at most 128 * 16 * 32 * 128 = 2^23. */
ALWAYS_INLINE void sum_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half,
                            const ramet_acts *acts, const size_t *at, uint32_t columns, __m512 *sum) {
    const int32_t offset = quant_offset(type);
    const uint32_t n_runs = has_run_scales(type) ? 2 : 1;
    const int8_t *x[MAX_COLUMNS + 1];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) x[c] = acts->q + 32 * at[c];
    x[columns] = ones;
    UNROLL
    for (uint32_t run = 0; run < n_runs; ++run) {
        const int32_t *sums = n_runs == 2 ? acts->sum16 + run : acts->sum32;
        __m512i dot[MAX_COLUMNS + 1];
        UNROLL
        for (uint32_t c = 0; c < columns; ++c)
            dot[c] = offset ? _mm512_set1_epi32(-offset * sums[n_runs * at[c]]) : _mm512_setzero_si512();
        dot[columns] = _mm512_set1_epi32(-offset * (32 / (int32_t)n_runs));
        dot_run(type, block, part, 2 * half + run, x, columns, dot);
        if (n_runs == 1) dot_run(type, block, part, 2 * half + 1, x, columns, dot);
        __m512 scale = _mm512_setzero_ps();
        if (n_runs == 2)
            scale = _mm512_cvtepi32_ps(load_run_scale(type, block, 2 * (part * halves_per_part(type) + half) + run));
        UNROLL
        for (uint32_t c = 0; c <= columns; ++c) {
            const __m512 v = _mm512_cvtepi32_ps(dot[c]);
            sum[c] = n_runs == 1 ? v : run == 0 ? _mm512_mul_ps(scale, v) : _mm512_fmadd_ps(scale, v, sum[c]);
        }
    }
}

/* The float chain of one half; sum as sum_half leaves it. */
ALWAYS_INLINE void add_half(ramet_dtype type, const uint8_t *block, uint32_t i, const ramet_acts *acts,
                            const size_t *at, const __m512 *sum, uint32_t columns, __m512 acc[CHAINS][MAX_COLUMNS]) {
    const __m512 step = load_step(type, block, i), wsum = _mm512_mul_ps(step, sum[columns]);
    __m512 offset = _mm512_setzero_ps(), second = offset;
    if (has_offset32(type)) offset = load_offset32(type, block, i);
    if (type == RAMET_Q2_K) offset = load_offset16(block, 2 * i), second = load_offset16(block, 2 * i + 1);
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        const __m512 d = _mm512_mul_ps(step, _mm512_set1_ps(acts->d[at[c]]));
        __m512 *chain = &acc[CHAINS - 1][c];
        acc[0][c] = _mm512_fmadd_ps(d, sum[c], acc[0][c]);
        *chain = _mm512_fmadd_ps(wsum, _mm512_set1_ps(acts->z[at[c]]), *chain);
        if (has_offset32(type)) *chain = _mm512_fmadd_ps(offset, _mm512_set1_ps(acts->s32[at[c]]), *chain);
        if (type != RAMET_Q2_K) continue;
        *chain = _mm512_fmadd_ps(offset, _mm512_set1_ps(acts->s16[2 * at[c]]), *chain);
        *chain = _mm512_fmadd_ps(second, _mm512_set1_ps(acts->s16[2 * at[c] + 1]), *chain);
    }
}

ALWAYS_INLINE void multiply_blocks(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const uint32_t parts = parts_per_block(type), halves = halves_per_part(type);
    const size_t n_halves = acts->n_k / 32, n_blocks = n_halves / (parts * halves), bytes = block_bytes(type);
    size_t at[MAX_COLUMNS];
    __m512 acc[CHAINS][MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        at[c] = (col + c) * n_halves;
        UNROLL
        for (uint32_t i = 0; i < CHAINS; ++i) acc[i][c] = _mm512_setzero_ps();
    }
    for (size_t b = 0; b < n_blocks; ++b, panel += bytes)
        for (uint32_t part = 0; part < parts; ++part) {
            prefetch_ahead(panel + part * (bytes / parts), bytes / parts);
            UNROLL
            for (uint32_t half = 0; half < halves; ++half) {
                __m512 sum[MAX_COLUMNS + 1];
                sum_half(type, panel, part, half, acts, at, columns, sum);
                add_half(type, panel, part * halves + half, acts, at, sum, columns, acc);
                UNROLL
                for (uint32_t c = 0; c < columns; ++c) ++at[c];
            }
        }
    UNROLL
    for (uint32_t c = 0; CHAINS > 1 && c < columns; ++c) acc[0][c] = _mm512_add_ps(acc[0][c], acc[CHAINS - 1][c]);
    store_columns(acc[0], columns, out, out_stride);
}

/* ---- floats */

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

#define TILE_WIDTHS(X) X(8) X(4) X(2) X(1)
#include "kernels/matmul_tiles.h"

void ramet_matmul_fill_avx512(ramet_kernels *table) {
    fill_matmul(table);
    ramet_gemm_fill_avx512(table);
}
#endif
