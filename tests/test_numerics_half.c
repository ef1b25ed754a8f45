/* test_numerics_half.c - the conversions against their definition: the nearest binary16, ties to the even one. */
#include "numerics/half.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

static uint64_t seed = 1;

static uint32_t draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static float make_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t read_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The value of a finite binary16 by its formula; for 0x7c00 what the next exponent would be. */
static double decode(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -value : value;
}

/* Looks for the nearest among all non-negative binary16, which are sorted; 0x7c00 stands for 65536. */
static uint16_t search_nearest(float f) {
    double a = fabs((double)f);
    uint16_t sign = signbit(f) ? 0x8000 : 0, low = 0, high = 0x7c00;
    if (a >= 65536) return sign | 0x7c00;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (decode(middle) <= a)
            low = middle;
        else
            high = middle;
    }
    double below = a - decode(low), above = decode(high) - a;
    bool up = above < below || (above == below && (low & 1));
    return (uint16_t)(sign | (up ? high : low));
}

static void test_every_half_widens_exactly_and_comes_back(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ramet_f16_to_f32((uint16_t)h);
        bool special = (h & 0x7c00) == 0x7c00;
        if (special && (h & 1023)) {
            assert_true(isnan(f));
            assert_int_equal(ramet_f32_to_f16(f), h | 0x0200);
            continue;
        }
        double want = special ? (h & 0x8000 ? -INFINITY : INFINITY) : decode((uint16_t)h);
        assert_true((double)f == want && !signbit(f) == !(h & 0x8000));
        assert_int_equal(ramet_f32_to_f16(f), h);
    }
}

static void check_narrowing(float f) {
    uint16_t got = ramet_f32_to_f16(f), want = search_nearest(f);
    if (got != want) fail_msg("%a: 0x%04x, nearest is 0x%04x", (double)f, got, want);
}

static void test_ties_and_their_neighbours(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float tie = (float)((decode((uint16_t)h) + decode((uint16_t)(h + 1))) / 2);
        for (int step = -1; step <= 1; step++) {
            float f = make_float(read_bits(tie) + (uint32_t)step);
            check_narrowing(f);
            check_narrowing(-f);
        }
    }
}

static void test_random_floats(void **state) {
    (void)state;
    printf("replay with RAMET_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < 500000; i++) {
        float f = make_float(draw());
        if (isnan(f)) {
            assert_true(isnan(ramet_f16_to_f32(ramet_f32_to_f16(f))));
            continue;
        }
        check_narrowing(f);
        /* Most random floats are out of range: the same mantissa with an exponent near the range's lower end. */
        check_narrowing(make_float((read_bits(f) & 0x807fffff) | (100 + draw() % 45) << 23));
    }
    assert_int_equal(ramet_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(ramet_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(ramet_f32_to_f16(make_float(0x7f800001)), 0x7e00); /* a payload that would round to infinity */
}

static void test_bfloat_widens_exactly(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ramet_bf16_to_f32((uint16_t)h);
        assert_true(isnan(f) ? (h & 0x7fff) > 0x7f80 : read_bits(f) == h << 16);
    }
}

/* Negative control: rounding half up instead of half to even must be seen at a tie. */
static void test_half_up_would_be_noticed(void **state) {
    (void)state;
    uint32_t differing = 0;
    for (uint32_t h = 0x0400; h < 0x7bff; h++) {
        float tie = (float)((decode((uint16_t)h) + decode((uint16_t)(h + 1))) / 2);
        uint16_t half_up = (uint16_t)((read_bits(tie) + 0x1000 - (112u << 23)) >> 13);
        differing += half_up != search_nearest(tie);
    }
    assert_int_equal(differing, (0x7bff - 0x0400 + 1) / 2);
}

int main(int argc, char **argv) {
    const char *text = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    if (text) seed = strtoull(text, NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_widens_exactly_and_comes_back),
        cmocka_unit_test(test_ties_and_their_neighbours),
        cmocka_unit_test(test_random_floats),
        cmocka_unit_test(test_bfloat_widens_exactly),
        cmocka_unit_test(test_half_up_would_be_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
