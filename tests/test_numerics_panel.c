/* test_numerics_panel.c - panels of every type, read by a second reader written from the layout's description, one
 * element at a time: it must find the values of the file's rows, bit for bit, and so must ramet_panel_row. */
#include "numerics/half.h"
#include "numerics/panel.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { N_K = 768, MAX_ROW_BYTES = N_K * 4 };

static uint64_t seed = 1;

static uint32_t draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

/* ---- the second reader: p is the block, lane the row, e the element inside the block ---- */

static float half_at(const uint8_t *p, uint32_t lane) {
    return ramet_f16_to_f32((uint16_t)(p[2 * lane] | p[2 * lane + 1] << 8));
}
static int byte_at(const uint8_t *p, uint32_t lane, uint32_t i) {
    return p[(i / 4 * 16 + lane) * 4 + i % 4];
}
static int scale_at(const uint8_t *p, uint32_t lane, uint32_t sub) {
    return p[sub * 16 + lane];
}
static int nibble_at(const uint8_t *p, uint32_t lane, uint32_t e) {
    return byte_at(p, lane, e % 16) >> (e / 16 * 4) & 15;
}
static int fifth_at(const uint8_t *p, uint32_t lane, uint32_t e) {
    return (p[lane * 4 + e % 4] >> (e / 4) & 1) * 16;
}
static int pair_at(const uint8_t *p, uint32_t lane, uint32_t e) {
    return byte_at(p, lane, e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & 3;
}
static int half_byte_at(const uint8_t *p, uint32_t lane, uint32_t e) {
    return byte_at(p, lane, e / 64 * 32 + e % 32) >> (e % 64 / 32 * 4) & 15;
}
static int plane_at(const uint8_t *p, uint32_t lane, uint32_t e) {
    return byte_at(p, lane, e % 32) >> (e / 32) & 1;
}

static float value_32(ramet_dtype dtype, const uint8_t *p, uint32_t lane, uint32_t e) {
    float d = half_at(p, lane);
    switch ((int)dtype) {
    case RAMET_Q4_0: return d * (float)(nibble_at(p + 32, lane, e) - 8);
    case RAMET_Q4_1: return d * (float)nibble_at(p + 64, lane, e) + half_at(p + 32, lane);
    case RAMET_Q5_0: return d * (float)(nibble_at(p + 96, lane, e) + fifth_at(p + 32, lane, e) - 16);
    case RAMET_Q5_1:
        return d * (float)(nibble_at(p + 128, lane, e) + fifth_at(p + 64, lane, e)) + half_at(p + 32, lane);
    default: return d * (float)(int8_t)byte_at(p + 32, lane, e);
    }
}

static float value_256(ramet_dtype dtype, const uint8_t *p, uint32_t lane, uint32_t e) {
    float d = half_at(p, lane), dmin = half_at(p + 32, lane);
    switch ((int)dtype) {
    case RAMET_Q2_K: {
        int scales = scale_at(p + 64, lane, e / 16);
        return d * (float)(scales & 15) * (float)pair_at(p + 320, lane, e) - dmin * (float)(scales >> 4);
    }
    case RAMET_Q3_K: {
        int q = pair_at(p + 800, lane, e) + 4 * plane_at(p + 288, lane, e) - 4;
        return d * (float)(int8_t)scale_at(p + 32, lane, e / 16) * (float)q;
    }
    case RAMET_Q6_K: {
        int low = byte_at(p + 288, lane, e / 128 * 64 + e % 64) >> (e % 128 / 64 * 4) & 15;
        int q = low + 16 * pair_at(p + 2336, lane, e) - 32;
        return d * (float)(int8_t)scale_at(p + 32, lane, e / 16) * (float)q;
    }
    default: {
        bool five = dtype == RAMET_Q5_K;
        int q = half_byte_at(p + (five ? 832 : 320), lane, e) + (five ? 16 * plane_at(p + 320, lane, e) : 0);
        float scale = d * (float)scale_at(p + 64, lane, e / 32), min = dmin * (float)scale_at(p + 192, lane, e / 32);
        return scale * (float)q - min;
    }
    }
}

static float value_of(ramet_dtype dtype, const uint8_t *panel, uint32_t lane, uint32_t k) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const uint8_t *block = panel + (size_t)(k / info->block) * info->lane_bytes * 16;
    if (info->block == 256) return value_256(dtype, block, lane, k % 256);
    if (info->block == 32) return value_32(dtype, block, lane, k % 32);
    if (dtype == RAMET_F16) return half_at(block, lane);
    if (dtype == RAMET_BF16) return ramet_bf16_to_f32((uint16_t)(block[2 * lane] | block[2 * lane + 1] << 8));
    float value;
    memcpy(&value, block + lane * 4, 4);
    return value;
}

/* ---- tests ---- */

static uint8_t rows_memory[16][MAX_ROW_BYTES];
static const uint8_t *rows[16];

/* Random bytes, but no 16-bit word with a full exponent anywhere: neither scales nor values are NaN or infinite. */
static void fill_rows(void) {
    for (uint32_t r = 0; r < 16; r++) {
        rows[r] = rows_memory[r];
        for (uint32_t i = 0; i < MAX_ROW_BYTES; i++) {
            uint8_t byte = (uint8_t)draw();
            rows_memory[r][i] = (byte & 0x7c) == 0x7c ? byte ^ 0x40 : byte;
        }
    }
}

static uint32_t list_dtypes(ramet_dtype *out) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < RAMET_DTYPE_COUNT; t++)
        if (ramet_dtype_get(t)) out[n++] = (ramet_dtype)t;
    assert_int_equal(n, 13);
    return n;
}

static bool row_equals(ramet_dtype dtype, const uint8_t *panel, uint32_t lane, const float *want) {
    float row[N_K];
    ramet_panel_row(dtype, panel, lane, N_K, row);
    if (memcmp(row, want, sizeof row) != 0) return false;
    for (uint32_t k = 0; k < N_K; k++) {
        float value = value_of(dtype, panel, lane, k);
        if (memcmp(&value, &want[k], 4) != 0) return false;
    }
    return true;
}

static void test_panels_hold_the_rows(void **state) {
    (void)state;
    printf("replay with RAMET_SEED=%llu\n", (unsigned long long)seed);
    ramet_dtype dtypes[RAMET_DTYPE_COUNT];
    uint32_t n = list_dtypes(dtypes);
    for (uint32_t i = 0; i < n; i++) {
        ramet_dtype dtype = dtypes[i];
        const ramet_dtype_info *info = ramet_dtype_get(dtype);
        size_t bytes = (size_t)ramet_panel_bytes(dtype, N_K);
        assert_int_equal(bytes, N_K / info->block * info->lane_bytes * 16);
        uint8_t *panel = malloc(bytes);
        assert_non_null(panel);
        memset(panel, 0xff, bytes);
        fill_rows();
        ramet_panel_pack(dtype, rows, 16, N_K, panel);
        for (uint32_t lane = 0; lane < 16; lane++) {
            float want[N_K];
            ramet_dequantize_row(dtype, rows[lane], N_K, want);
            if (!row_equals(dtype, panel, lane, want)) fail_msg("%s: row %u differs", info->name, lane);
            /* Negative control: another row's values are not these. */
            assert_false(row_equals(dtype, panel, (lane + 1) % 16, want));
        }
        free(panel);
    }
}

static void test_missing_rows_are_zero(void **state) {
    (void)state;
    ramet_dtype dtypes[RAMET_DTYPE_COUNT];
    uint32_t n = list_dtypes(dtypes);
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = (size_t)ramet_panel_bytes(dtypes[i], N_K);
        uint8_t *panel = malloc(bytes);
        assert_non_null(panel);
        memset(panel, 0xff, bytes);
        fill_rows();
        ramet_panel_pack(dtypes[i], rows, 5, N_K, panel);
        for (uint32_t lane = 0; lane < 16; lane++) {
            float want[N_K], got[N_K];
            ramet_dequantize_row(dtypes[i], rows[lane], N_K, want);
            ramet_panel_row(dtypes[i], panel, lane, N_K, got);
            if (lane < 5)
                assert_memory_equal(got, want, sizeof got);
            else
                for (uint32_t k = 0; k < N_K; k++) assert_true(got[k] == 0);
        }
        free(panel);
    }
}

/* The constants that kernels compile in, against the table that packs. */
static void test_block_sizes_agree(void **state) {
    (void)state;
    static const uint32_t bytes[RAMET_DTYPE_COUNT] = {
        [RAMET_F32] = 64,
        [RAMET_F16] = 32,
        [RAMET_BF16] = 32,
        [RAMET_Q4_0] = RAMET_Q4_0_BYTES,
        [RAMET_Q4_1] = RAMET_Q4_1_BYTES,
        [RAMET_Q5_0] = RAMET_Q5_0_BYTES,
        [RAMET_Q5_1] = RAMET_Q5_1_BYTES,
        [RAMET_Q8_0] = RAMET_Q8_0_BYTES,
        [RAMET_Q2_K] = RAMET_Q2_K_BYTES,
        [RAMET_Q3_K] = RAMET_Q3_K_BYTES,
        [RAMET_Q4_K] = RAMET_Q4_K_BYTES,
        [RAMET_Q5_K] = RAMET_Q5_K_BYTES,
        [RAMET_Q6_K] = RAMET_Q6_K_BYTES,
    };
    ramet_dtype dtypes[RAMET_DTYPE_COUNT];
    uint32_t n = list_dtypes(dtypes);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(bytes[dtypes[i]], ramet_dtype_get(dtypes[i])->lane_bytes * 16);
}

int main(int argc, char **argv) {
    const char *text = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    if (text) seed = strtoull(text, NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_hold_the_rows),
        cmocka_unit_test(test_missing_rows_are_zero),
        cmocka_unit_test(test_block_sizes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
