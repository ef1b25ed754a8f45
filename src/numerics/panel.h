/* panel.h - weights as the kernels want them: 16 rows side by side, so that a SIMD lane is an output row.
 *
 * A matrix of n_rows x n_k becomes ceil(n_rows / 16) panels; the rows that pad the last one are zero blocks. A panel is
 * n_k / block blocks in ascending k; a block holds, for its 16 rows, first the scales (one array of 16 per kind of
 * scale), then the quants as 4-byte words: word w of row 0, word w of row 1, .. row 15, then word w + 1. Word w of a
 * row is bytes 4w..4w+3 of that row's quants in the file, so that repacking is a transposition. F32, F16, BF16: a block
 * is one k, 16 values. K-quants have their 6-bit scales spread to one byte each. The exact bytes per type stand in
 * panel.c.
 *
 * Owns the layout, the transposition and its inverse; refuses to know kernels and threads. */
#ifndef RAMET_NUMERICS_PANEL_H
#define RAMET_NUMERICS_PANEL_H

#include "numerics/dtype.h"

enum { RAMET_LANES = 16 };

/* Byte offsets inside one block of a panel (16 rows), and the block's bytes. Scales are [sub-blocks][16 rows]. */
enum { RAMET_Q4_0_D = 0, RAMET_Q4_0_QS = 32, RAMET_Q4_0_BYTES = 288 };
enum { RAMET_Q4_1_D = 0, RAMET_Q4_1_M = 32, RAMET_Q4_1_QS = 64, RAMET_Q4_1_BYTES = 320 };
enum { RAMET_Q5_0_D = 0, RAMET_Q5_0_QH = 32, RAMET_Q5_0_QS = 96, RAMET_Q5_0_BYTES = 352 };
enum { RAMET_Q5_1_D = 0, RAMET_Q5_1_M = 32, RAMET_Q5_1_QH = 64, RAMET_Q5_1_QS = 128, RAMET_Q5_1_BYTES = 384 };
enum { RAMET_Q8_0_D = 0, RAMET_Q8_0_QS = 32, RAMET_Q8_0_BYTES = 544 };
enum { RAMET_Q2_K_D = 0, RAMET_Q2_K_DMIN = 32, RAMET_Q2_K_SCALES = 64, RAMET_Q2_K_QS = 320 };
enum { RAMET_Q2_K_BYTES = 1344 };
enum { RAMET_Q3_K_D = 0, RAMET_Q3_K_SCALES = 32, RAMET_Q3_K_HMASK = 288, RAMET_Q3_K_QS = 800 };
enum { RAMET_Q3_K_BYTES = 1824 };
enum { RAMET_Q4_K_D = 0, RAMET_Q4_K_DMIN = 32, RAMET_Q4_K_SCALES = 64, RAMET_Q4_K_MINS = 192, RAMET_Q4_K_QS = 320 };
enum { RAMET_Q4_K_BYTES = 2368 };
enum { RAMET_Q5_K_D = 0, RAMET_Q5_K_DMIN = 32, RAMET_Q5_K_SCALES = 64, RAMET_Q5_K_MINS = 192, RAMET_Q5_K_QH = 320 };
enum { RAMET_Q5_K_QS = 832, RAMET_Q5_K_BYTES = 2880 };
enum { RAMET_Q6_K_D = 0, RAMET_Q6_K_SCALES = 32, RAMET_Q6_K_QL = 288, RAMET_Q6_K_QH = 2336 };
enum { RAMET_Q6_K_BYTES = 3360 };

/* Bytes of one panel: 16 * lane_bytes * n_k / block. n_k is a multiple of the block. */
uint64_t ramet_panel_bytes(ramet_dtype dtype, uint64_t n_k);
/* Packs up to 16 rows; rows[i] is row i in file layout, n_rows in 1..16. */
void ramet_panel_pack(ramet_dtype dtype, const uint8_t *const *rows, uint32_t n_rows, uint64_t n_k, uint8_t *panel);
/* Row `lane` of a panel as float32, equal bit for bit to ramet_dequantize_row of the file's row. */
void ramet_panel_row(ramet_dtype dtype, const uint8_t *panel, uint32_t lane, uint64_t n_k, float *out);
/* A row in file layout as float32: the definition of what the blocks mean. */
void ramet_dequantize_row(ramet_dtype dtype, const uint8_t *row, uint64_t n_k, float *out);

#endif
