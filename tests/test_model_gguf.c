/* test_model_gguf.c - the GGUF reader: good files read back, hostile ones refused by name, nothing crashes, nothing
 * large is allocated. Tests named case_NN are faults that other readers had. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "model/gguf.h"
#include "support/gguf_builder.h"

#include <sys/resource.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER 0
#endif

static ramet_error error;

static ramet_status open_built(const gguf_builder *g, ramet_gguf **out, uint8_t **out_file) {
    size_t bytes;
    *out_file = gb_file(g, &bytes);
    return ramet_gguf_open_memory(*out_file, bytes, "test.gguf", out, &error);
}

/* The file is refused with `code`, and the message has all of the words (separated by |). */
static void assert_refused(gguf_builder *g, ramet_status code, const char *words) {
    ramet_gguf *gguf = NULL;
    uint8_t *file;
    error = (ramet_error){0};
    ramet_status status = open_built(g, &gguf, &file);
    if (status != code)
        fail_msg("status %s, expected %s for '%s': %s", ramet_status_name(status), ramet_status_name(code), words,
                 error.message);
    assert_null(gguf);
    char copy[256];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|"))
        if (!strstr(error.message, word)) fail_msg("'%s' is not in: %s", word, error.message);
    free(file);
    gb_end(g);
}

static void assert_accepted(gguf_builder *g) {
    ramet_gguf *gguf = NULL;
    uint8_t *file;
    if (open_built(g, &gguf, &file) != RAMET_OK) fail_msg("%s", error.message);
    ramet_gguf_close(&gguf);
    free(file);
    gb_end(g);
}

/* A small file with every kind of value and three tensors. */
static gguf_builder build_good(void) {
    gguf_builder g = gb_begin();
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4};
    static const char *const names[] = {"n.u8", "n.i8", "n.u16", "n.i16", "n.u32", "n.i32"};
    gb_str(&g, "general.architecture", "test");
    for (uint32_t type = 0; type < 6; type++) {
        gb_key(&g, names[type], type);
        gb_uint(&g.values, (uint64_t)-5, widths[type]);
    }
    gb_key(&g, "n.u64", 10), gb_uint(&g.values, 7, 8);
    gb_key(&g, "n.u64.large", 10), gb_uint(&g.values, 1ull << 32, 8);
    gb_key(&g, "n.i64", 11), gb_uint(&g.values, (uint64_t)-7, 8);
    gb_key(&g, "n.i64.least", 11), gb_uint(&g.values, 1ull << 63, 8);
    gb_f32(&g, "x.f32", 1.5f);
    gb_key(&g, "x.f64", 12), gb_uint(&g.values, 0x4004000000000000ull, 8); /* 2.5 */
    gb_key(&g, "x.f64.large", 12), gb_uint(&g.values, 0x7fe0000000000000ull, 8);
    gb_bool(&g, "b.yes", 1);
    gb_bool(&g, "b.no", 0);
    gb_str(&g, "s.empty", "");
    gb_array(&g, "a.strings", 8, 3);
    gb_text(&g.values, "one"), gb_text(&g.values, ""), gb_text(&g.values, "three");
    gb_array(&g, "a.i32", 5, 2);
    gb_uint(&g.values, 11, 4), gb_uint(&g.values, (uint64_t)-12, 4);
    gb_array(&g, "a.bool", 7, 2);
    gb_uint(&g.values, 0, 1), gb_uint(&g.values, 1, 1);
    gb_array(&g, "a.empty", 8, 0);
    float floats[12] = {1, 2, 3, 4};
    uint8_t blocks[34] = {9};
    gb_tensor(&g, "weights", 4, 3, 0, floats, sizeof floats);
    gb_tensor(&g, "norm", 5, 1, 0, floats, 20);
    gb_tensor(&g, "blocks", 32, 1, 8, blocks, sizeof blocks);
    return g;
}

static void check_good(const ramet_gguf *gguf) {
    uint32_t u = 0;
    int32_t i = 0;
    float f = 0;
    bool b = false;
    assert_int_equal(ramet_gguf_u32(gguf, "n.u8", &u, &error), RAMET_OK);
    assert_int_equal(u, 251);
    assert_int_equal(ramet_gguf_i32(gguf, "n.i8", &i, &error), RAMET_OK);
    assert_int_equal(i, -5);
    assert_int_equal(ramet_gguf_i32(gguf, "n.i16", &i, &error), RAMET_OK);
    assert_int_equal(i, -5);
    assert_int_equal(ramet_gguf_i32(gguf, "n.i64", &i, &error), RAMET_OK);
    assert_int_equal(i, -7);
    assert_int_equal(ramet_gguf_u32(gguf, "n.u64", &u, &error), RAMET_OK);
    assert_int_equal(u, 7);
    u = 99;
    assert_int_equal(ramet_gguf_u32(gguf, "n.i32", &u, &error), RAMET_E_CORRUPT); /* negative */
    assert_int_equal(ramet_gguf_u32(gguf, "n.u64.large", &u, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_i32(gguf, "n.u32", &i, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_i32(gguf, "n.i64.least", &i, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_u32(gguf, "x.f32", &u, &error), RAMET_E_CORRUPT);
    assert_non_null(strstr(error.message, "x.f32"));
    assert_int_equal(ramet_gguf_u32(gguf, "absent", &u, &error), RAMET_E_NOT_FOUND);
    assert_int_equal(u, 99);
    assert_int_equal(ramet_gguf_f32(gguf, "x.f32", &f, &error), RAMET_OK);
    assert_true(f == 1.5f);
    assert_int_equal(ramet_gguf_f32(gguf, "x.f64", &f, &error), RAMET_OK);
    assert_true(f == 2.5f);
    assert_int_equal(ramet_gguf_f32(gguf, "x.f64.large", &f, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_f32(gguf, "n.u8", &f, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_bool(gguf, "b.yes", &b, &error), RAMET_OK);
    assert_true(b);
    assert_int_equal(ramet_gguf_bool(gguf, "n.u8", &b, &error), RAMET_E_CORRUPT);
    ramet_gguf_string s;
    assert_int_equal(ramet_gguf_str(gguf, "general.architecture", &s, &error), RAMET_OK);
    assert_int_equal(s.bytes, 4);
    assert_memory_equal(s.data, "test", 4);
    assert_int_equal(ramet_gguf_str(gguf, "s.empty", &s, &error), RAMET_OK);
    assert_int_equal(s.bytes, 0);
    assert_int_equal(ramet_gguf_str(gguf, "n.u8", &s, &error), RAMET_E_CORRUPT);
    ramet_gguf_array a;
    assert_int_equal(ramet_gguf_array_get(gguf, "a.strings", RAMET_GGUF_STRING, &a, &error), RAMET_OK);
    assert_int_equal(a.n, 3);
    assert_memory_equal(ramet_gguf_next_string(&a.data).data, "one", 3);
    assert_int_equal(ramet_gguf_next_string(&a.data).bytes, 0);
    s = ramet_gguf_next_string(&a.data);
    assert_int_equal(s.bytes, 5);
    assert_memory_equal(s.data, "three", 5);
    assert_int_equal(ramet_gguf_array_get(gguf, "a.i32", RAMET_GGUF_I32, &a, &error), RAMET_OK);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.data[0], 11);
    assert_int_equal(ramet_gguf_array_get(gguf, "a.i32", RAMET_GGUF_F32, &a, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_array_get(gguf, "n.u8", RAMET_GGUF_U8, &a, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_array_get(gguf, "a.empty", RAMET_GGUF_STRING, &a, &error), RAMET_OK);
    assert_int_equal(a.n, 0);
    assert_int_equal(ramet_gguf_n_tensors(gguf), 3);
    const ramet_gguf_tensor *t = ramet_gguf_find(gguf, "weights");
    assert_non_null(t);
    assert_int_equal(t->dims[0], 4);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_int_equal(t->bytes, 48);
    float first;
    memcpy(&first, t->data + 8, 4);
    assert_true(first == 3);
    assert_null(ramet_gguf_find(gguf, "weight"));
    assert_null(ramet_gguf_find(gguf, "weightss"));
    assert_null(ramet_gguf_tensor_at(gguf, 3));
}

static void good_files_read_back(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_builder g = build_good();
        g.version = version;
        ramet_gguf *gguf;
        uint8_t *file;
        assert_int_equal(open_built(&g, &gguf, &file), RAMET_OK);
        assert_int_equal(ramet_gguf_version(gguf), version);
        check_good(gguf);
        uint8_t digest[32], expected[32];
        assert_int_equal(ramet_gguf_digest(gguf, NULL, digest, NULL, &error), RAMET_OK);
        ramet_sha256_once(file, ramet_gguf_file_bytes(gguf), expected);
        assert_memory_equal(digest, expected, 32);
        ramet_gguf_close(&gguf);
        ramet_gguf_close(&gguf); /* NULL is allowed */
        free(file);
        gb_end(&g);
    }
}

/* Touches everything that an opened file promises, so that a sanitizer sees a broken promise. */
static uint64_t walk(const ramet_gguf *gguf) {
    static const char *const keys[] = {
        "general.architecture", "n.u8", "a.strings", "a.i32", "a.bool", "x.f32", "b.yes"};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ramet_gguf_n_tensors(gguf); i++) {
        const ramet_gguf_tensor *t = ramet_gguf_tensor_at(gguf, i);
        for (uint64_t k = 0; k < t->bytes; k++) sum += t->data[k];
        for (uint64_t k = 0; k < t->name.bytes; k++) sum += (unsigned char)t->name.data[k];
        ramet_gguf_forget(gguf);
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint32_t u;
        int32_t n;
        float f;
        bool b;
        ramet_gguf_string s;
        ramet_gguf_array a;
        (void)ramet_gguf_u32(gguf, keys[i], &u, &error);
        (void)ramet_gguf_i32(gguf, keys[i], &n, &error);
        (void)ramet_gguf_f32(gguf, keys[i], &f, &error);
        (void)ramet_gguf_bool(gguf, keys[i], &b, &error);
        if (ramet_gguf_str(gguf, keys[i], &s, &error) == RAMET_OK)
            for (uint64_t k = 0; k < s.bytes; k++) sum += (unsigned char)s.data[k];
        if (ramet_gguf_array_get(gguf, keys[i], RAMET_GGUF_STRING, &a, &error) == RAMET_OK)
            for (uint64_t k = 0; k < a.n; k++) {
                s = ramet_gguf_next_string(&a.data);
                for (uint64_t c = 0; c < s.bytes; c++) sum += (unsigned char)s.data[c];
            }
        if (ramet_gguf_array_get(gguf, keys[i], RAMET_GGUF_I32, &a, &error) == RAMET_OK)
            for (uint64_t k = 0; k < 4 * a.n; k++) sum += a.data[k];
    }
    return sum;
}

static void case_21_cut_at_every_byte(void **state) {
    (void)state;
    gguf_builder g = build_good();
    size_t bytes;
    uint8_t *file = gb_file(&g, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, file, cut);
        ramet_gguf *gguf;
        error = (ramet_error){0};
        assert_int_equal(ramet_gguf_open_memory(part, cut, "cut.gguf", &gguf, &error), RAMET_E_CORRUPT);
        assert_null(gguf);
        assert_non_null(strstr(error.message, "cut.gguf"));
        if (cut == bytes - 1) assert_non_null(strstr(error.message, "'blocks'"));
        free(part);
    }
    free(file);
    gb_end(&g);
}

static void case_21_tensor_past_the_end(void **state) {
    (void)state;
    static const uint64_t offsets[] = {UINT64_MAX - 7, UINT64_MAX - 31, 1ull << 63, 4096, 32};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        gguf_builder g = gb_begin();
        uint64_t dims[] = {8};
        uint8_t zeros[32] = {0};
        gb_info(&g, "far", 1, dims, 1, 0, offsets[i]);
        gb_put(&g.data, zeros, sizeof zeros);
        assert_refused(&g, RAMET_E_CORRUPT, "test.gguf|far");
    }
    gguf_builder g = gb_begin(); /* control: the same at 0 is fine */
    uint64_t dims[] = {8};
    uint8_t zeros[32] = {0};
    gb_info(&g, "near", 1, dims, 1, 0, 0);
    gb_put(&g.data, zeros, sizeof zeros);
    assert_accepted(&g);
}

static void every_changed_byte_is_survived(void **state) {
    (void)state;
    gguf_builder g = build_good();
    size_t bytes, accepted = 0;
    uint8_t *file = gb_file(&g, &bytes);
    for (size_t at = 0; at < bytes; at++)
        for (int change = 0; change < 9; change++) {
            uint8_t old = file[at];
            file[at] = (uint8_t)(change < 8 ? old ^ 1 << change : ~old);
            ramet_gguf *gguf;
            if (ramet_gguf_open_memory(file, bytes, "flip.gguf", &gguf, &error) == RAMET_OK) {
                accepted++;
                (void)walk(gguf);
                ramet_gguf_close(&gguf);
            }
            file[at] = old;
        }
    assert_true(accepted > 0 && accepted < 9 * bytes); /* data may change, headers may not */
    free(file);
    gb_end(&g);
}

static void info_refused(uint32_t n_dims, const uint64_t *dims, size_t n_written, uint32_t type, ramet_status code,
                         const char *words) {
    gguf_builder g = gb_begin();
    uint8_t zeros[256] = {0};
    gb_info(&g, "odd.weight", n_dims, dims, n_written, type, 0);
    gb_put(&g.data, zeros, sizeof zeros);
    assert_refused(&g, code, words);
}

static void case_45_shapes_that_overflow(void **state) {
    (void)state;
    static const uint64_t shapes[][4] = {
        {(1ull << 42) + 1, 1152, 1, 1},
        {1ull << 63, 2, 1, 1},
        {1ull << 32, 1ull << 32, 1, 1},
        {UINT64_MAX, 1, 1, 1},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
        {1ull << 62, 1, 1, 1},
        {1 << 16, 1 << 16, 1 << 16, 1 << 16},
    };
    static const uint32_t types[] = {0, 1, 2, 8, 12, 16, 24, 28, 30};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
            info_refused(4, shapes[i], 4, types[t], RAMET_E_CORRUPT, "odd.weight");
}

static void case_45_dimensions(void **state) {
    (void)state;
    static const uint64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint32_t wrong[] = {0, 5, 9, 1000000, UINT32_MAX};
    for (size_t i = 0; i < 5; i++)
        info_refused(wrong[i], dims, wrong[i] < 9 ? wrong[i] : 9, 0, RAMET_E_CORRUPT, "odd.weight");
    static const uint64_t zeros[][2] = {{0, 4}, {4, 0}, {0, 0}, {0, UINT64_MAX}};
    for (size_t i = 0; i < 4; i++) info_refused(2, zeros[i], 2, 0, RAMET_E_CORRUPT, "odd.weight|dimension of 0");
    static const uint64_t part_of_block[] = {33};
    info_refused(1, part_of_block, 1, 8, RAMET_E_CORRUPT, "odd.weight|Q8_0");
    static const uint64_t transposed[] = {1, 32};
    info_refused(2, transposed, 2, 2, RAMET_E_CORRUPT, "odd.weight|Q4_0");
}

static void case_45_types(void **state) {
    (void)state;
    static const uint64_t dims[] = {32};
    static const uint32_t unknown[] = {4, 5, 31, 36, 255, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        info_refused(1, dims, 1, unknown[i], RAMET_E_UNSUPPORTED, "odd.weight|not supported");
    gguf_builder g = gb_begin(); /* known and not run: harmless until somebody wants it */
    uint8_t zeros[18] = {0};
    gb_tensor(&g, "other", 32, 1, 20, zeros, sizeof zeros);
    assert_accepted(&g);
}

static void case_45_offsets(void **state) {
    (void)state;
    uint8_t zeros[256] = {0};
    uint64_t dims[] = {16}; /* 64 bytes */
    static const struct {
        uint64_t first, second;
        const char *words;
    } wrong[] = {{8, 64, "one|aligned"},
                 {0, 65, "two|aligned"},
                 {0, 32, "two|overlaps"},
                 {64, 0, "two|before"},
                 {64, 64, "two|overlaps"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gguf_builder g = gb_begin();
        gb_info(&g, "one", 1, dims, 1, 0, wrong[i].first);
        gb_info(&g, "two", 1, dims, 1, 0, wrong[i].second);
        gb_put(&g.data, zeros, sizeof zeros);
        assert_refused(&g, RAMET_E_CORRUPT, wrong[i].words);
    }
    gguf_builder g = gb_begin(); /* control, with a gap */
    gb_info(&g, "one", 1, dims, 1, 0, 0);
    gb_info(&g, "two", 1, dims, 1, 0, 96);
    gb_put(&g.data, zeros, sizeof zeros);
    assert_accepted(&g);
}

static void case_46_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {1ull << 30, 1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 7, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        gguf_builder g = gb_begin();
        gb_uint(&g.values, lengths[i], 8);
        gb_put(&g.values, "key", 3);
        g.n_values = 1;
        assert_refused(&g, RAMET_E_CORRUPT, "test.gguf");
        g = gb_begin();
        gb_key(&g, "text", 8);
        gb_uint(&g.values, lengths[i], 8);
        assert_refused(&g, RAMET_E_CORRUPT, "'text'");
        g = gb_begin();
        gb_array(&g, "list", 8, 1);
        gb_uint(&g.values, lengths[i], 8);
        assert_refused(&g, RAMET_E_CORRUPT, "'list'");
        g = gb_begin();
        gb_uint(&g.infos, lengths[i], 8);
        gb_put(&g.infos, "012345678901234567890123456789", 30);
        g.n_tensors = 1;
        assert_refused(&g, RAMET_E_CORRUPT, "test.gguf");
    }
}

static void case_46_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {1ull << 62, 1ull << 63, UINT64_MAX, 1ull << 40, 1ull << 31, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        gguf_builder g = build_good();
        g.n_values = counts[i];
        assert_refused(&g, RAMET_E_CORRUPT, "test.gguf");
        g = build_good();
        g.n_tensors = counts[i];
        assert_refused(&g, RAMET_E_CORRUPT, "test.gguf");
        for (uint32_t element = 0; element <= 12; element++) {
            if (element == 9) continue;
            g = gb_begin();
            gb_array(&g, "list", element, counts[i]);
            gb_text(&g.values, "something");
            assert_refused(&g, RAMET_E_CORRUPT, "'list'");
        }
    }
}

static void case_46_arrays(void **state) {
    (void)state;
    gguf_builder g = gb_begin();
    gb_array(&g, "nested", 9, 1);
    gb_uint(&g.values, 4, 4), gb_uint(&g.values, 0, 8);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "'nested'|array of arrays");
    static const uint32_t unknown[] = {13, 255, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        g = gb_begin();
        gb_array(&g, "list", unknown[i], 0);
        assert_refused(&g, RAMET_E_CORRUPT, "'list'");
        g = gb_begin();
        gb_key(&g, "value", unknown[i]);
        gb_uint(&g.values, 0, 8);
        assert_refused(&g, RAMET_E_CORRUPT, "'value'");
    }
}

static void case_46_alignment(void **state) {
    (void)state;
    static const uint32_t wrong[] = {0, 3, 48, 1u << 21, 1u << 30, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gguf_builder g = gb_begin();
        gb_u32(&g, "general.alignment", wrong[i]);
        assert_refused(&g, RAMET_E_CORRUPT, "general.alignment|power of two");
    }
    gguf_builder g = gb_begin();
    gb_key(&g, "general.alignment", 10), gb_uint(&g.values, 32, 8);
    assert_refused(&g, RAMET_E_CORRUPT, "general.alignment|32-bit");
    for (uint32_t alignment = 1; alignment <= 1u << 20; alignment *= 4) {
        g = gb_begin();
        g.alignment = alignment;
        gb_u32(&g, "general.alignment", alignment);
        gb_tensor(&g, "t", 1, 1, 0, "abcd", 4);
        assert_accepted(&g);
    }
}

static void case_46_versions(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *words;
    } wrong[] = {
        {0, "version 0"}, {1, "version 1"}, {4, "version 4"}, {3u << 24, "big-endian"}, {2u << 24, "big-endian"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gguf_builder g = build_good();
        g.version = wrong[i].version;
        assert_refused(&g, RAMET_E_UNSUPPORTED, wrong[i].words);
    }
    ramet_gguf *gguf;
    assert_int_equal(ramet_gguf_open_memory((const uint8_t *)"GGML....", 8, "old.bin", &gguf, &error), RAMET_E_CORRUPT);
    assert_int_equal(ramet_gguf_open_memory(NULL, 0, "empty.gguf", &gguf, &error), RAMET_E_CORRUPT);
}

static void case_46_names_and_bools(void **state) {
    (void)state;
    gguf_builder g = gb_begin();
    gb_u32(&g, "", 1);
    assert_refused(&g, RAMET_E_CORRUPT, "key 0|empty");
    for (size_t bytes = 65535; bytes <= 65536; bytes++) {
        char *key = malloc(bytes + 1);
        memset(key, 'k', bytes);
        key[bytes] = 0;
        g = gb_begin();
        gb_u32(&g, key, 1);
        if (bytes == 65535)
            assert_accepted(&g);
        else
            assert_refused(&g, RAMET_E_CORRUPT, "65536|kkkk...");
        free(key);
    }
    g = gb_begin();
    gb_bool(&g, "flag", 2);
    assert_refused(&g, RAMET_E_CORRUPT, "'flag'|bool");
    g = gb_begin();
    gb_array(&g, "flags", 7, 3);
    gb_uint(&g.values, 0x020100, 3);
    assert_refused(&g, RAMET_E_CORRUPT, "'flags'|bool");
    g = gb_begin();
    gb_uint(&g.values, 4, 8), gb_put(&g.values, "a\0bc", 4), gb_uint(&g.values, 0, 4), gb_uint(&g.values, 0, 1);
    g.n_values = 1;
    assert_refused(&g, RAMET_E_CORRUPT, "control|a?bc");
    g = gb_begin(); /* a value may hold anything */
    gb_key(&g, "text", 8);
    gb_uint(&g.values, 4, 8), gb_put(&g.values, "a\0\xff\x80", 4);
    assert_accepted(&g);
    g = gb_begin();
    uint64_t dims[] = {1};
    gb_info(&g, "", 1, dims, 1, 0, 0);
    gb_put(&g.data, "data", 4);
    assert_refused(&g, RAMET_E_CORRUPT, "tensor 0|empty");
}

/* Below this many bytes of address space more than now, an allocation of a claimed size must fail; the files above must
 * then still be called corrupt, not too large. */
static void case_46_nothing_large_is_allocated(void **state) {
    (void)state;
    if (UNDER_SANITIZER) skip(); /* its shadow needs terabytes */
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) skip();
    int n = fscanf(file, "%lu", &pages);
    fclose(file);
    assert_int_equal(n, 1);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    tight = old;
    tight.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + (16ul << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    void *large = ramet_map(64u << 20); /* control: the limit bites */
    case_46_counts(state);
    case_46_lengths(state);
    case_45_shapes_that_overflow(state);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_null(large);
}

static void case_46_memory_is_proportional_to_the_file(void **state) {
    (void)state;
#if defined(__GLIBC__) && !UNDER_SANITIZER
    for (int kind = 0; kind < 3; kind++) { /* the smallest keys, strings and tensors that a file can have */
        gguf_builder g = gb_begin();
        if (kind == 1) gb_array(&g, "strings", 8, 20000);
        for (uint32_t i = 0; i < 20000; i++) {
            char name[8];
            uint64_t dims[] = {1};
            snprintf(name, sizeof name, "%x", i);
            if (kind == 0) gb_key(&g, name, 0), gb_uint(&g.values, 1, 1);
            if (kind == 1) gb_text(&g.values, "");
            if (kind == 2) gb_info(&g, name, 1, dims, 1, 24, 32 * i), gb_uint(&g.data, 1, 1), gb_pad(&g.data, 32);
        }
        size_t bytes;
        uint8_t *file = gb_file(&g, &bytes);
        struct mallinfo2 before = mallinfo2();
        ramet_gguf *gguf;
        if (ramet_gguf_open_memory(file, bytes, "many.gguf", &gguf, &error) != RAMET_OK) fail_msg("%s", error.message);
        struct mallinfo2 after = mallinfo2();
        size_t used = (after.uordblks + after.hblkhd) - (before.uordblks + before.hblkhd);
        assert_true(used > 0 && used < 16 * bytes);
        ramet_gguf_close(&gguf);
        free(file);
        gb_end(&g);
    }
#else
    skip();
#endif
}

static void case_48_duplicates(void **state) {
    (void)state;
    gguf_builder g = build_good();
    gb_u32(&g, "n.u8", 251);
    assert_refused(&g, RAMET_E_CORRUPT, "'n.u8'|twice");
    g = build_good();
    gb_str(&g, "n.u8", "of another type");
    assert_refused(&g, RAMET_E_CORRUPT, "'n.u8'|twice");
    for (uint64_t rows = 1; rows <= 2; rows++) { /* same and different shape */
        g = build_good();
        gb_tensor(&g, "norm", 5, rows, 0, "0123456789012345678901234567890123456789", 20 * rows);
        assert_refused(&g, RAMET_E_CORRUPT, "'norm'|two tensors");
    }
}

static void names_are_found_like_by_looking_at_all(void **state) {
    (void)state;
    gguf_builder g = gb_begin();
    char name[16];
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t dims[] = {1};
        snprintf(name, sizeof name, "t%u", i * 2654435761u % 100003u);
        gb_info(&g, name, 1, dims, 1, 0, 32 * i);
        gb_uint(&g.data, i, 4);
        gb_pad(&g.data, 32);
    }
    ramet_gguf *gguf;
    uint8_t *file;
    assert_int_equal(open_built(&g, &gguf, &file), RAMET_OK);
    size_t found = 0;
    for (uint32_t k = 0; k < 100003; k += 7) {
        snprintf(name, sizeof name, "t%u", k);
        const ramet_gguf_tensor *expected = NULL, *t = ramet_gguf_find(gguf, name);
        for (uint32_t i = 0; i < 3000 && !expected; i++)
            if (i * 2654435761u % 100003u == k) expected = ramet_gguf_tensor_at(gguf, i);
        assert_ptr_equal(t, expected);
        found += t != NULL;
    }
    assert_true(found > 100);
    ramet_gguf_close(&gguf);
    free(file);
    gb_end(&g);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    gguf_builder g = build_good();
    ramet_gguf *gguf;
    uint8_t *file;
    uint64_t n = 1;
    for (;; n++) {
        ramet_alloc_fail_after(n);
        ramet_status status = open_built(&g, &gguf, &file);
        ramet_alloc_fail_after(0);
        free(file);
        if (status == RAMET_OK) break;
        assert_int_equal(status, RAMET_E_NO_MEMORY);
        assert_null(gguf);
    }
    assert_true(n > 5); /* the loop did make something fail */
    ramet_gguf_close(&gguf);
    gb_end(&g);
}

/* ---- split models ---- */

static char directory[] = "/tmp/ramet-test-gguf-XXXXXX";

static void part_path(char out[128], uint32_t no, uint32_t count) {
    snprintf(out, 128, "%s/m-%05u-of-%05u.gguf", directory, no + 1, count);
}

typedef struct part_wish {
    uint32_t no, count; /* as the keys say */
    uint32_t total;
    const char *tensor;
} part_wish;

static void save_part(uint32_t no, uint32_t count, part_wish wish) {
    char path[128];
    gguf_builder g = gb_begin();
    gb_key(&g, "split.no", 2), gb_uint(&g.values, wish.no, 2);
    gb_key(&g, "split.count", 2), gb_uint(&g.values, wish.count, 2);
    gb_key(&g, "split.tensors.count", 5), gb_uint(&g.values, wish.total, 4);
    if (no == 0) gb_str(&g, "general.architecture", "test");
    uint32_t value = 100 + no;
    if (wish.tensor) gb_tensor(&g, wish.tensor, 1, 1, 0, &value, 4);
    part_path(path, no, count);
    gb_save(&g, path);
    gb_end(&g);
}

static void save_three(void) {
    save_part(0, 3, (part_wish){0, 3, 2, NULL}); /* the first one may hold metadata only */
    save_part(1, 3, (part_wish){1, 3, 2, "one"});
    save_part(2, 3, (part_wish){2, 3, 2, "two"});
}

static ramet_status open_part_of_three(uint32_t no, ramet_gguf **out) {
    char path[128];
    part_path(path, no, 3);
    return ramet_gguf_open(path, out, &error);
}

static void any_part_opens_all(void **state) {
    (void)state;
    uint8_t first[32];
    for (uint32_t no = 0; no < 3; no++) {
        save_three();
        ramet_gguf *gguf;
        if (open_part_of_three(no, &gguf) != RAMET_OK) fail_msg("%s", error.message);
        assert_int_equal(ramet_gguf_n_tensors(gguf), 2);
        assert_true(ramet_gguf_has(gguf, "general.architecture"));
        const ramet_gguf_tensor *t = ramet_gguf_find(gguf, "two");
        assert_int_equal(t->part, 2);
        assert_int_equal(t->data[0], 102);
        ramet_gguf_forget(gguf);
        assert_int_equal(t->data[0], 102);
        uint8_t digest[32];
        assert_int_equal(ramet_gguf_digest(gguf, NULL, digest, NULL, &error), RAMET_OK);
        if (no == 0) memcpy(first, digest, 32);
        assert_memory_equal(first, digest, 32);
        assert_non_null(strstr(ramet_gguf_path(gguf), "-00001-of-00003"));
        ramet_gguf_close(&gguf);
    }
}

static void assert_three_refused(ramet_status code, const char *word) {
    ramet_gguf *gguf;
    for (uint32_t no = 0; no < 3; no++) {
        char path[128];
        part_path(path, no, 3);
        if (access(path, R_OK) != 0) continue;
        assert_int_equal(open_part_of_three(no, &gguf), code);
        assert_null(gguf);
        if (!strstr(error.message, word)) fail_msg("'%s' is not in: %s", word, error.message);
    }
}

static void case_21_missing_shard(void **state) {
    (void)state;
    for (uint32_t no = 0; no < 3; no++) {
        char path[128], name[32];
        save_three();
        part_path(path, no, 3);
        assert_int_equal(unlink(path), 0);
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", no + 1);
        assert_three_refused(RAMET_E_NOT_FOUND, name);
    }
}

static void case_48_same_tensor_in_two_shards(void **state) {
    (void)state;
    save_three();
    save_part(2, 3, (part_wish){2, 3, 2, "one"});
    assert_three_refused(RAMET_E_CORRUPT, "'one'");
}

static void shards_that_disagree(void **state) {
    (void)state;
    ramet_gguf *gguf;
    save_three();
    save_part(2, 3, (part_wish){1, 3, 2, "two"}); /* says that it is another one */
    assert_int_equal(open_part_of_three(0, &gguf), RAMET_E_CORRUPT);
    assert_int_equal(open_part_of_three(2, &gguf), RAMET_E_CORRUPT);
    save_part(2, 3, (part_wish){2, 4, 2, "two"});
    assert_int_equal(open_part_of_three(0, &gguf), RAMET_E_CORRUPT);
    assert_int_equal(open_part_of_three(2, &gguf), RAMET_E_CORRUPT);
    save_part(2, 3, (part_wish){3, 3, 2, "two"}); /* number not below the count */
    assert_int_equal(open_part_of_three(0, &gguf), RAMET_E_CORRUPT);
    save_part(2, 3, (part_wish){2, 3, 2, NULL}); /* a tensor too few */
    assert_int_equal(open_part_of_three(0, &gguf), RAMET_E_CORRUPT);
    assert_non_null(strstr(error.message, "split.tensors.count"));
    save_three();
    char from[128], to[128];
    part_path(from, 0, 3);
    snprintf(to, sizeof to, "%s/renamed.gguf", directory);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(ramet_gguf_open(to, &gguf, &error), RAMET_E_CORRUPT);
    assert_non_null(strstr(error.message, "part 1 of 3"));
    assert_int_equal(unlink(to), 0);
}

static void files_that_cannot_be_opened(void **state) {
    (void)state;
    ramet_gguf *gguf;
    assert_int_equal(ramet_gguf_open("/nonexistent/x.gguf", &gguf, &error), RAMET_E_NOT_FOUND);
    assert_int_equal(ramet_gguf_open(directory, &gguf, &error), RAMET_E_ARGUMENT);
    assert_null(gguf);
}

static int make_directory(void **state) {
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state) {
    (void)state;
    for (uint32_t no = 0; no < 3; no++) {
        char path[128];
        part_path(path, no, 3);
        unlink(path);
    }
    return rmdir(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_read_back),
        cmocka_unit_test(case_21_cut_at_every_byte),
        cmocka_unit_test(case_21_tensor_past_the_end),
        cmocka_unit_test(case_21_missing_shard),
        cmocka_unit_test(every_changed_byte_is_survived),
        cmocka_unit_test(case_45_shapes_that_overflow),
        cmocka_unit_test(case_45_dimensions),
        cmocka_unit_test(case_45_types),
        cmocka_unit_test(case_45_offsets),
        cmocka_unit_test(case_46_lengths),
        cmocka_unit_test(case_46_counts),
        cmocka_unit_test(case_46_arrays),
        cmocka_unit_test(case_46_alignment),
        cmocka_unit_test(case_46_versions),
        cmocka_unit_test(case_46_names_and_bools),
        cmocka_unit_test(case_46_nothing_large_is_allocated),
        cmocka_unit_test(case_46_memory_is_proportional_to_the_file),
        cmocka_unit_test(case_48_duplicates),
        cmocka_unit_test(case_48_same_tensor_in_two_shards),
        cmocka_unit_test(names_are_found_like_by_looking_at_all),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(any_part_opens_all),
        cmocka_unit_test(shards_that_disagree),
        cmocka_unit_test(files_that_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
