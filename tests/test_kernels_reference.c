/* test_kernels_reference.c - the C definitions against plainer arithmetic in double: each result within a tolerance
 * that a small mistake would break, which every check also shows. Replay: test_kernels_reference SEED. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;
static ramet_kernels kernels;

static uint64_t draw_bits(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static float draw_unit(void) {
    return (float)(int32_t)(draw_bits() >> 32) * 0x1p-31f;
}

static void draw_units(float *out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = draw_unit();
}

static bool is_near(double got, double want, double size, double tolerance) {
    return fabs(got - want) <= tolerance * (size + 1e-30);
}

/* ---- quantised activations */

enum { N_K = 768 };

typedef struct column {
    ramet_acts acts;
    void *memory;
    float x[N_K];
} column;

static void build_column(column *c) {
    c->memory = aligned_alloc(64, ramet_acts_bytes(N_K, 1));
    assert_non_null(c->memory);
    draw_units(c->x, N_K);
    ramet_acts_place(&c->acts, N_K, 1, c->x, c->memory);
    kernels.quantize(&c->acts, 0, c->x);
}

/* What element i became. */
static double element(const column *c, uint32_t i) {
    return (double)c->acts.z[i / 32] + (double)c->acts.d[i / 32] * c->acts.q[i];
}

/* Each element within half a step, each step a 254th of its block's range, each sum exact. */
static bool column_is_right(const column *c) {
    for (uint32_t block = 0; block < N_K / 32; ++block) {
        const double d = c->acts.d[block];
        double lo = 1e30, hi = -1e30, sum[2] = {0, 0};
        int64_t codes[2] = {0, 0};
        for (uint32_t i = 32 * block; i < 32 * (block + 1); ++i) {
            lo = fmin(lo, (double)c->x[i]), hi = fmax(hi, (double)c->x[i]);
            sum[i / 16 % 2] += element(c, i), codes[i / 16 % 2] += c->acts.q[i];
            if (!is_near(element(c, i), (double)c->x[i], d, 0.5001)) return false;
        }
        if (!is_near(d, (hi - lo) / 254.0, d, 1e-6)) return false;
        for (uint32_t i = 0; i < 2; ++i) {
            if (c->acts.sum16[2 * block + i] != codes[i]) return false;
            if (!is_near((double)c->acts.s16[2 * block + i], sum[i], 1.0, 1e-5)) return false;
        }
        if (c->acts.sum32[block] != codes[0] + codes[1]) return false;
        if (!is_near((double)c->acts.s32[block], sum[0] + sum[1], 1.0, 1e-5)) return false;
    }
    return true;
}

static void test_quantize(void **state) {
    (void)state;
    column c;
    build_column(&c);
    assert_true(column_is_right(&c));
    c.acts.q[100]++;
    assert_false(column_is_right(&c));
    kernels.quantize(&c.acts, 0, c.x);
    c.acts.s16[3] += 1e-3f;
    assert_false(column_is_right(&c));
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; ++i) {
        c.x[300] = bad[i];
        kernels.quantize(&c.acts, 0, c.x);
        for (uint32_t e = 0; e < N_K; ++e) assert_true(e / 32 != 300 / 32 || c.acts.q[e] == 0);
        for (uint32_t b = 0; b < N_K / 32; ++b) {
            assert_true((isnan(c.acts.d[b]) != 0) == (b == 300 / 32));
            assert_true((isnan(c.acts.z[b]) != 0) == (b == 300 / 32));
        }
    }
    free(c.memory);
}

/* Halves go to the even neighbour; flat blocks are their middle exactly; a range beyond float is seen. */
static void test_quantize_edges(void **state) {
    (void)state;
    column c;
    build_column(&c);
    for (int i = 0; i < 32; ++i) {
        c.x[i] = (float)i - 15.5f;
        c.x[32 + i] = 3.25f;
        c.x[64 + i] = i ? 0x1p-149f : 0.0f;
        c.x[96 + i] = i % 2 ? 3e38f : -3e38f;
    }
    c.x[0] = 127.0f, c.x[1] = -127.0f;
    kernels.quantize(&c.acts, 0, c.x);
    assert_true(c.acts.d[0] == 1.0f && c.acts.z[0] == 0.0f);
    assert_int_equal(c.acts.q[0], 127);
    for (int i = 2; i < 32; ++i) assert_int_equal(c.acts.q[i] % 2, 0);
    for (int i = 32; i < 96; ++i) assert_int_equal(c.acts.q[i], 0);
    assert_true(c.acts.d[1] == 0.0f && c.acts.z[1] == 3.25f && c.acts.s32[1] == 104.0f);
    assert_true(c.acts.d[2] == 0.0f && c.acts.z[2] < 1e-40f);
    assert_true(isnan(c.acts.d[3]));
    free(c.memory);
}

/* ---- matmul */

static void build_row(ramet_dtype dtype, uint8_t *row, size_t bytes) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const uint32_t d = dtype == RAMET_Q2_K ? 80 : dtype == RAMET_Q3_K ? 108 : dtype == RAMET_Q6_K ? 208 : 0;
    for (size_t i = 0; i < bytes; ++i) row[i] = (uint8_t)draw_bits();
    for (size_t b = 0; b < bytes; b += info->block_bytes) {
        float value = draw_unit();
        if (dtype == RAMET_F32) memcpy(row + b, &value, sizeof value);
        if (dtype == RAMET_F32) continue;
        row[b + d + 1] = (uint8_t)(0x2c | (draw_bits() & 0x83)); /* the upper byte of a number near 0.1 */
        if (d + 3 < info->block_bytes) row[b + d + 3] = (uint8_t)(0x2c | (draw_bits() & 0x83));
    }
}

/* Dequantised row times dequantised activations; *out_size is the sum of the magnitudes. */
static double multiply_plainly(ramet_dtype dtype, const uint8_t *row, const column *c, double *out_size) {
    const bool is_float = ramet_act_kind_of(dtype) == RAMET_ACT_F32;
    float w[N_K];
    double sum = 0.0;
    *out_size = 0.0;
    ramet_dequantize_row(dtype, row, N_K, w);
    for (uint32_t k = 0; k < N_K; ++k) {
        double x = is_float ? (double)c->x[k] : element(c, k);
        sum += (double)w[k] * x;
        *out_size += fabs((double)w[k] * x);
    }
    return sum;
}

static void check_matmul(ramet_dtype dtype) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const size_t row_bytes = N_K / info->block * info->block_bytes;
    uint8_t *rows = malloc(RAMET_LANES * row_bytes), *panel = malloc((size_t)ramet_panel_bytes(dtype, N_K));
    const uint8_t *pointers[RAMET_LANES];
    float y[RAMET_LANES];
    uint32_t n_controls = 0;
    column c;
    assert_true(rows && panel);
    for (uint32_t r = 0; r < RAMET_LANES; ++r) {
        pointers[r] = rows + r * row_bytes;
        build_row(dtype, rows + r * row_bytes, row_bytes);
    }
    ramet_panel_pack(dtype, pointers, RAMET_LANES, N_K, panel);
    build_column(&c);
    kernels.matmul[dtype](panel, &c.acts, 0, 1, y, RAMET_LANES);
    for (uint32_t r = 0; r < RAMET_LANES; ++r) {
        double size, want = multiply_plainly(dtype, pointers[r], &c, &size);
        if (!is_near((double)y[r], want, size, 2e-6))
            fail_msg("%s row %u: %g, want %g", info->name, r, (double)y[r], want);
        /* The control: row r with activation 77 a little off, where that makes a difference. */
        const float kept = c.x[77];
        c.x[77] += 0.1f;
        c.acts.q[77] = (int8_t)(c.acts.q[77] > 0 ? c.acts.q[77] - 9 : c.acts.q[77] + 9);
        const double other = multiply_plainly(dtype, pointers[r], &c, &size);
        const bool counts = fabs(other - want) > 5e-6 * size;
        if (counts) assert_false(is_near((double)y[r], other, size, 2e-6));
        n_controls += counts;
        c.x[77] = kept;
        kernels.quantize(&c.acts, 0, c.x);
    }
    assert_true(n_controls >= RAMET_LANES / 2);
    free(c.memory);
    free(rows);
    free(panel);
}

static void test_matmul(void **state) {
    (void)state;
    for (uint32_t dtype = 0; dtype < RAMET_DTYPE_COUNT; ++dtype) {
        if (!ramet_dtype_get(dtype)) {
            assert_null(kernels.matmul[dtype]);
            continue;
        }
        for (int i = 0; i < 4; ++i) check_matmul((ramet_dtype)dtype);
    }
}

/* ---- attention */

enum { DIM = 24, SEGMENT = 64, SEGMENTS = 3, POSITIONS = SEGMENT * SEGMENTS };

static float q[DIM], k[SEGMENTS][DIM * SEGMENT], v[POSITIONS * DIM];

static void attend_plainly(uint32_t lo, uint32_t hi, double out[DIM]) {
    double s[POSITIONS], max = -INFINITY, sum = 0.0;
    for (uint32_t p = lo; p < hi; ++p) {
        s[p] = 0.0;
        for (uint32_t d = 0; d < DIM; ++d) s[p] += (double)q[d] * (double)k[p / SEGMENT][d * SEGMENT + p % SEGMENT];
        max = fmax(max, s[p]);
    }
    for (uint32_t d = 0; d < DIM; ++d) out[d] = 0.0;
    for (uint32_t p = lo; p < hi; ++p) {
        const double w = exp(s[p] - max);
        sum += w;
        for (uint32_t d = 0; d < DIM; ++d) out[d] += w * (double)v[p * DIM + d];
    }
    for (uint32_t d = 0; d < DIM; ++d) out[d] /= sum;
}

/* One query over segments [first, last), of the positions [lo, hi). */
static void attend_segments(uint32_t first, uint32_t last, uint32_t lo, uint32_t hi, float *m, float *l, float *o) {
    *m = -INFINITY, *l = 0.0f;
    memset(o, 0, DIM * sizeof *o);
    for (uint32_t s = first; s < last; ++s) {
        const uint32_t start = s * SEGMENT, end = start + SEGMENT;
        const uint8_t from = (uint8_t)(lo < start ? 0 : lo > end ? SEGMENT : lo - start);
        const uint8_t to = (uint8_t)(hi < start ? 0 : hi > end ? SEGMENT : hi - start);
        const ramet_attend_args args = {q,    k[s], v + start * DIM, SEGMENT, DIM, 1, SEGMENT, DIM, &from, &to, m, l, o,
                                        NULL, NULL};
        kernels.attend(&args);
    }
}

static bool outputs_agree(const float *got, const double *want) {
    for (uint32_t d = 0; d < DIM; ++d)
        if (!is_near((double)got[d], want[d], 1.0, 2e-6)) return false;
    return true;
}

static void test_attention(void **state) {
    (void)state;
    static const uint32_t windows[][2] = {{0, 1}, {0, POSITIONS}, {5, 70}, {63, 65}, {64, 128}, {100, 192}, {17, 150}};
    draw_units(q, DIM), draw_units(v, POSITIONS * DIM), draw_units(k[0], POSITIONS * DIM);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; ++i) {
        const uint32_t lo = windows[i][0], hi = windows[i][1];
        float m, l, o[DIM], m2, l2, o2[DIM];
        double want[DIM], other[DIM];
        attend_plainly(lo, hi, want);
        attend_segments(0, SEGMENTS, lo, hi, &m, &l, o);
        kernels.attend_finish(o, l, DIM);
        assert_true(outputs_agree(o, want));

        attend_segments(0, 1, lo, hi, &m, &l, o); /* the same in two parts */
        attend_segments(1, SEGMENTS, lo, hi, &m2, &l2, o2);
        kernels.attend_merge(&m, &l, o, m2, l2, o2, DIM);
        kernels.attend_finish(o, l, DIM);
        assert_true(outputs_agree(o, want));

        attend_plainly(lo, hi + (hi < POSITIONS ? 1 : -1u), other); /* the control */
        assert_false(outputs_agree(o, other));
    }
}

/* ---- vectors */

enum { N = 77 };

static void test_rms_norm(void **state) {
    (void)state;
    float x[N], w[N], y[N];
    double sum = 0.0;
    draw_units(x, N), draw_units(w, N);
    for (int i = 0; i < N; ++i) sum += (double)x[i] * (double)x[i];
    const double r = 1.0 / sqrt(sum / N + 1e-5), wrong = 1.0 / sqrt(sum / (N - 1) + 1e-5);
    kernels.rms_norm(x, w, N, 1e-5f, y);
    for (int i = 0; i < N; ++i) {
        const double size = fabs((double)x[i] * r * (double)w[i]);
        assert_true(is_near((double)y[i], (double)x[i] * r * (double)w[i], size, 1e-6));
        assert_false(is_near((double)y[i], (double)x[i] * wrong * (double)w[i], size, 1e-6));
    }
}

/* A rotation by an angle, then by minus the angle, is nothing; twice by it is not. */
static void test_rope(void **state) {
    (void)state;
    enum { PAIRS = 13 };
    for (int neighbours = 0; neighbours < 2; ++neighbours) {
        float x[2 * PAIRS], y[2 * PAIRS], cosines[PAIRS], sines[PAIRS], minus[PAIRS];
        draw_units(x, 2 * PAIRS);
        memcpy(y, x, sizeof x);
        for (int i = 0; i < PAIRS; ++i) {
            const double angle = 0.3 + i;
            cosines[i] = (float)cos(angle), sines[i] = (float)sin(angle), minus[i] = -sines[i];
        }
        kernels.rope(y, cosines, sines, PAIRS, neighbours);
        const int second = neighbours ? 1 : PAIRS;
        assert_true(is_near((double)y[0], cos(0.3) * (double)x[0] - sin(0.3) * (double)x[second], 1.0, 1e-6));
        assert_true(is_near((double)y[second], sin(0.3) * (double)x[0] + cos(0.3) * (double)x[second], 1.0, 1e-6));
        kernels.rope(y, cosines, minus, PAIRS, neighbours);
        for (int i = 0; i < 2 * PAIRS; ++i) assert_true(is_near((double)y[i], (double)x[i], 1.0, 1e-6));
        kernels.rope(y, cosines, sines, PAIRS, neighbours);
        for (int i = 0; i < 2 * PAIRS; ++i) assert_false(is_near((double)y[i], (double)x[i], 1.0, 1e-6));
    }
}

static double silu(double x) {
    return x / (1.0 + exp(-x));
}
static double gelu(double x) {
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static void test_gates(void **state) {
    (void)state;
    float gate[N], up[N], s[N], g[N];
    draw_units(gate, N), draw_units(up, N);
    for (int i = 0; i < N; ++i) gate[i] *= 8.0f;
    kernels.silu_mul(gate, up, N, s);
    kernels.gelu_mul(gate, up, N, g);
    for (int i = 0; i < N; ++i) {
        const double x = (double)gate[i], u = (double)up[i];
        assert_true(is_near((double)s[i], silu(x) * u, fabs(silu(x) * u), 1e-6));
        assert_true(is_near((double)g[i], gelu(x) * u, fabs(gelu(x) * u) + 1e-6, 4e-6));
        assert_false(is_near((double)s[i], silu(x) * (u + 1e-4), fabs(silu(x) * u), 1e-6));
    }
}

static void test_sums(void **state) {
    (void)state;
    float x[N], y[N], z[N];
    draw_units(x, N), draw_units(y, N);
    memcpy(z, x, sizeof x);
    kernels.add(z, y, N);
    for (int i = 0; i < N; ++i) assert_true(z[i] == x[i] + y[i] && z[i] != x[i]);
    kernels.scale(z, 0.5f, N);
    for (int i = 0; i < N; ++i) assert_true(z[i] == (x[i] + y[i]) * 0.5f);
    memcpy(z, x, sizeof x);
    kernels.axpy(z, 0.3f, y, N);
    for (int i = 0; i < N; ++i) assert_true(z[i] == fmaf(0.3f, y[i], x[i]) && z[i] != x[i]);
}

int main(int argc, char **argv) {
    const char *given = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    if (given) seed = strtoull(given, NULL, 10) | 1;
    printf("seed %llu\n", (unsigned long long)seed);
    ramet_kernels_init(&kernels, "c");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize),  cmocka_unit_test(test_quantize_edges), cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_rms_norm),       cmocka_unit_test(test_rope),
        cmocka_unit_test(test_gates),     cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
