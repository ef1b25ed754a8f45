/* test_kernels_exact.c - what no kernel may let its output depend on: the other columns of a call, the other queries,
 * what lies in positions that nobody sees, and the instruction set. Replay: test_kernels_exact SEED. */
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

static uint64_t draw_bits(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static float draw_unit(void) {
    return (float)(int32_t)(draw_bits() >> 32) * 0x1p-31f;
}

enum { N_K = 1024, N_COLS = 11, N_PANELS = 2 };

typedef struct problem {
    uint8_t *panel; /* and after it the others */
    size_t panel_bytes;
    ramet_acts acts;
    void *memory;
    float x[N_COLS * N_K];
} problem;

/* Panels of any bytes that a file could hold, but with scales of 1 (0x3c00, or 0x3c3c for BF16) in a float type's or a
 * block's first bytes; a NaN elsewhere would only make equality easier. */
static void build_problem(const ramet_kernels *table, ramet_dtype dtype, problem *p) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const size_t row_bytes = N_K / info->block * info->block_bytes;
    const size_t bytes = row_bytes * RAMET_LANES * N_PANELS;
    uint8_t *rows = malloc(bytes);
    p->panel_bytes = (size_t)ramet_panel_bytes(dtype, N_K);
    p->panel = malloc(p->panel_bytes * N_PANELS);
    p->memory = aligned_alloc(64, ramet_acts_bytes(N_K, N_COLS));
    assert_true(rows && p->panel && p->memory);
    for (size_t i = 0; i < bytes; ++i) rows[i] = (uint8_t)draw_bits();
    for (size_t block = 0; block < bytes; block += info->block_bytes) {
        uint8_t *b = rows + block;
        const uint32_t tail = dtype == RAMET_Q2_K ? 80 : dtype == RAMET_Q3_K ? 108 : dtype == RAMET_Q6_K ? 208 : 0;
        const float one = draw_unit();
        if (dtype == RAMET_F32) memcpy(b, &one, 4);
        for (uint32_t i = 1; dtype != RAMET_F32 && tail + i < info->block_bytes && i < 4; i += 2)
            if (dtype == RAMET_Q4_1 || dtype == RAMET_Q5_1 || dtype == RAMET_Q2_K || dtype == RAMET_Q4_K ||
                dtype == RAMET_Q5_K || i == 1)
                b[tail + i] = (uint8_t)(0x30 | (draw_bits() & 0x83));
    }
    for (uint32_t panel = 0; panel < N_PANELS; ++panel) {
        const uint8_t *pointers[RAMET_LANES];
        for (uint32_t i = 0; i < RAMET_LANES; ++i) pointers[i] = rows + (panel * RAMET_LANES + i) * row_bytes;
        ramet_panel_pack(dtype, pointers, RAMET_LANES, N_K, p->panel + panel * p->panel_bytes);
    }
    free(rows);
    for (size_t i = 0; i < N_COLS * N_K; ++i) p->x[i] = draw_unit();
    ramet_acts_place(&p->acts, N_K, N_COLS, p->x, p->memory);
    for (uint32_t c = 0; c < N_COLS; ++c) table->quantize(&p->acts, c, p->x + (size_t)c * N_K);
}

static void free_problem(problem *p) {
    free(p->panel);
    free(p->memory);
}

/* Whether all columns in one call equal each in its own. */
static bool columns_agree(const ramet_kernels *table, ramet_dtype dtype) {
    static problem p;
    float together[N_COLS][RAMET_LANES], alone[N_COLS][RAMET_LANES];
    build_problem(table, dtype, &p);
    table->matmul[dtype](p.panel, &p.acts, 0, N_COLS, together[0], RAMET_LANES);
    for (uint32_t c = 0; c < N_COLS; ++c) {
        table->matmul[dtype](p.panel, &p.acts, c, 1, alone[c], RAMET_LANES);
        for (uint32_t r = 0; r < RAMET_LANES; ++r) assert_true(isfinite(alone[c][r]));
    }
    free_problem(&p);
    return memcmp(together, alone, sizeof together) == 0;
}

static void test_columns_do_not_matter(void **state) {
    (void)state;
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    for (uint32_t i = 0; i < n; ++i)
        for (uint32_t dtype = 0; dtype < RAMET_DTYPE_COUNT; ++dtype) {
            ramet_kernels table, backward;
            if (!ramet_dtype_get(dtype)) continue;
            assert_true(ramet_kernels_init(&table, names[i]));
            if (!columns_agree(&table, dtype)) fail_msg("%s %s", names[i], ramet_dtype_get(dtype)->name);
            backward = table;
            ramet_kernels_reorder(&backward);
            if (columns_agree(&backward, dtype)) fail_msg("backward %s not seen", ramet_dtype_get(dtype)->name);
        }
}

/* Two panels at once are the two alone; the control is the other order of them. */
static void test_pairs_are_two_panels(void **state) {
    (void)state;
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    for (uint32_t i = 0; i < n; ++i)
        for (uint32_t dtype = 0; dtype < RAMET_DTYPE_COUNT; ++dtype) {
            static problem p;
            static float pair[N_COLS][2 * RAMET_LANES], alone[N_COLS][2 * RAMET_LANES];
            ramet_kernels table;
            assert_true(ramet_kernels_init(&table, names[i]));
            if (!table.matmul_pair[dtype]) continue;
            build_problem(&table, dtype, &p);
            table.matmul_pair[dtype](p.panel, &p.acts, 0, N_COLS, pair[0], 2 * RAMET_LANES);
            for (uint32_t control = 0; control < 2; ++control) {
                for (uint32_t panel = 0; panel < 2; ++panel)
                    table.matmul[dtype](p.panel + panel * p.panel_bytes, &p.acts, 0, N_COLS,
                                        alone[0] + RAMET_LANES * (panel ^ control), 2 * RAMET_LANES);
                assert_true((memcmp(pair, alone, sizeof pair) == 0) == (control == 0));
            }
            free_problem(&p);
        }
}

static void test_instruction_sets_agree(void **state) {
    (void)state;
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    ramet_kernels c, other;
    ramet_kernels_init(&c, "c");
    for (uint32_t i = 1; i < n; ++i)
        for (uint32_t dtype = 0; dtype < RAMET_DTYPE_COUNT; ++dtype) {
            static problem p;
            float want[N_COLS][RAMET_LANES], got[N_COLS][RAMET_LANES];
            if (!ramet_dtype_get(dtype)) continue;
            ramet_kernels_init(&other, names[i]);
            build_problem(&c, dtype, &p);
            c.matmul[dtype](p.panel, &p.acts, 0, N_COLS, want[0], RAMET_LANES);
            other.matmul[dtype](p.panel, &p.acts, 0, N_COLS, got[0], RAMET_LANES);
            assert_memory_equal(want, got, sizeof want);
            ramet_kernels_reorder(&other); /* the control */
            other.matmul[dtype](p.panel, &p.acts, 0, N_COLS, got[0], RAMET_LANES);
            assert_memory_not_equal(want, got, sizeof want);
            free_problem(&p);
        }
}

/* ---- attention */

enum { DIM = 40, QUERIES = 6, SEGMENT = 64 };

typedef struct attention {
    float q[QUERIES * DIM], k[DIM * SEGMENT], v[SEGMENT * DIM];
    uint8_t lo[QUERIES], hi[QUERIES];
    float m[QUERIES], l[QUERIES], o[QUERIES * DIM];
} attention;

/* Queries [first, first + n) from a fresh state. */
static void attend(const ramet_kernels *table, attention *a, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n; ++i) a->m[i] = -INFINITY, a->l[i] = 0.0f;
    memset(a->o + first * DIM, 0, n * DIM * sizeof(float));
    const ramet_attend_args args = {.q = a->q + first * DIM,
                                    .k = a->k,
                                    .v = a->v,
                                    .k_stride = SEGMENT,
                                    .v_stride = DIM,
                                    .n_q = n,
                                    .n = SEGMENT,
                                    .head_dim = DIM,
                                    .lo = a->lo + first,
                                    .hi = a->hi + first,
                                    .m = a->m + first,
                                    .l = a->l + first,
                                    .o = a->o + first * DIM};
    table->attend(&args);
}

static void test_queries_and_hidden_positions_do_not_matter(void **state) {
    (void)state;
    static const uint8_t lo[QUERIES] = {3, 3, 5, 17, 20, 9}, hi[QUERIES] = {61, 61, 6, 40, 20, 33};
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    static attention a, b;
    for (size_t i = 0; i < sizeof a.q / sizeof *a.q; ++i) a.q[i] = draw_unit();
    for (size_t i = 0; i < SEGMENT * DIM; ++i) a.k[i] = draw_unit(), a.v[i] = draw_unit();
    memcpy(a.lo, lo, sizeof lo), memcpy(a.hi, hi, sizeof hi);
    for (uint32_t t = 0; t < n; ++t) {
        ramet_kernels table;
        ramet_kernels_init(&table, names[t]);
        attend(&table, &a, 0, QUERIES);
        for (uint32_t i = 0; i < QUERIES; ++i) { /* alone, and all that query i does not see is NaN */
            b = a;
            for (uint32_t p = 0; p < SEGMENT; ++p)
                for (uint32_t d = 0; d < DIM && (p < lo[i] || p >= hi[i]); ++d)
                    b.k[d * SEGMENT + p] = b.v[p * DIM + d] = NAN;
            attend(&table, &b, i, 1);
            assert_memory_equal(&a.m[i], &b.m[i], sizeof(float));
            assert_memory_equal(&a.l[i], &b.l[i], sizeof(float));
            assert_memory_equal(a.o + i * DIM, b.o + i * DIM, DIM * sizeof(float));
            if (lo[i] >= hi[i]) continue;
            b.hi[i]--; /* the control: one position fewer */
            attend(&table, &b, i, 1);
            assert_memory_not_equal(a.o + i * DIM, b.o + i * DIM, DIM * sizeof(float));
        }
    }
}

static void test_empty_sides_of_a_merge_are_neutral(void **state) {
    (void)state;
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    for (uint32_t t = 0; t < n; ++t) {
        ramet_kernels table;
        ramet_kernels_init(&table, names[t]);
        const float part[3] = {0.25f, -0.0f, 3.0f}, zero[3] = {0};
        float m = -INFINITY, l = 0.0f, o[3] = {0};
        table.attend_merge(&m, &l, o, 0.5f, 2.0f, part, 3);
        table.attend_merge(&m, &l, o, -INFINITY, 0.0f, zero, 3);
        assert_true(m == 0.5f && l == 2.0f);
        assert_memory_equal(o, part, sizeof part);
        table.attend_merge(&m, &l, o, 0.5f, 2.0f, part, 3); /* the control: a side that is not empty counts */
        assert_true(l == 4.0f);
        assert_memory_not_equal(o, part, sizeof part);
    }
}

static void test_names(void **state) {
    (void)state;
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    ramet_kernels table;
    assert_true(n >= 1);
    assert_string_equal(names[0], "c");
    for (uint32_t i = 0; i < n; ++i) {
        assert_true(ramet_kernels_init(&table, names[i]));
        assert_string_equal(table.name, names[i]);
    }
    assert_true(ramet_kernels_init(&table, NULL));
    assert_string_equal(table.name, names[n - 1]);
    assert_false(ramet_kernels_init(&table, "sse9"));
    assert_string_equal(table.name, "c");
}

int main(int argc, char **argv) {
    const char *given = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    if (given) seed = strtoull(given, NULL, 10) | 1;
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_columns_do_not_matter),
        cmocka_unit_test(test_pairs_are_two_panels),
        cmocka_unit_test(test_instruction_sets_agree),
        cmocka_unit_test(test_queries_and_hidden_positions_do_not_matter),
        cmocka_unit_test(test_empty_sides_of_a_merge_are_neutral),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
