/* matmul.c - the definition of every matmul: which sums are exact, and in which order the float chain of an output
 * adds. One routine for the block-quantised types and one for the float types; a type adds only its way to unpack a
 * block. The same routines run backwards for ramet_kernels_reorder. */
#include "kernels/c/unpack.h"
#include "kernels/tables.h"

#include <math.h>
#include <string.h>

/* What an output adds per block of 32 besides the two products. */
typedef enum offset_kind { OFFSET_NONE, OFFSET_PER_32, OFFSET_PER_16 } offset_kind;

static offset_kind offset_kind_of(ramet_dtype dtype) {
    switch (dtype) {
    case RAMET_Q4_1:
    case RAMET_Q5_1:
    case RAMET_Q4_K:
    case RAMET_Q5_K: return OFFSET_PER_32;
    case RAMET_Q2_K: return OFFSET_PER_16;
    default: return OFFSET_NONE;
    }
}

/* Over the two runs of one 32: isum[r] = sum of scale * q * x, wsum[r] = sum of scale * q, exact. */
static void sum_runs(const ramet_unpacked *w, uint32_t first_run, const int8_t *x, int32_t isum[RAMET_LANES],
                     int32_t wsum[RAMET_LANES]) {
    memset(isum, 0, RAMET_LANES * sizeof *isum);
    memset(wsum, 0, RAMET_LANES * sizeof *wsum);
    for (uint32_t i = 0; i < 2; ++i) {
        int32_t dot[RAMET_LANES] = {0}, sum[RAMET_LANES] = {0};
        for (uint32_t e = 0; e < RAMET_RUN; ++e)
            for (uint32_t r = 0; r < RAMET_LANES; ++r) {
                int32_t q = w->q[(first_run + i) * RAMET_RUN + e][r];
                dot[r] += q * x[i * RAMET_RUN + e];
                sum[r] += q;
            }
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            isum[r] += w->scale[first_run + i][r] * dot[r];
            wsum[r] += w->scale[first_run + i][r] * sum[r];
        }
    }
}

/* Block `half` of 32 inside w, times activation block `at`, added to the 16 outputs of a column. */
static void add_block(const ramet_unpacked *w, uint32_t half, offset_kind kind, const ramet_acts *acts, size_t at,
                      float out[RAMET_LANES]) {
    int32_t isum[RAMET_LANES], wsum[RAMET_LANES];
    sum_runs(w, 2 * half, acts->q + 32 * at, isum, wsum);
    for (uint32_t r = 0; r < RAMET_LANES; ++r) {
        float step = w->step[half][r], acc = out[r];
        acc = fmaf(step * acts->d[at], (float)isum[r], acc);
        acc = fmaf(step * (float)wsum[r], acts->z[at], acc);
        if (kind == OFFSET_PER_32) acc = fmaf(w->offset[2 * half][r], acts->s32[at], acc);
        if (kind == OFFSET_PER_16)
            for (uint32_t i = 0; i < 2; ++i) acc = fmaf(w->offset[2 * half + i][r], acts->s16[2 * at + i], acc);
        out[r] = acc;
    }
}

static void clear_out(uint32_t n_cols, float *out, size_t out_stride) {
    for (uint32_t c = 0; c < n_cols; ++c) memset(out + c * out_stride, 0, RAMET_LANES * sizeof *out);
}

static void multiply_blocks(ramet_dtype dtype, bool backward, const uint8_t *panel, const ramet_acts *acts,
                            uint32_t col, uint32_t n_cols, float *out, size_t out_stride) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const size_t block_bytes = (size_t)info->lane_bytes * RAMET_LANES;
    const uint32_t halves = info->block / 32, n_blocks = acts->n_k / info->block;
    const offset_kind kind = offset_kind_of(dtype);
    clear_out(n_cols, out, out_stride);
    for (uint32_t i = 0; i < n_blocks; ++i) {
        uint32_t block = backward ? n_blocks - 1 - i : i;
        ramet_unpacked w;
        ramet_unpack(dtype, panel + block * block_bytes, &w);
        for (uint32_t c = 0; c < n_cols; ++c)
            for (uint32_t j = 0; j < halves; ++j) {
                uint32_t half = backward ? halves - 1 - j : j;
                size_t at = (size_t)(col + c) * (acts->n_k / 32) + block * halves + half;
                add_block(&w, half, kind, acts, at, out + c * out_stride);
            }
    }
}

static void multiply_floats(ramet_dtype dtype, bool backward, const uint8_t *panel, const ramet_acts *acts,
                            uint32_t col, uint32_t n_cols, float *out, size_t out_stride) {
    const size_t step_bytes = (size_t)ramet_dtype_get(dtype)->lane_bytes * RAMET_LANES;
    clear_out(n_cols, out, out_stride);
    for (uint32_t i = 0; i < acts->n_k; ++i) {
        uint32_t k = backward ? acts->n_k - 1 - i : i;
        float w[RAMET_LANES];
        ramet_unpack_float(dtype, panel + k * step_bytes, w);
        for (uint32_t c = 0; c < n_cols; ++c) {
            float x = acts->f32[(size_t)(col + c) * acts->n_k + k];
            float *acc = out + c * out_stride;
            for (uint32_t r = 0; r < RAMET_LANES; ++r) acc[r] = fmaf(w[r], x, acc[r]);
        }
    }
}

/* Function names `name`_`type` for both families and both directions. */
#define MATMUL_DEFINE(name, type, multiply, backward)                                                                  \
    static void name##_##type(const uint8_t *panel, const ramet_acts *acts, uint32_t col, uint32_t n_cols, float *out, \
                              size_t out_stride) {                                                                     \
        multiply(RAMET_##type, backward, panel, acts, col, n_cols, out, out_stride);                                   \
    }
#define FLOAT_DEFINE(type)                                                                                             \
    MATMUL_DEFINE(matmul, type, multiply_floats, false)                                                                \
    MATMUL_DEFINE(backward, type, multiply_floats, n_cols > 1)
#define BLOCK_DEFINE(type)                                                                                             \
    MATMUL_DEFINE(matmul, type, multiply_blocks, false)                                                                \
    MATMUL_DEFINE(backward, type, multiply_blocks, n_cols > 1)
RAMET_FLOAT_TYPES(FLOAT_DEFINE)
RAMET_BLOCK_TYPES(BLOCK_DEFINE)

void ramet_matmul_fill_backward(ramet_kernels *table) {
#define BACKWARD_FILL(type) table->matmul[RAMET_##type] = backward_##type, table->matmul_pair[RAMET_##type] = NULL;
    RAMET_FLOAT_TYPES(BACKWARD_FILL)
    RAMET_BLOCK_TYPES(BACKWARD_FILL)
}

void ramet_matmul_fill_c(ramet_kernels *table) {
#define MATMUL_FILL(type) table->matmul[RAMET_##type] = matmul_##type;
    RAMET_FLOAT_TYPES(MATMUL_FILL)
    RAMET_BLOCK_TYPES(MATMUL_FILL)
}
