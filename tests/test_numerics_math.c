/* test_numerics_math.c - our functions against libm in higher precision (how right they are), and against hashes of
 * their bits (that they are the same everywhere: compiler, optimisation, with and without fma instructions). */
#include "numerics/math.h"

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

static float make_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Error of `got` in units of the last place of the true value, denormals included; huge where only one of them is
 * finite. */
static double measure_ulps(double want, float got) {
    if (isnan(want) || isinf((float)want) || isinf(got) || isnan(got))
        return (isnan(want) && isnan(got)) || (float)want == got ? 0 : 1e9;
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

/* ---- binary32 ---- */

static double true_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double true_silu(double x) {
    return x / (1 + exp(-x));
}
static double true_gelu(double x) {
    double y = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1 + tanh(y));
}

typedef struct function32 {
    const char *name;
    float (*ours)(float);
    double (*right)(double);
    float low, high; /* where the bound holds */
    double bound_ulps;
    uint32_t hash;
} function32;

static const function32 functions[] = {
    {"exp", ramet_expf, exp, -INFINITY, INFINITY, 1.0, 0xd3496ea8},
    {"tanh", ramet_tanhf, tanh, -INFINITY, INFINITY, 1.5, 0x35fd156f},
    {"sigmoid", ramet_sigmoidf, true_sigmoid, -88.0f, INFINITY, 2.5, 0x22bbbc77},
    {"silu", ramet_siluf, true_silu, -88.0f, INFINITY, 2.5, 0xf4ebd624},
    {"gelu", ramet_geluf, true_gelu, -1.0f, INFINITY, 3.0, 0xa96383bb},
    {"log", ramet_logf, log, -INFINITY, INFINITY, 1.0, 0xcdf5ea74},
    {"sqrt", ramet_sqrtf, sqrt, -INFINITY, INFINITY, 0.5, 0xb44c4d75},
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0], STRIDE = 16411 }; /* a prime: some 260,000 floats */

static double find_worst(const function32 *f, float (*ours)(float)) {
    double worst = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += STRIDE) {
        float x = make_float((uint32_t)bits);
        if (!(x >= f->low && x <= f->high)) continue;
        worst = fmax(worst, measure_ulps(f->right((double)x), ours(x)));
    }
    return worst;
}

static void test_errors_stay_in_bounds(void **state) {
    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        double worst = find_worst(&functions[i], functions[i].ours);
        if (worst > functions[i].bound_ulps) fail_msg("%s: %f ulp", functions[i].name, worst);
    }
}

/* Negative control: exp with a shorter polynomial, and exp that drops the low part of ln 2. */
static float exp_short(float x) {
    float n = rintf(x * 0x1.715476p0f), r = fmaf(n, 0x1.05c61p-29f, fmaf(n, -0x1.62e43p-1f, x));
    float p = fmaf(fmaf(fmaf(fmaf(0x1.55558cp-5f, r, 0x1.5554p-3f), r, 0.5f), r, 1), r, 1);
    return ldexpf(p, (int)fmaxf(fminf(n, 300), -300));
}
static float exp_coarse(float x) {
    float n = rintf(x * 0x1.715476p0f);
    return ramet_expf(fmaf(n, -0x1.62e43p-1f, x)) * ldexpf(1, (int)fmaxf(fminf(n, 127), -126));
}

static void test_bounds_have_teeth(void **state) {
    (void)state;
    function32 f = functions[0];
    f.low = -80, f.high = 80;
    assert_true(find_worst(&f, ramet_expf) <= f.bound_ulps);
    assert_true(find_worst(&f, exp_short) > f.bound_ulps);
    assert_true(find_worst(&f, exp_coarse) > f.bound_ulps);
}

static bool same(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static void test_special_values(void **state) {
    (void)state;
    assert_true(same(ramet_expf(0), 1) && same(ramet_expf(-0.0f), 1));
    assert_true(ramet_expf(INFINITY) == INFINITY && same(ramet_expf(-INFINITY), 0));
    assert_true(ramet_expf(88.73f) == INFINITY && ramet_expf(88.72f) < INFINITY);
    assert_true(same(ramet_expf(-103.98f), 0) && same(ramet_expf(-103.97f), 0x1p-149f));
    assert_true(same(ramet_tanhf(-0.0f), -0.0f) && same(ramet_tanhf(0), 0) && ramet_tanhf(INFINITY) == 1);
    assert_true(ramet_tanhf(-INFINITY) == -1 && ramet_tanhf(9.1f) == 1 && same(ramet_tanhf(0x1p-149f), 0x1p-149f));
    assert_true(ramet_sigmoidf(INFINITY) == 1 && same(ramet_sigmoidf(-INFINITY), 0) && ramet_sigmoidf(0) == 0.5f);
    assert_true(ramet_siluf(INFINITY) == INFINITY && isnan(ramet_siluf(-INFINITY)) && ramet_siluf(-1e30f) == 0);
    assert_true(ramet_geluf(INFINITY) == INFINITY && isnan(ramet_geluf(-INFINITY)) && ramet_geluf(-1e30f) == 0);
    assert_true(ramet_geluf(1e30f) == 1e30f && same(ramet_geluf(0), 0));
    assert_true(same(ramet_logf(1), 0) && ramet_logf(0) == -INFINITY && ramet_logf(-0.0f) == -INFINITY);
    assert_true(ramet_logf(INFINITY) == INFINITY && isnan(ramet_logf(-1)) && isnan(ramet_logf(-INFINITY)));
    for (int i = 0; i < N_FUNCTIONS; i++) {
        assert_true(isnan(functions[i].ours(NAN)) && isnan(functions[i].ours(make_float(0xff800001))));
    }
}

/* ---- binary64 ---- */

static double draw_double(uint64_t *seed, double low, double high) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * ((double)(*seed >> 11) * 0x1p-53);
}

static void check_relative(const char *name, double x, double got, long double want, double bound) {
    if (!(fabsl((long double)got - want) <= (long double)bound * fabsl(want)))
        fail_msg("%s(%a): %a, should be %La", name, x, got, want);
}

/* libm's long double is the judge: 64 bits on x86-64, 113 on arm64. */
static void test_binary64_errors(void **state) {
    (void)state;
    uint64_t seed = 3;
    static const double bases[] = {1e4, 5e5, 1e6, 1e7, 8e6, 2, 0.1};
    for (int i = 0; i < 20000; i++) {
        double x = draw_double(&seed, -1022, 1024);
        check_relative("exp2", x, ramet_exp2(x), exp2l((long double)x), 2e-16);
        double y = ldexp(draw_double(&seed, 0.5, 2), i % 2 ? 0 : (int)x);
        check_relative("log2", y, ramet_log2(y), log2l((long double)y), 2.3e-16);
        check_relative("log", y, ramet_log(y), logl((long double)y), 2.3e-16);
        double base = bases[i % 7], exponent = -draw_double(&seed, 0, 1);
        check_relative("pow", exponent, ramet_pow(base, exponent), powl((long double)base, (long double)exponent),
                       2e-16);
        double angle = i % 2 ? draw_double(&seed, -1e9, 1e9) : (double)(i * 1.57079632679489661923L);
        double s, c;
        ramet_sincos(angle, &s, &c);
        assert_true(fabsl((long double)s - sinl((long double)angle)) < 1e-16L);
        assert_true(fabsl((long double)c - cosl((long double)angle)) < 1e-16L);
    }
}

static void test_binary64_special_values(void **state) {
    (void)state;
    assert_true(ramet_exp2(0) == 1 && ramet_exp2(10) == 1024 && ramet_exp2(-1074) == 0x1p-1074);
    assert_true(ramet_exp2(1024) == INFINITY && ramet_exp2(INFINITY) == INFINITY && ramet_exp2(-1076) == 0);
    assert_true(ramet_exp2(-INFINITY) == 0 && isnan(ramet_exp2(NAN)));
    assert_true(ramet_log2(8) == 3 && ramet_log2(0x1p-1074) == -1074 && ramet_log(1) == 0);
    assert_true(ramet_log(0) == -INFINITY && isnan(ramet_log(-1)) && ramet_log(INFINITY) == INFINITY &&
                isnan(ramet_log(NAN)));
    assert_true(ramet_pow(10000, 0) == 1 && ramet_pow(2, -3) == 0.125 && ramet_pow(1e6, 1e300) == INFINITY);
    assert_true(isnan(ramet_pow(-1, 2)) && isnan(ramet_pow(0, 2)) && isnan(ramet_pow(2, NAN)));
    double s, c;
    ramet_sincos(0, &s, &c);
    assert_true(s == 0 && c == 1);
    ramet_sincos(1.1e9, &s, &c);
    assert_true(isnan(s) && isnan(c));
    ramet_sincos(NAN, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

/* ---- the same bits everywhere ---- */

static uint32_t add_hash(uint32_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 16777619u;
    return hash;
}

static uint32_t hash_function(float (*f)(float)) {
    uint32_t hash = 2166136261u;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += STRIDE) {
        float y = f(make_float((uint32_t)bits));
        if (isnan(y)) y = make_float(0x7fc00000); /* which NaN is not in the contract */
        hash = add_hash(hash, &y, sizeof y);
    }
    return hash;
}

static uint32_t hash_binary64(void) {
    uint32_t hash = 2166136261u;
    uint64_t seed = 9;
    for (int i = 0; i < 20000; i++) {
        double y[6], x = draw_double(&seed, -1080, 1030);
        y[0] = ramet_exp2(x);
        y[1] = ramet_log2(y[0] + 0x1p-1074);
        y[2] = ramet_log(draw_double(&seed, 0, 3));
        y[3] = ramet_pow(draw_double(&seed, 1, 1e6), x * 0x1p-8);
        ramet_sincos(draw_double(&seed, -1e9, 1e9), &y[4], &y[5]);
        hash = add_hash(hash, y, sizeof y);
    }
    return hash;
}

static float silu_off_by_one(float x) {
    float y = ramet_siluf(x);
    return x == make_float(STRIDE * 60000u) ? nextafterf(y, 9) : y;
}

static void test_bits_are_version_1(void **state) {
    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        uint32_t hash = hash_function(functions[i].ours);
        if (hash != functions[i].hash) fail_msg("%s: hash is 0x%08x", functions[i].name, hash);
    }
    assert_int_equal(hash_binary64(), 0xaecd360b);
    /* Negative control: one unit in the last place of one result. */
    assert_int_not_equal(hash_function(silu_off_by_one), functions[3].hash);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_stay_in_bounds),   cmocka_unit_test(test_bounds_have_teeth),
        cmocka_unit_test(test_special_values),          cmocka_unit_test(test_binary64_errors),
        cmocka_unit_test(test_binary64_special_values), cmocka_unit_test(test_bits_are_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
