/* test_numerics_kv.c - pages of every precision: where values lie, what the codecs lose, and rows as exact copies. */
#include "numerics/half.h"
#include "numerics/kv.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { LAYERS = 2, HEADS = 3, DIM = 80, VALUES = HEADS * DIM, BLOCKS = 3 }; /* a head's last block is short: 16 of 32 */

static uint64_t seed = 1;

static uint32_t draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

/* Roughly normal, of varying size. */
static float draw_value(float size) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)draw() * 0x1p-32f - 0.5f;
    return sum * size;
}

static ramet_kv_layout make_layout(int precision, uint32_t page_tokens) {
    ramet_kv_layout l;
    assert_true(ramet_kv_layout_init(&l, precision, LAYERS, HEADS, DIM, page_tokens));
    return l;
}

/* Positions 0..n of all layers with values that depend on nothing but (seed_at, position). */
static void write_positions(const ramet_kv_layout *l, uint8_t *page, uint32_t slot, uint32_t n, uint64_t seed_at) {
    float k[VALUES], v[VALUES];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            seed = seed_at + i * LAYERS + layer;
            for (uint32_t d = 0; d < VALUES; d++) k[d] = draw_value(5), v[d] = draw_value(1);
            ramet_kv_write(l, page, layer, slot + i, k, v);
        }
}

static void test_sizes(void **state) {
    (void)state;
    ramet_kv_layout l = make_layout(RAMET_KV_VQ8, 16);
    assert_int_equal(l.n_blocks, BLOCKS);
    assert_int_equal(l.k_head_bytes, 80 * 16 * 2);
    assert_int_equal(l.v_scales_off, 80 * 16);
    assert_int_equal(l.v_head_bytes, 1408); /* 80 * 16 + 3 * 16 * 2 = 1376, padded to 64 */
    assert_int_equal(l.k_vector_bytes, 160);
    assert_int_equal(l.v_vector_bytes, 86);
    assert_int_equal(l.layer_bytes, 3 * (2560 + 1408));
    assert_int_equal(l.page_bytes, 2 * l.layer_bytes);
    assert_int_equal(l.row_bytes, 2 * 3 * (160 + 86));
    assert_int_equal(make_layout(RAMET_KV_F32, 64).row_bytes, 2 * 3 * 80 * 8);
}

static void test_impossible_layouts_are_refused(void **state) {
    (void)state;
    ramet_kv_layout l, before;
    memset(&l, 0x5a, sizeof l);
    before = l;
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, 0, 1, 64, 64));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, 1, 0, 64, 64));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, 1, 1, 0, 64));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, 1, 1, 64, 0));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, 1, 1, 64, 48));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, 1, 1, 64, 512));
    assert_false(ramet_kv_layout_init(&l, -1, 1, 1, 64, 64));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_ONE_BIT + 1, 1, 1, 64, 64));
    assert_false(ramet_kv_layout_init(&l, RAMET_KV_F32, UINT32_MAX, UINT32_MAX, UINT32_MAX, 256));
    assert_memory_equal(&l, &before, sizeof l);
}

/* The header's picture, byte by byte: an f16 page, and the scales of a q8 page. */
static void test_values_lie_where_the_header_says(void **state) {
    (void)state;
    float k[VALUES], v[VALUES];
    for (uint32_t d = 0; d < VALUES; d++) k[d] = (float)d, v[d] = -(float)d;
    uint16_t half;
    int precisions[] = {RAMET_KV_F16, RAMET_KV_Q8};
    for (int i = 0; i < 2; i++) {
        ramet_kv_layout l = make_layout(precisions[i], 64);
        uint8_t *page = calloc(1, l.page_bytes);
        assert_non_null(page);
        ramet_kv_write(&l, page, 1, 37, k, v);
        const uint8_t *k_area = page + l.layer_bytes + 2 * l.k_head_bytes;
        const uint8_t *v_area = page + l.layer_bytes + 3 * l.k_head_bytes + 2 * l.v_head_bytes;
        if (i == 0) {
            memcpy(&half, k_area + (70 * 64 + 37) * 2, 2);
            assert_true(ramet_f16_to_f32(half) == 230);
            memcpy(&half, v_area + (37 * 80 + 70) * 2, 2);
            assert_true(ramet_f16_to_f32(half) == -230);
        } else {
            assert_int_equal((int8_t)k_area[79 * 64 + 37], 127); /* 239 is the largest of its block */
            assert_int_equal((int8_t)v_area[37 * 80 + 79], -127);
            memcpy(&half, k_area + 80 * 64 + (2 * 64 + 37) * 2, 2);
            assert_int_equal(half, ramet_f32_to_f16(239.0f / 127.0f));
            memcpy(&half, v_area + 80 * 64 + (37 * 3 + 2) * 2, 2);
            assert_int_equal(half, ramet_f32_to_f16(239.0f / 127.0f));
        }
        free(page);
    }
}

/* Largest error of a K and a V vector, each relative to its own block's largest value. */
static void measure_errors(int precision, float *k_error, float *v_error) {
    ramet_kv_layout l = make_layout(precision, 16);
    uint8_t *page = malloc(l.page_bytes);
    assert_non_null(page);
    memset(page, 0xff, l.page_bytes);
    *k_error = *v_error = 0;
    for (uint32_t slot = 0; slot < 16; slot++) {
        float x[2][VALUES], got_k[DIM * 5], got_v[DIM];
        float size = ldexpf(1, (int)(draw() % 20) - 10);
        for (uint32_t d = 0; d < VALUES; d++) x[0][d] = draw_value(size), x[1][d] = draw_value(size);
        ramet_kv_write(&l, page, 1, slot, x[0], x[1]);
        for (uint32_t head = 0; head < HEADS; head++) {
            ramet_kv_read_k(&l, page, 1, head, slot, 1, got_k, 5);
            ramet_kv_read_v(&l, page, 1, head, slot, 1, got_v);
            for (uint32_t d = 0; d < DIM; d++) {
                float k_max = 0, v_max = 0;
                for (uint32_t e = d / 32 * 32; e < DIM && e < d / 32 * 32 + 32; e++) {
                    k_max = fmaxf(k_max, fabsf(x[0][head * DIM + e]));
                    v_max = fmaxf(v_max, fabsf(x[1][head * DIM + e]));
                }
                *k_error = fmaxf(*k_error, fabsf(got_k[d * 5] - x[0][head * DIM + d]) / k_max);
                *v_error = fmaxf(*v_error, fabsf(got_v[d] - x[1][head * DIM + d]) / v_max);
            }
        }
    }
    free(page);
}

static void test_codecs_lose_what_they_may(void **state) {
    (void)state;
    printf("replay with RAMET_SEED=%llu\n", (unsigned long long)seed);
    const float half_bound = 0x1p-11f;                              /* half a unit in the last of 11 bits */
    const float q8_bound = 0.5f / 127.0f + 127 * 0x1p-11f / 127.0f; /* half a step, and the scale's own rounding */
    float k, v;
    measure_errors(RAMET_KV_F32, &k, &v);
    assert_true(k == 0 && v == 0);
    measure_errors(RAMET_KV_F16, &k, &v);
    assert_true(k > 0 && k <= half_bound && v > 0 && v <= half_bound);
    measure_errors(RAMET_KV_VQ8, &k, &v);
    assert_true(k > 0 && k <= half_bound && v > half_bound && v <= q8_bound);
    measure_errors(RAMET_KV_Q8, &k, &v);
    assert_true(k > half_bound && k <= q8_bound && v > half_bound && v <= q8_bound);
    /* Negative control. */
    measure_errors(RAMET_KV_ONE_BIT, &k, &v);
    assert_true(k > 20 * q8_bound && v > 20 * q8_bound);
}

static float read_back(int precision, float x, float rest) {
    ramet_kv_layout l;
    assert_true(ramet_kv_layout_init(&l, precision, 1, 1, 32, 1));
    uint8_t page[512];
    assert_true(l.page_bytes <= sizeof page);
    float k[32], got[32];
    for (int d = 0; d < 32; d++) k[d] = d ? rest : x;
    ramet_kv_write(&l, page, 0, 0, k, k);
    ramet_kv_read_v(&l, page, 0, 0, 0, 1, got);
    return got[0];
}

static void test_special_values(void **state) {
    (void)state;
    assert_true(isnan(read_back(RAMET_KV_Q8, NAN, 1)));
    assert_true(isnan(read_back(RAMET_KV_Q8, 1, NAN)));
    assert_true(isnan(read_back(RAMET_KV_Q8, 1, -INFINITY)));
    assert_true(isnan(read_back(RAMET_KV_Q8, 1, 1e7f))); /* the scale is out of binary16's range */
    assert_true(isnan(read_back(RAMET_KV_ONE_BIT, 1, NAN)));
    assert_true(isnan(read_back(RAMET_KV_F16, NAN, 1)));
    assert_true(read_back(RAMET_KV_F16, 1e9f, 1) == INFINITY);
    assert_true(read_back(RAMET_KV_Q8, 0, 0) == 0);
    assert_true(read_back(RAMET_KV_Q8, 1e-9f, 1e-9f) == 0);
    /* amax / 127 = 1.4 * 2^-24 rounds down to 2^-24: q would be 178 and is clamped. */
    assert_true(read_back(RAMET_KV_Q8, -0x1.6p-24f * 127, 0) == -0x1p-24f * 127);
    /* Halfway between two steps goes to the even one: the scale is 1. */
    assert_true(read_back(RAMET_KV_Q8, 2.5f, 127) == 2 && read_back(RAMET_KV_Q8, -3.5f, 127) == -4);
}

/* K9 and the snapshot rest on this: a row is the same bytes whatever the page, and comes back as the same bytes. */
static void test_rows_do_not_depend_on_the_page(void **state) {
    (void)state;
    for (int precision = RAMET_KV_F32; precision <= RAMET_KV_ONE_BIT; precision++) {
        ramet_kv_layout small = make_layout(precision, 16), large = make_layout(precision, 256);
        assert_int_equal(small.row_bytes, large.row_bytes);
        size_t bytes = 9 * small.row_bytes;
        uint8_t *a = malloc(small.page_bytes), *b = malloc(large.page_bytes);
        uint8_t *from_a = malloc(bytes), *from_b = malloc(bytes);
        assert_true(a && b && from_a && from_b);
        memset(a, 0xff, small.page_bytes);
        memset(b, 0x7f, large.page_bytes);
        write_positions(&small, a, 3, 9, 42);
        ramet_kv_export(&small, a, 3, 9, from_a);

        write_positions(&large, b, 200, 9, 42);
        ramet_kv_export(&large, b, 200, 9, from_b);
        assert_memory_equal(from_a, from_b, bytes);

        memset(b, 0x33, large.page_bytes);
        ramet_kv_import(&large, b, 17, 9, from_a);
        ramet_kv_export(&large, b, 17, 9, from_b);
        assert_memory_equal(from_a, from_b, bytes);

        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t head = 0; head < HEADS; head++) {
                float x[9 * DIM], y[9 * DIM];
                ramet_kv_read_k(&small, a, layer, head, 3, 9, x, 9);
                ramet_kv_read_k(&large, b, layer, head, 17, 9, y, 9);
                assert_memory_equal(x, y, sizeof x);
                ramet_kv_read_v(&small, a, layer, head, 3, 9, x);
                ramet_kv_read_v(&large, b, layer, head, 17, 9, y);
                assert_memory_equal(x, y, sizeof x);
            }
        /* Negative control: another position, and one changed byte, are seen. */
        ramet_kv_export(&large, b, 18, 9, from_b);
        assert_memory_not_equal(from_a, from_b, bytes);
        from_a[bytes / 2] ^= 1;
        ramet_kv_import(&large, b, 17, 9, from_a);
        ramet_kv_export(&large, b, 17, 9, from_b);
        assert_memory_equal(from_a, from_b, bytes);
        free(a), free(b), free(from_a), free(from_b);
    }
}

/* A write touches its own slot alone. */
static void test_neighbours_are_left_alone(void **state) {
    (void)state;
    for (int precision = RAMET_KV_F32; precision <= RAMET_KV_ONE_BIT; precision++) {
        ramet_kv_layout l = make_layout(precision, 16);
        uint8_t *page = malloc(l.page_bytes), *before = malloc(l.row_bytes * 16), *after = malloc(l.row_bytes * 16);
        assert_true(page && before && after);
        write_positions(&l, page, 0, 16, 5);
        ramet_kv_export(&l, page, 0, 16, before);
        write_positions(&l, page, 6, 1, 1000);
        ramet_kv_export(&l, page, 0, 16, after);
        assert_memory_equal(before, after, 6 * l.row_bytes);
        assert_memory_equal(before + 7 * l.row_bytes, after + 7 * l.row_bytes, 9 * l.row_bytes);
        assert_memory_not_equal(before + 6 * l.row_bytes, after + 6 * l.row_bytes, l.row_bytes);
        free(page), free(before), free(after);
    }
}

/* A tile by its description, element by element: areas of [rows][positions][unit bytes] one after another. */
static uint8_t *put_area(uint8_t *out, const ramet_kv_layout *l, const uint8_t *pages, size_t area_off, uint32_t n,
                         size_t n_rows, size_t unit) {
    for (size_t row = 0; row < n_rows; row++)
        for (uint32_t pos = 0; pos < n; pos++, out += unit)
            memcpy(out,
                   pages + pos / l->page_tokens * l->page_bytes + area_off +
                       (row * l->page_tokens + pos % l->page_tokens) * unit,
                   unit);
    return out;
}

static void make_tile(const ramet_kv_layout *l, const uint8_t *pages, uint32_t n, uint8_t *out) {
    const size_t k_width = l->k_code == RAMET_KV_CODE_F32 ? 4 : l->k_code == RAMET_KV_CODE_F16 ? 2 : 1;
    const size_t v_width = l->v_code == RAMET_KV_CODE_F32 ? 4 : l->v_code == RAMET_KV_CODE_F16 ? 2 : 1;
    for (uint32_t layer = 0; layer < l->n_layers; layer++) {
        for (uint32_t head = 0; head < l->n_kv_heads; head++) {
            size_t off = ramet_kv_k_off(l, layer, head);
            out = put_area(out, l, pages, off, n, l->head_dim, k_width);
            if (k_width == 1) out = put_area(out, l, pages, off + l->k_scales_off, n, l->n_blocks, 2);
        }
        for (uint32_t head = 0; head < l->n_kv_heads; head++) {
            size_t off = ramet_kv_v_off(l, layer, head);
            out = put_area(out, l, pages, off, n, 1, l->head_dim * v_width);
            if (v_width == 1) out = put_area(out, l, pages, off + l->v_scales_off, n, 1, (size_t)l->n_blocks * 2);
        }
    }
}

static void move_tile(const ramet_kv_layout *l, uint8_t *pages, uint32_t n, size_t from, size_t to, uint8_t *bytes,
                      bool is_export) {
    for (uint32_t first = 0; first < n; first += l->page_tokens) {
        uint32_t run = n - first < l->page_tokens ? n - first : l->page_tokens;
        ramet_kv_span span = {.tile_tokens = n, .first = first, .n = run};
        uint8_t *page = pages + first / l->page_tokens * l->page_bytes;
        if (is_export)
            ramet_kv_export_tile(l, page, span, from, to, bytes);
        else
            ramet_kv_import_tile(l, page, span, from, to, bytes);
    }
}

/* K8: any range of a tile, out of pages of any size and back into them. */
static void test_ranges_of_tiles(void **state) {
    (void)state;
    static const uint32_t lengths[] = {64, 63, 40, 16, 1};
    uint64_t draw = 20261130;
    for (int precision = RAMET_KV_F32; precision <= RAMET_KV_Q8; precision++)
        for (uint32_t page_tokens = 16; page_tokens <= 256; page_tokens *= 2)
            for (size_t i = 0; i < 5; i++) {
                ramet_kv_layout l = make_layout(precision, page_tokens);
                uint32_t n = lengths[i];
                size_t total = n * l.row_bytes, pages_bytes = 4 * l.page_bytes;
                uint8_t *pages = malloc(pages_bytes), *back = malloc(pages_bytes);
                uint8_t *tile = malloc(total), *got = malloc(total + 2);
                assert_true(pages && back && tile && got);
                for (size_t b = 0; b < pages_bytes; b++)
                    pages[b] = (uint8_t)((draw = draw * 6364136223846793005u + 1) >> 56);
                make_tile(&l, pages, n, tile);
                if (page_tokens == 64 && n == 64) assert_memory_equal(tile, pages, l.page_bytes); /* as it lies */
                memset(back, 0, pages_bytes);
                for (size_t from = 0, to; from < total; from = to) {
                    draw = draw * 6364136223846793005u + 1;
                    to = from + 1 + (draw >> 33) % (total / 3 + 1);
                    if (to > total) to = total;
                    memset(got, 0x77, total + 2);
                    move_tile(&l, pages, n, from, to, got + 1, true);
                    assert_memory_equal(got + 1, tile + from, to - from);
                    assert_true(got[0] == 0x77 && got[1 + to - from] == 0x77);
                    move_tile(&l, back, n, from, to, tile + from, false);
                }
                make_tile(&l, back, n, got);
                assert_memory_equal(got, tile, total);
                back[ramet_kv_k_off(&l, 1, 1)] ^= 1; /* negative control */
                make_tile(&l, back, n, got);
                assert_memory_not_equal(got, tile, total);
                free(pages);
                free(back);
                free(tile);
                free(got);
            }
}

int main(int argc, char **argv) {
    const char *text = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    if (text) seed = strtoull(text, NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codecs_lose_what_they_may), /* first: it is the one that uses the seed as given */
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_impossible_layouts_are_refused),
        cmocka_unit_test(test_values_lie_where_the_header_says),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_rows_do_not_depend_on_the_page),
        cmocka_unit_test(test_neighbours_are_left_alone),
        cmocka_unit_test(test_ranges_of_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
