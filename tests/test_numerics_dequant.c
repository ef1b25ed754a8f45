/* test_numerics_dequant.c - blocks of every type against values that the gguf package computed, bit for bit
 * (tests/data/numerics/make_dequant_goldens.py), and the spreading of 6-bit scales against its inverse. */
#include "numerics/panel.h"
#include "numerics/scales.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { MAX_FILE = 64 * 1024 };

static uint8_t goldens[MAX_FILE];
static size_t goldens_bytes;

static int load_goldens(void **state) {
    (void)state;
    FILE *file = fopen(RAMET_TEST_DATA "/numerics/dequant.bin", "rb");
    if (!file) return -1;
    goldens_bytes = fread(goldens, 1, sizeof goldens, file);
    fclose(file);
    return goldens_bytes > 0 && goldens_bytes < sizeof goldens ? 0 : -1;
}

typedef struct record {
    uint32_t dtype, n_blocks;
    const ramet_dtype_info *info;
    const uint8_t *blocks, *values;
    uint32_t n_k;
} record;

static const uint8_t *read_record(const uint8_t *p, record *out) {
    memcpy(&out->dtype, p, 4);
    memcpy(&out->n_blocks, p + 4, 4);
    out->info = ramet_dtype_get(out->dtype);
    assert_non_null(out->info);
    out->n_k = out->n_blocks * out->info->block;
    out->blocks = p + 8;
    out->values = out->blocks + out->n_blocks * out->info->block_bytes;
    return out->values + out->n_k * 4;
}

static void test_values_equal_the_goldens(void **state) {
    (void)state;
    uint32_t n_types = 0;
    record r;
    for (const uint8_t *p = goldens; p < goldens + goldens_bytes; n_types++) {
        p = read_record(p, &r);
        float got[512];
        assert_true(r.n_k <= 512);
        ramet_dequantize_row((ramet_dtype)r.dtype, r.blocks, r.n_k, got);
        for (uint32_t k = 0; k < r.n_k; k++)
            if (memcmp(&got[k], r.values + k * 4, 4) != 0)
                fail_msg("%s: element %u is %a", r.info->name, k, (double)got[k]);
    }
    assert_int_equal(n_types, 13);
}

/* Negative control: every byte of every block counts, so a flipped one must show. */
static void test_every_byte_counts(void **state) {
    (void)state;
    record r;
    for (const uint8_t *p = goldens; p < goldens + goldens_bytes;) {
        p = read_record(p, &r);
        uint32_t block = r.n_blocks - 1; /* the first one's scales are denormal */
        for (uint32_t byte = 0; byte < r.info->block_bytes; byte++) {
            uint8_t changed[256];
            float got[256];
            memcpy(changed, r.blocks + block * r.info->block_bytes, r.info->block_bytes);
            changed[byte] ^= 0xff;
            ramet_dequantize_row((ramet_dtype)r.dtype, changed, r.info->block, got);
            const uint8_t *want = r.values + (size_t)block * r.info->block * 4;
            if (memcmp(got, want, r.info->block * 4) == 0) fail_msg("%s: byte %u is not used", r.info->name, byte);
        }
    }
}

static void test_spreading_scales_loses_nothing(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        uint8_t packed[12], spread[16], back[12];
        for (int i = 0; i < 12; i++) packed[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
        ramet_scales_spread_q4(packed, spread);
        for (int i = 0; i < 16; i++) assert_true(spread[i] < 64);
        ramet_scales_pack_q4(spread, back);
        assert_memory_equal(packed, back, 12);
        ramet_scales_spread_q3(packed, spread);
        for (int i = 0; i < 16; i++) assert_in_range((int8_t)spread[i] + 32, 0, 63);
        ramet_scales_pack_q3(spread, back);
        assert_memory_equal(packed, back, 12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_equal_the_goldens),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_spreading_scales_loses_nothing),
    };
    return cmocka_run_group_tests(tests, load_goldens, NULL);
}
