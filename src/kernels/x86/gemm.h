/* gemm.h - what both GEMMs do with columns. */
#ifndef RAMET_KERNELS_X86_GEMM_H
#define RAMET_KERNELS_X86_GEMM_H

#include "kernels/inline.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What to take of `left` next, at most `max` at a time: as few pieces as possible, as even as possible. */
ALWAYS_INLINE uint32_t even_piece(uint32_t left, uint32_t max) {
    const uint32_t n_pieces = (left + max - 1) / max;
    return (left + n_pieces - 1) / n_pieces;
}

static inline void clear_out(uint32_t n_rows, uint32_t n_cols, float *out, size_t out_stride) {
    for (uint32_t c = 0; c < n_cols; ++c) memset(out + c * out_stride, 0, n_rows * sizeof *out);
}

#endif
