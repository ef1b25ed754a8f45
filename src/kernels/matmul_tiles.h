/* matmul_tiles.h - one matmul per type of weights, its columns cut into tiles, each compiled for a constant width. The
 * including file defines
 *   TILE_WIDTHS(X): X(w) for each width, widest first, 1 last
 *   multiply_blocks and multiply_floats(type, panel, acts, col, columns, out, out_stride) for constant type and columns. */
#ifndef RAMET_KERNELS_MATMUL_TILES_H
#define RAMET_KERNELS_MATMUL_TILES_H

#include "kernels/inline.h"
#include "kernels/tables.h"

ALWAYS_INLINE void multiply_tile(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                 uint32_t columns, float *out, size_t out_stride) {
    if (type == RAMET_F32 || type == RAMET_F16 || type == RAMET_BF16)
        multiply_floats(type, panel, acts, col, columns, out, out_stride);
    else
        multiply_blocks(type, panel, acts, col, columns, out, out_stride);
}

#define CUT_TILES(width)                                                                                               \
    for (; n_cols - c >= width; c += width)                                                                            \
        multiply_tile(type, panel, acts, col + c, width, out + c * out_stride, out_stride);
ALWAYS_INLINE void multiply_columns(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                    uint32_t n_cols, float *out, size_t out_stride) {
    uint32_t c = 0;
    TILE_WIDTHS(CUT_TILES)
}

#define MATMUL_DEFINE(name)                                                                                            \
    static void matmul_##name(const uint8_t *panel, const ramet_acts *acts, uint32_t col, uint32_t n_cols, float *out, \
                              size_t out_stride) {                                                                     \
        multiply_columns(RAMET_##name, panel, acts, col, n_cols, out, out_stride);                                     \
    }
RAMET_FLOAT_TYPES(MATMUL_DEFINE)
RAMET_BLOCK_TYPES(MATMUL_DEFINE)

static void fill_matmul(ramet_kernels *table) {
#define MATMUL_FILL(name) table->matmul[RAMET_##name] = matmul_##name;
    RAMET_FLOAT_TYPES(MATMUL_FILL)
    RAMET_BLOCK_TYPES(MATMUL_FILL)
}

#endif
