/* gemm.h - what both GEMMs have in common: how columns are cut, and the table of one function per type of weights. */
#ifndef RAMET_KERNELS_X86_GEMM_H
#define RAMET_KERNELS_X86_GEMM_H

#include "kernels/inline.h"
#include "kernels/tables.h"

#include <string.h>

/* What to take of `left` next, at most `max` at a time: as few pieces as possible, as even as possible. */
ALWAYS_INLINE uint32_t even_piece(uint32_t left, uint32_t max) {
    const uint32_t n_pieces = (left + max - 1) / max;
    return (left + n_pieces - 1) / n_pieces;
}

static inline void clear_out(uint32_t n_rows, uint32_t n_cols, float *out, size_t out_stride) {
    for (uint32_t c = 0; c < n_cols; ++c) memset(out + c * out_stride, 0, n_rows * sizeof *out);
}

/* At the end of a file that has multiply_blocks and multiply_floats(type, panels, acts, col, n_cols, out, out_stride), where
 * `type` is a constant: gemm_<type> for every type, and fill_gemm. */
#define GEMM_DEFINE(type, multiply)                                                                                    \
    static void gemm_##type(const uint8_t *panels, const ramet_acts *acts, uint32_t col, uint32_t n_cols, float *out,  \
                            size_t out_stride) {                                                                       \
        multiply(RAMET_##type, panels, acts, col, n_cols, out, out_stride);                                            \
    }
#define GEMM_OF_FLOATS(type) GEMM_DEFINE(type, multiply_floats)
#define GEMM_OF_BLOCKS(type) GEMM_DEFINE(type, multiply_blocks)
#define GEMM_FILL(type)      table->matmul_pair[RAMET_##type] = gemm_##type;
#define GEMM_TABLE                                                                                                     \
    RAMET_FLOAT_TYPES(GEMM_OF_FLOATS)                                                                                  \
    RAMET_BLOCK_TYPES(GEMM_OF_BLOCKS)                                                                                  \
    static void fill_gemm(ramet_kernels *table) {                                                                      \
        RAMET_FLOAT_TYPES(GEMM_FILL)                                                                                   \
        RAMET_BLOCK_TYPES(GEMM_FILL)                                                                                   \
    }

#endif
