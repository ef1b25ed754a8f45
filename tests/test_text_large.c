/* Two megabytes of what makes tokenizers slow: one word, one run, noise. Nothing here measures time; a quadratic merge
 * or search would run into the test's limit. */
#include "test_text_fixture.h"

#define BYTES ((size_t)2 << 20)

static uint64_t seed;
static char *room;

static void fill(const char *pattern) {
    size_t n = strlen(pattern);
    for (size_t i = 0; i < BYTES; i++) room[i] = pattern[i % n];
}

static size_t check_text(const ramet_vocab *v) {
    id_list got = encode_bytes(v, room, BYTES, RAMET_TOKENIZE_SPECIAL);
    size_t n = got.n;
    assert_true(decodes_to(v, got.ids, n, true, room, BYTES));
    free(got.ids);
    return n;
}

/* Not 0xE2, so that no U+2581 comes up: it would come back as a space. */
static void fill_noise(void) {
    uint64_t random = seed;
    for (size_t i = 0; i < BYTES; i++) room[i] = (char)next_random(&random);
    for (size_t i = 0; i < BYTES; i++)
        if (room[i] == (char)0xE2) room[i] = 'a';
}

static void test_large_texts(void **state) {
    (void)state;
    static const struct {
        const char *file, *patterns[4];
    } rows[] = {{"smollm2.bin", {"a", " ", "<|im_start|>"}},
                {"tiny-qwen35.bin", {"\n ", "\xCC\x81"}},
                {"tiny-gemma.bin", {"a", "<"}}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        fixture f;
        fixture_open(&f, rows[k].file);
        ramet_vocab *v = create_vocab(&f.source);
        for (size_t i = 0; rows[k].patterns[i]; i++) {
            fill(rows[k].patterns[i]);
            assert_true(check_text(v) > 0);
        }
        fill_noise();
        if (k > 0) check_text(v); /* SmolLM2's vocabulary cannot spell all bytes */
        ramet_vocab_destroy(&v);
        fixture_close(&f);
    }
}

/* Runs of spaces are cut by the longest user-defined token: four, in this vocabulary. */
static void test_longest_first(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-gemma.bin");
    ramet_vocab *v = create_vocab(&f.source);
    fill(" ");
    assert_int_equal(check_text(v), BYTES / 4);
    ramet_vocab_destroy(&v);
    fixture_close(&f);
}

static void test_too_long(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-gemma.bin");
    ramet_vocab *v = create_vocab(&f.source);
    int32_t *ids;
    size_t n;
    assert_int_equal(ramet_vocab_encode(v, room, SIZE_MAX, 0, &ids, &n, NULL), RAMET_E_ARGUMENT); /* reads nothing */
    assert_null(ids);
    ramet_vocab_destroy(&v);
    fixture_close(&f);
}

int main(int argc, char **argv) {
    seed = choose_seed(argc, argv);
    room = malloc(BYTES);
    if (!room) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_texts), cmocka_unit_test(test_longest_first),
                                       cmocka_unit_test(test_too_long)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(room);
    return failed;
}
