/* panel.c - repacking of rows into panels; see panel.h. One block of a panel, 16 rows; [a][16 rows][b] means bytes:
 *   F32, F16, BF16  16 values, for each k
 *   Q4_0  d f16[16]; qs [4][16][4]
 *   Q4_1  d f16[16]; m f16[16]; qs [4][16][4]
 *   Q5_0  d f16[16]; qh [16][4], bit s of byte i is the fifth bit of element 4s + i; qs [4][16][4]
 *   Q5_1  d f16[16]; m f16[16]; qh and qs as Q5_0
 *   Q8_0  d f16[16]; qs [8][16][4]
 *   Q2_K  d f16[16]; dmin f16[16]; scales [16][16], scale | min << 4; qs [16][16][4]
 *   Q3_K  d f16[16]; scales i8 [16][16], 32 already subtracted; hmask [8][16][4]; qs [16][16][4]
 *   Q4_K  d f16[16]; dmin f16[16]; scales [8][16]; mins [8][16]; qs [32][16][4]
 *   Q5_K  d f16[16]; dmin f16[16]; scales [8][16]; mins [8][16]; qh [8][16][4]; qs [32][16][4]
 *   Q6_K  d f16[16]; scales i8 [16][16]; ql [32][16][4]; qh [16][16][4]
 * Quants keep the order of the file but for qh of Q5_0 and Q5_1: shifted right by s, its word has the fifth bits of
 * four neighbouring elements at the bottom of its four bytes. */
#include "numerics/panel.h"
#include "numerics/scales.h"

#include "base/error.h"

#include <string.h>

/* How a field's bytes change between the file's row and the row's lane of the panel. */
typedef enum field_form { COPY, FIFTHS, SCALES_Q4, SCALES_Q3 } field_form;

typedef struct field {
    uint32_t width; /* bytes that stay together; 0 ends the list */
    uint32_t count; /* of such units per row */
    uint32_t panel_off, file_off;
    field_form form;
} field;

enum { MAX_FIELDS = 5, MAX_FIELD_BYTES = 128, MAX_BLOCK_BYTES = 210 };

static const field fields[RAMET_DTYPE_COUNT][MAX_FIELDS] = {
    [RAMET_F32] = {{4, 1, 0, 0, COPY}},
    [RAMET_F16] = {{2, 1, 0, 0, COPY}},
    [RAMET_BF16] = {{2, 1, 0, 0, COPY}},
    [RAMET_Q4_0] = {{2, 1, RAMET_Q4_0_D, 0, COPY}, {4, 4, RAMET_Q4_0_QS, 2, COPY}},
    [RAMET_Q4_1] = {{2, 1, RAMET_Q4_1_D, 0, COPY}, {2, 1, RAMET_Q4_1_M, 2, COPY}, {4, 4, RAMET_Q4_1_QS, 4, COPY}},
    [RAMET_Q5_0] = {{2, 1, RAMET_Q5_0_D, 0, COPY}, {4, 1, RAMET_Q5_0_QH, 2, FIFTHS}, {4, 4, RAMET_Q5_0_QS, 6, COPY}},
    [RAMET_Q5_1] = {{2, 1, RAMET_Q5_1_D, 0, COPY},
                    {2, 1, RAMET_Q5_1_M, 2, COPY},
                    {4, 1, RAMET_Q5_1_QH, 4, FIFTHS},
                    {4, 4, RAMET_Q5_1_QS, 8, COPY}},
    [RAMET_Q8_0] = {{2, 1, RAMET_Q8_0_D, 0, COPY}, {4, 8, RAMET_Q8_0_QS, 2, COPY}},
    [RAMET_Q2_K] = {{2, 1, RAMET_Q2_K_D, 80, COPY},
                    {2, 1, RAMET_Q2_K_DMIN, 82, COPY},
                    {1, 16, RAMET_Q2_K_SCALES, 0, COPY},
                    {4, 16, RAMET_Q2_K_QS, 16, COPY}},
    [RAMET_Q3_K] = {{2, 1, RAMET_Q3_K_D, 108, COPY},
                    {1, 16, RAMET_Q3_K_SCALES, 96, SCALES_Q3},
                    {4, 8, RAMET_Q3_K_HMASK, 0, COPY},
                    {4, 16, RAMET_Q3_K_QS, 32, COPY}},
    [RAMET_Q4_K] = {{2, 1, RAMET_Q4_K_D, 0, COPY},
                    {2, 1, RAMET_Q4_K_DMIN, 2, COPY},
                    {1, 16, RAMET_Q4_K_SCALES, 4, SCALES_Q4},
                    {4, 32, RAMET_Q4_K_QS, 16, COPY}},
    [RAMET_Q5_K] = {{2, 1, RAMET_Q5_K_D, 0, COPY},
                    {2, 1, RAMET_Q5_K_DMIN, 2, COPY},
                    {1, 16, RAMET_Q5_K_SCALES, 4, SCALES_Q4},
                    {4, 8, RAMET_Q5_K_QH, 16, COPY},
                    {4, 32, RAMET_Q5_K_QS, 48, COPY}},
    [RAMET_Q6_K] = {{2, 1, RAMET_Q6_K_D, 208, COPY},
                    {1, 16, RAMET_Q6_K_SCALES, 192, COPY},
                    {4, 32, RAMET_Q6_K_QL, 0, COPY},
                    {4, 16, RAMET_Q6_K_QH, 128, COPY}},
};

/* Bit e of the file's word <-> bit 8 (e % 4) + e / 4 of the panel's. */
static void move_fifths(const uint8_t *from, uint8_t *to, bool to_panel) {
    uint8_t moved[4] = {0};
    for (int e = 0; e < 32; e++) {
        int file = e, panel = 8 * (e % 4) + e / 4;
        int source = to_panel ? file : panel, target = to_panel ? panel : file;
        moved[target / 8] |= (uint8_t)((from[source / 8] >> source % 8 & 1) << target % 8);
    }
    memcpy(to, moved, sizeof moved);
}

/* A field of one row from the file's form to the panel's. Returns where it lies: in the file or in `scratch`. */
static const uint8_t *spread_field(const field *f, const uint8_t *block, uint8_t *scratch) {
    const uint8_t *source = block + f->file_off;
    switch (f->form) {
    case COPY: return source;
    case FIFTHS: move_fifths(source, scratch, true); break;
    case SCALES_Q4: ramet_scales_spread_q4(source, scratch); break;
    case SCALES_Q3: ramet_scales_spread_q3(source, scratch); break;
    }
    return scratch;
}

static void pack_field(const field *f, const uint8_t *lane, uint8_t *block) {
    uint8_t *target = block + f->file_off;
    switch (f->form) {
    case COPY: memcpy(target, lane, (size_t)f->width * f->count); break;
    case FIFTHS: move_fifths(lane, target, false); break;
    case SCALES_Q4: ramet_scales_pack_q4(lane, target); break;
    case SCALES_Q3: ramet_scales_pack_q3(lane, target); break;
    }
}

/* Constant widths, so that each copy is one move. */
static void scatter_units(uint32_t width, uint64_t count, const uint8_t *from, uint8_t *to) {
    if (width == 4)
        for (uint64_t i = 0; i < count; i++) memcpy(to + i * 4 * RAMET_LANES, from + i * 4, 4);
    else if (width == 2)
        for (uint64_t i = 0; i < count; i++) memcpy(to + i * 2 * RAMET_LANES, from + i * 2, 2);
    else
        for (uint64_t i = 0; i < count; i++) to[i * RAMET_LANES] = from[i];
}

static void gather_units(uint32_t width, uint64_t count, const uint8_t *from, uint8_t *to) {
    for (uint64_t i = 0; i < count; i++) memcpy(to + i * width, from + i * width * RAMET_LANES, width);
}

static void pack_block(const field *list, const uint8_t *block, uint32_t lane, uint8_t *panel) {
    uint8_t scratch[MAX_FIELD_BYTES];
    for (uint32_t i = 0; i < MAX_FIELDS && list[i].width; i++) {
        const field *f = &list[i];
        scatter_units(f->width, f->count, spread_field(f, block, scratch), panel + f->panel_off + lane * f->width);
    }
}

static void unpack_block(const field *list, const uint8_t *panel, uint32_t lane, uint8_t *block) {
    uint8_t scratch[MAX_FIELD_BYTES];
    for (uint32_t i = 0; i < MAX_FIELDS && list[i].width; i++) {
        const field *f = &list[i];
        gather_units(f->width, f->count, panel + f->panel_off + lane * f->width, scratch);
        pack_field(f, scratch, block);
    }
}

static const ramet_dtype_info *check_shape(ramet_dtype dtype, uint64_t n_k) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    RAMET_ASSERT(info && n_k % info->block == 0, "panel: type %d, %llu elements", (int)dtype, (unsigned long long)n_k);
    return info;
}

uint64_t ramet_panel_bytes(ramet_dtype dtype, uint64_t n_k) {
    const ramet_dtype_info *info = check_shape(dtype, n_k);
    return n_k / info->block * info->lane_bytes * RAMET_LANES;
}

void ramet_panel_pack(ramet_dtype dtype, const uint8_t *const *rows, uint32_t n_rows, uint64_t n_k, uint8_t *panel) {
    const ramet_dtype_info *info = check_shape(dtype, n_k);
    RAMET_ASSERT(n_rows >= 1 && n_rows <= RAMET_LANES, "panel: %u rows", n_rows);
    if (n_rows < RAMET_LANES) memset(panel, 0, (size_t)ramet_panel_bytes(dtype, n_k));

    if (info->block == 1) { /* a row is one long field */
        uint32_t width = info->block_bytes;
        for (uint32_t lane = 0; lane < n_rows; lane++) scatter_units(width, n_k, rows[lane], panel + lane * width);
        return;
    }
    for (uint64_t b = 0; b < n_k / info->block; b++, panel += info->lane_bytes * RAMET_LANES)
        for (uint32_t lane = 0; lane < n_rows; lane++)
            pack_block(fields[dtype], rows[lane] + b * info->block_bytes, lane, panel);
}

void ramet_panel_row(ramet_dtype dtype, const uint8_t *panel, uint32_t lane, uint64_t n_k, float *out) {
    const ramet_dtype_info *info = check_shape(dtype, n_k);
    RAMET_ASSERT(lane < RAMET_LANES, "panel: lane %u", lane);
    uint8_t block[MAX_BLOCK_BYTES];
    for (uint64_t k = 0; k < n_k; k += info->block, panel += info->lane_bytes * RAMET_LANES) {
        unpack_block(fields[dtype], panel, lane, block);
        ramet_dequantize_row(dtype, block, info->block, out + k);
    }
}
