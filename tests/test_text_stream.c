/* The streaming detokeniser against the whole one: same text, whole characters only. */
#include "test_text_fixture.h"

#include "base/utf8.h"

static uint64_t seed;

typedef struct string {
    char *data;
    size_t n, capacity;
} string;

static void append(string *t, const char *data, size_t bytes) {
    if (t->n + bytes > t->capacity) {
        t->data = realloc(t->data, t->capacity = 2 * (t->n + bytes));
        assert_non_null(t->data);
    }
    if (bytes) memcpy(t->data + t->n, data, bytes);
    t->n += bytes;
}

static string stream_all(const ramet_vocab *v, const int32_t *ids, size_t n, bool special) {
    string joined = {0};
    ramet_stream *s;
    const char *out;
    size_t bytes;
    assert_int_equal(ramet_stream_create(v, special, &s, NULL), RAMET_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ramet_stream_push(s, ids[i], &out, &bytes, NULL), RAMET_OK);
        assert_int_equal(ramet_utf8_valid_bytes(out, bytes), bytes); /* never half a character */
        assert_int_equal(out[bytes], 0);
        append(&joined, out, bytes);
    }
    ramet_stream_finish(s, &out, &bytes);
    assert_int_equal(ramet_utf8_valid_bytes(out, bytes), bytes);
    append(&joined, out, bytes);
    ramet_stream_destroy(&s);
    return joined;
}

/* What a whole decoder makes of broken bytes: one U+FFFD for each longest beginning of a character. */
static string replace_broken(const char *data, size_t bytes) {
    string t = {0};
    for (size_t at = 0, n; at < bytes; at += n) {
        bool whole = ramet_utf8_scan(data + at, bytes - at, &n) == RAMET_UTF8_WHOLE;
        if (whole)
            append(&t, data + at, n);
        else
            append(&t, RAMET_UTF8_REPLACEMENT, 3);
    }
    return t;
}

static void check_ids(const ramet_vocab *v, const int32_t *ids, size_t n, bool special) {
    char *whole;
    size_t bytes;
    assert_int_equal(ramet_vocab_decode(v, ids, n, special, &whole, &bytes, NULL), RAMET_OK);
    string got = stream_all(v, ids, n, special), want = replace_broken(whole, bytes);
    assert_int_equal(got.n, want.n);
    if (want.n) assert_memory_equal(got.data, want.data, want.n);
    free(got.data), free(want.data), free(whole);
}

static void test_goldens_stream(void **state) {
    (void)state;
    static const char *const files[] = {"tiny-llama3.bin", "tiny-qwen35.bin", "tiny-gemma.bin", "smollm2.bin"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        fixture f;
        fixture_open(&f, files[k]);
        ramet_vocab *v = create_vocab(&f.source);
        for (uint32_t i = 0; i < f.counts[0]; i++)
            for (int special = 0; special < 2; special++) check_ids(v, f.lists[0][i].ids, f.lists[0][i].n, special);
        ramet_vocab_destroy(&v);
        fixture_close(&f);
    }
}

static void test_random_ids(void **state) {
    (void)state;
    static const char *const files[] = {"tiny-llama3.bin", "tiny-gemma.bin"};
    uint64_t random = seed;
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        fixture f;
        fixture_open(&f, files[k]);
        for (int round = 0; round < 500; round++) {
            f.source.add_space_prefix = (int8_t)(round % 2);
            ramet_vocab *v = create_vocab(&f.source);
            int32_t ids[40];
            size_t n = next_random(&random) % 40;
            for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(next_random(&random) % f.source.n_tokens);
            check_ids(v, ids, n, round % 4 < 2);
            ramet_vocab_destroy(&v);
        }
        fixture_close(&f);
    }
}

/* A character in four tokens comes out with the fourth; a cut one as one U+FFFD. */
static void test_one_character(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-gemma.bin");
    ramet_vocab *v = create_vocab(&f.source);
    ramet_stream *s;
    const char *out;
    size_t bytes;
    assert_int_equal(ramet_stream_create(v, false, &s, NULL), RAMET_OK);
    static const uint8_t face[] = {0xF0, 0x9F, 0x98, 0x80};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ramet_stream_push(s, 15 + face[i], &out, &bytes, NULL), RAMET_OK); /* token 15 is byte 0 */
        assert_int_equal(bytes, i < 3 ? 0 : 4);
    }
    assert_memory_equal(out, face, 4);
    for (int i = 0; i < 3; i++) ramet_stream_push(s, 15 + face[i], &out, &bytes, NULL);
    ramet_stream_push(s, 15 + 'a', &out, &bytes, NULL);
    assert_string_equal(out, "\xEF\xBF\xBD"
                             "a");
    ramet_stream_push(s, 15 + 0xC3, &out, &bytes, NULL);
    assert_int_equal(bytes, 0);
    ramet_error error;
    assert_int_equal(ramet_stream_push(s, 384, &out, &bytes, &error), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_stream_push(s, -1, &out, &bytes, &error), RAMET_E_ARGUMENT);
    assert_int_equal(bytes, 0);
    ramet_stream_finish(s, &out, &bytes);
    assert_string_equal(out, "\xEF\xBF\xBD");
    ramet_stream_finish(s, &out, &bytes);
    assert_int_equal(bytes, 0);
    ramet_stream_destroy(&s);
    char *text;
    assert_int_equal(ramet_vocab_decode(v, (const int32_t[]){384}, 1, false, &text, &bytes, &error), RAMET_E_ARGUMENT);
    assert_null(text);
    ramet_vocab_destroy(&v);
    fixture_close(&f);
}

/* The scanner itself, against a table of what Unicode says about maximal subparts. */
static void test_scan(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        ramet_utf8 kind;
        size_t n;
    } rows[] = {
        {"a", RAMET_UTF8_WHOLE, 1},
        {"\xC3\xA9", RAMET_UTF8_WHOLE, 2},
        {"\xF4\x8F\xBF\xBF", RAMET_UTF8_WHOLE, 4},
        {"\xEF\xBF\xBD", RAMET_UTF8_WHOLE, 3},
        {"\x80", RAMET_UTF8_BROKEN, 1},
        {"\xC0\xAF", RAMET_UTF8_BROKEN, 1},
        {"\xC3(", RAMET_UTF8_BROKEN, 1},
        {"\xE4\xBD\n", RAMET_UTF8_BROKEN, 2},
        {"\xED\xA0\x80", RAMET_UTF8_BROKEN, 1},
        {"\xE0\x80\x80", RAMET_UTF8_BROKEN, 1},
        {"\xF0\x80\x80\x80", RAMET_UTF8_BROKEN, 1},
        {"\xF4\x90\x80\x80", RAMET_UTF8_BROKEN, 1},
        {"\xF5\x80", RAMET_UTF8_BROKEN, 1},
        {"\xF0\x9F\x98", RAMET_UTF8_CUT, 3},
        {"\xC3", RAMET_UTF8_CUT, 1},
        {"\xE4\xBD", RAMET_UTF8_CUT, 2},
        {"\xF0\x9F\x98z", RAMET_UTF8_BROKEN, 3},
        {"\xFF", RAMET_UTF8_BROKEN, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        assert_int_equal(ramet_utf8_scan(rows[i].bytes, strlen(rows[i].bytes), &n), rows[i].kind);
        assert_int_equal(n, rows[i].n);
    }
}

int main(int argc, char **argv) {
    seed = choose_seed(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens_stream), cmocka_unit_test(test_random_ids),
                                       cmocka_unit_test(test_one_character), cmocka_unit_test(test_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
