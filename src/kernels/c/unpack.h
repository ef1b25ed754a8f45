/* unpack.h - one block of a panel spread out: quants as int8, element after element, a scale for each run of 16.
 * Owns what the bytes of a panel mean to the C kernels (panel.h has the layout); refuses to know activations. */
#ifndef RAMET_KERNELS_C_UNPACK_H
#define RAMET_KERNELS_C_UNPACK_H

#include "numerics/panel.h"

enum { RAMET_RUN = 16, RAMET_BLOCK_MAX = 256, RAMET_RUNS_MAX = RAMET_BLOCK_MAX / RAMET_RUN };

/* Weight of element e in row r: step[e / 32][r] * scale[e / 16][r] * q[e][r] + offset[e / 16][r], as kernels.h has it. The
 * -8 of Q4_0 and its kind are already in q. */
typedef struct ramet_unpacked {
    float step[RAMET_RUNS_MAX / 2][RAMET_LANES], offset[RAMET_RUNS_MAX][RAMET_LANES];
    int16_t scale[RAMET_RUNS_MAX][RAMET_LANES];
    int8_t q[RAMET_BLOCK_MAX][RAMET_LANES];
} ramet_unpacked;

/* One block of a quantised panel. */
void ramet_unpack(ramet_dtype dtype, const uint8_t *block, ramet_unpacked *out);
/* The 16 values of one k of an F32, F16 or BF16 panel. */
void ramet_unpack_float(ramet_dtype dtype, const uint8_t *block, float out[RAMET_LANES]);

#endif
