/* matmul_neon.c - the matmuls with 4 rows to a vector: a panel is four groups of rows, a tile up to 4 columns. sdot adds
 * four products s8 * s8 to an int32, exactly. Quants with an offset (words.h) are below 128 and go in as they are; the sums
 * of the activations take the offset off again. */
#if defined(__aarch64__)
#include "kernels/tables.h"

#include <arm_neon.h>
#include <string.h>

#define VEC        uint8x16_t
#define VLOAD(p)   vld1q_u8(p)
#define VAND       vandq_u8
#define VOR        vorrq_u8
#define VXOR       veorq_u8
#define VBYTES(b)  vdupq_n_u8((uint8_t)(b))
#define VSLL(v, n) ((v) << (uint8_t)(n))
#define VSRL(v, n) ((v) >> (uint8_t)(n))
#include "kernels/words.h"

enum { MAX_COLUMNS = 4, GROUPS = 4, GROUP_ROWS = 4, PREFETCH_BYTES = 1024 };

ALWAYS_INLINE float32x4_t load_4_halves(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

/* 4 bytes of an array of rows as int32, zero or sign extended. */
ALWAYS_INLINE int32x4_t widen_rows(const uint8_t *p, bool is_signed) {
    uint32_t rows;
    memcpy(&rows, p, sizeof rows);
    const uint8x8_t v = vcreate_u8(rows);
    if (is_signed) return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(v))));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(v))));
}

ALWAYS_INLINE void prefetch_ahead(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + PREFETCH_BYTES + i);
}

ALWAYS_INLINE void store_columns(float32x4_t acc[GROUPS][MAX_COLUMNS], uint32_t columns, float *out,
                                 size_t out_stride) {
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        UNROLL
        for (uint32_t g = 0; g < GROUPS; ++g) vst1q_f32(out + c * out_stride + GROUP_ROWS * g, acc[g][c]);
    }
}

/* ---- int8 */

/* Q8_0 comes without its offset: sdot wants it signed. */
ALWAYS_INLINE int32_t sdot_offset(ramet_dtype type) {
    return type == RAMET_Q8_0 ? 0 : quant_offset(type);
}

ALWAYS_INLINE int8x16_t load_word(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t inner, uint32_t word,
                                  uint32_t row) {
    const VEC w = unpack_word(type, block, part, inner, word, 4 * row);
    return vreinterpretq_s8_u8(type == RAMET_Q8_0 ? VXOR(w, VBYTES(0x80)) : w);
}

/* sum + the dot of w with bytes 4 word .. 4 word + 3 of x in every lane; the instruction wants a literal. */
ALWAYS_INLINE int32x4_t dot_word(int32x4_t sum, int8x16_t w, int8x16_t x, uint32_t word) {
    switch (word) {
    case 0: return vdotq_laneq_s32(sum, w, x, 0);
    case 1: return vdotq_laneq_s32(sum, w, x, 1);
    case 2: return vdotq_laneq_s32(sum, w, x, 2);
    default: return vdotq_laneq_s32(sum, w, x, 3);
    }
}

/* dot[c] += the dot of one run with the quants of 4 rows from `row`, for all columns and, last, for the ones. */
ALWAYS_INLINE void dot_run(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t inner, uint32_t row,
                           int8x16_t x[][2], uint32_t columns, int32x4_t *dot) {
    UNROLL
    for (uint32_t word = 0; word < 4; ++word) {
        const int8x16_t w = load_word(type, block, part, inner, word, row);
        UNROLL
        for (uint32_t c = 0; c <= columns; ++c) dot[c] = dot_word(dot[c], w, x[c][inner % 2], word);
    }
}

/* The integer scale of run `run`, of 4 rows from `row`. */
ALWAYS_INLINE int32x4_t load_run_scale(ramet_dtype type, const uint8_t *block, uint32_t run, uint32_t row) {
    const int32x4_t v = widen_rows(run_scales(type, block) + 16 * run + row, type != RAMET_Q2_K);
    return type == RAMET_Q2_K ? vandq_s32(v, vdupq_n_s32(15)) : v;
}

/* isum[c] of one half, signed, for 4 rows from `row`: all columns and the ones; at[c] is the activations' half. */
ALWAYS_INLINE void dot_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half, uint32_t row,
                            const ramet_acts *acts, const size_t *at, int8x16_t x[][2], uint32_t columns,
                            int32x4_t *isum) {
    const int32_t offset = sdot_offset(type);
    if (!has_run_scales(type)) {
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) isum[c] = vdupq_n_s32(-offset * acts->sum32[at[c]]);
        isum[columns] = vdupq_n_s32(-offset * 32);
        dot_run(type, block, part, 2 * half, row, x, columns, isum);
        dot_run(type, block, part, 2 * half + 1, row, x, columns, isum);
        return;
    }
    UNROLL
    for (uint32_t run = 0; run < 2; ++run) {
        const uint32_t inner = 2 * half + run;
        const int32x4_t scale = load_run_scale(type, block, 2 * halves_per_part(type) * part + inner, row);
        int32x4_t dot[MAX_COLUMNS + 1];
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) dot[c] = vdupq_n_s32(-offset * acts->sum16[2 * at[c] + run]);
        dot[columns] = vdupq_n_s32(-offset * 16);
        dot_run(type, block, part, inner, row, x, columns, dot);
        UNROLL
        for (uint32_t c = 0; c <= columns; ++c)
            isum[c] = run == 0 ? vmulq_s32(dot[c], scale) : vmlaq_s32(isum[c], dot[c], scale);
    }
}

/* Row vectors of a half: what multiplies the integer sums, and what is added per 32. `i` counts halves in the block. */
ALWAYS_INLINE float32x4_t load_step(ramet_dtype type, const uint8_t *block, uint32_t i, uint32_t row) {
    const float32x4_t d = load_4_halves(block + 2 * row);
    if (!is_q45_k(type)) return d;
    return vmulq_f32(d, vcvtq_f32_s32(widen_rows(block + RAMET_Q4_K_SCALES + 16 * i + row, false)));
}

ALWAYS_INLINE float32x4_t load_offset32(ramet_dtype type, const uint8_t *block, uint32_t i, uint32_t row) {
    const float32x4_t m = load_4_halves(block + SECOND_SCALE + 2 * row);
    if (!is_q45_k(type)) return m;
    return vnegq_f32(vmulq_f32(m, vcvtq_f32_s32(widen_rows(block + RAMET_Q4_K_MINS + 16 * i + row, false))));
}

/* Q2_K: of run `run`. */
ALWAYS_INLINE float32x4_t load_offset16(const uint8_t *block, uint32_t run, uint32_t row) {
    const int32x4_t min = vshrq_n_s32(widen_rows(block + RAMET_Q2_K_SCALES + 16 * run + row, false), 4);
    return vnegq_f32(vmulq_f32(load_4_halves(block + SECOND_SCALE + 2 * row), vcvtq_f32_s32(min)));
}

/* The float chain of one half; isum as dot_half leaves it. */
ALWAYS_INLINE void add_half(ramet_dtype type, const uint8_t *block, uint32_t i, uint32_t row, const ramet_acts *acts,
                            const size_t *at, const int32x4_t *isum, uint32_t columns, float32x4_t *acc) {
    const float32x4_t step = load_step(type, block, i, row), wsum = vmulq_f32(step, vcvtq_f32_s32(isum[columns]));
    float32x4_t offset = vdupq_n_f32(0.0f), second = offset;
    if (has_offset32(type)) offset = load_offset32(type, block, i, row);
    if (type == RAMET_Q2_K) offset = load_offset16(block, 2 * i, row), second = load_offset16(block, 2 * i + 1, row);
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(step, acts->d[at[c]]), vcvtq_f32_s32(isum[c]));
        acc[c] = vfmaq_n_f32(acc[c], wsum, acts->z[at[c]]);
        if (has_offset32(type)) acc[c] = vfmaq_n_f32(acc[c], offset, acts->s32[at[c]]);
        if (type != RAMET_Q2_K) continue;
        acc[c] = vfmaq_n_f32(acc[c], offset, acts->s16[2 * at[c]]);
        acc[c] = vfmaq_n_f32(acc[c], second, acts->s16[2 * at[c] + 1]);
    }
}

/* Half `half` of part `part` for all rows; the activations are loaded once for the four groups. Unrolled over these too,
 * a tile of Q6_K would not fit a first-level cache. */
ALWAYS_INLINE void multiply_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half,
                                 const ramet_acts *acts, const size_t *at, uint32_t columns,
                                 float32x4_t acc[GROUPS][MAX_COLUMNS]) {
    int8x16_t x[MAX_COLUMNS + 1][2];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        const int8_t *q = acts->q + 32 * at[c];
        x[c][0] = vld1q_s8(q), x[c][1] = vld1q_s8(q + 16);
    }
    x[columns][0] = x[columns][1] = vdupq_n_s8(1); /* what the ones sum is the quants themselves */
    for (uint32_t g = 0; g < GROUPS; ++g) {
        int32x4_t isum[MAX_COLUMNS + 1];
        dot_half(type, block, part, half, GROUP_ROWS * g, acts, at, x, columns, isum);
        add_half(type, block, part * halves_per_part(type) + half, GROUP_ROWS * g, acts, at, isum, columns, acc[g]);
    }
}

ALWAYS_INLINE void multiply_blocks(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const uint32_t parts = parts_per_block(type), halves = halves_per_part(type);
    const size_t n_halves = acts->n_k / 32, n_blocks = n_halves / (parts * halves), bytes = block_bytes(type);
    size_t at[MAX_COLUMNS];
    float32x4_t acc[GROUPS][MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        at[c] = (col + c) * n_halves;
        UNROLL
        for (uint32_t g = 0; g < GROUPS; ++g) acc[g][c] = vdupq_n_f32(0.0f);
    }
    for (size_t b = 0; b < n_blocks; ++b, panel += bytes)
        for (uint32_t part = 0; part < parts; ++part) {
            prefetch_ahead(panel + part * (bytes / parts), bytes / parts);
            UNROLL
            for (uint32_t half = 0; half < halves; ++half) {
                multiply_half(type, panel, part, half, acts, at, columns, acc);
                UNROLL
                for (uint32_t c = 0; c < columns; ++c) ++at[c];
            }
        }
    store_columns(acc, columns, out, out_stride);
}

/* ---- floats */

/* Group `group` of the 16 values of one k. */
ALWAYS_INLINE float32x4_t load_4_weights(ramet_dtype type, const uint8_t *p, uint32_t group) {
    if (type == RAMET_F32) return vreinterpretq_f32_u8(vld1q_u8(p + 16 * group));
    if (type == RAMET_F16) return load_4_halves(p + 8 * group);
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * group)), 16));
}

ALWAYS_INLINE void multiply_floats(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                   uint32_t columns, float *out, size_t out_stride) {
    const size_t n_k = acts->n_k, bytes = type == RAMET_F32 ? 64 : 32;
    const float *x = acts->f32 + col * n_k;
    float32x4_t acc[GROUPS][MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        UNROLL
        for (uint32_t g = 0; g < GROUPS; ++g) acc[g][c] = vdupq_n_f32(0.0f);
    }
    for (size_t k = 0; k < n_k; ++k, panel += bytes) {
        prefetch_ahead(panel, 1);
        UNROLL
        for (uint32_t g = 0; g < GROUPS; ++g) {
            const float32x4_t w = load_4_weights(type, panel, g);
            UNROLL
            for (uint32_t c = 0; c < columns; ++c) acc[g][c] = vfmaq_n_f32(acc[g][c], w, x[c * n_k + k]);
        }
    }
    store_columns(acc, columns, out, out_stride);
}

#define TILE_WIDTHS(X) X(4) X(2) X(1)
#include "kernels/matmul_tiles.h"

void ramet_matmul_fill_neon(ramet_kernels *table) {
    fill_matmul(table);
}
#endif
