/* Hostile sources: an error by name, never a crash, nothing left behind. And what looks odd but is real must load. */
#include "test_text_fixture.h"

#include "base/memory.h"

#include <math.h>

static fixture bytes_file, pieces_file;
static ramet_text_slice pieces[400], merges[100];
static int32_t types[400];
static float scores[400];

/* A copy of a fixture's source whose arrays the test may spoil. */
static ramet_vocab_source copy_source(const fixture *f) {
    ramet_vocab_source s = f->source;
    memcpy(pieces, s.pieces, s.n_tokens * sizeof *pieces);
    memcpy(types, s.types, s.n_tokens * sizeof *types);
    if (s.n_merges) memcpy(merges, s.merges, s.n_merges * sizeof *merges);
    if (s.scores) memcpy(scores, s.scores, s.n_tokens * sizeof *scores);
    s.pieces = pieces;
    s.types = types;
    s.merges = merges;
    s.scores = s.scores ? scores : NULL;
    return s;
}

static void expect(const ramet_vocab_source *s, ramet_status want, const char *says) {
    ramet_vocab *v = (ramet_vocab *)s;
    ramet_error error = {0};
    ramet_status got = ramet_vocab_create(s, &v, &error);
    if (got != want)
        fail_msg("expected %s, got %s: %s", ramet_status_name(want), ramet_status_name(got), error.message);
    if (got != RAMET_OK) assert_null(v);
    if (says && !strstr(error.message, says)) fail_msg("\"%s\" does not say \"%s\"", error.message, says);
    ramet_vocab_destroy(&v);
}

#define SLICE(text) ((ramet_text_slice){text, sizeof(text) - 1})

static void test_untouched_loads(void **state) {
    (void)state;
    ramet_vocab_source s = copy_source(&bytes_file);
    expect(&s, RAMET_OK, NULL);
    s = copy_source(&pieces_file);
    expect(&s, RAMET_OK, NULL);
}

static void case_15_unknown_kinds(void **state) {
    (void)state;
    ramet_vocab_source s = copy_source(&bytes_file);
    s.kind = "bert", expect(&s, RAMET_E_UNSUPPORTED, "bert");
    s.kind = NULL, expect(&s, RAMET_E_CORRUPT, "tokenizer.ggml.model");
    s = copy_source(&bytes_file);
    s.pre = "no-such-pre", expect(&s, RAMET_E_UNSUPPORTED, "no-such-pre");
    s.pre = NULL, expect(&s, RAMET_E_UNSUPPORTED, "tokenizer.ggml.pre");
    s = copy_source(&pieces_file);
    s.pre = NULL, expect(&s, RAMET_OK, NULL);
    s.pre = "qwen2", expect(&s, RAMET_E_UNSUPPORTED, "qwen2");
}

static void case_46_contradicting_arrays(void **state) {
    (void)state;
    ramet_vocab_source s = copy_source(&bytes_file);
    s.n_tokens = 0, expect(&s, RAMET_E_CORRUPT, "tokens");
    s = copy_source(&bytes_file);
    s.pieces = NULL, expect(&s, RAMET_E_CORRUPT, "tokens");
    s = copy_source(&bytes_file);
    pieces[9] = pieces[5], expect(&s, RAMET_E_CORRUPT, "tokens 5 and 9");
    s = copy_source(&bytes_file);
    types[7] = 77, expect(&s, RAMET_E_CORRUPT, "token 7");
    types[7] = -1, expect(&s, RAMET_E_CORRUPT, "token 7");
    s = copy_source(&bytes_file);
    pieces[0] = SLICE("no token for the byte 0x21 then"), expect(&s, RAMET_OK, NULL); /* U+FFFD can stand for it */
    s = copy_source(&bytes_file);
    for (uint32_t i = 0; i < 256; i++) types[i] = RAMET_TOKEN_CONTROL;
    expect(&s, RAMET_E_CORRUPT, "byte 0x00");
    s = copy_source(&bytes_file);
    static char huge[5000];
    memset(huge, 'a', sizeof huge);
    pieces[319] = (ramet_text_slice){huge, sizeof huge}, expect(&s, RAMET_E_UNSUPPORTED, "token 319");
    s = copy_source(&pieces_file);
    s.scores = NULL, expect(&s, RAMET_E_CORRUPT, "scores");
    s = copy_source(&pieces_file);
    scores[300] = NAN, expect(&s, RAMET_E_CORRUPT, "token 300");
    scores[300] = INFINITY, expect(&s, RAMET_OK, NULL);
    scores[300] = -INFINITY, expect(&s, RAMET_OK, NULL);
    s = copy_source(&pieces_file);
    types[20] = RAMET_TOKEN_NORMAL, expect(&s, RAMET_E_CORRUPT, "byte token <0x05>");
    types[0] = RAMET_TOKEN_BYTE, expect(&s, RAMET_E_CORRUPT, "token 0");
}

static void case_46_ids_out_of_range(void **state) {
    (void)state;
    static const int32_t bad[] = {320, INT32_MAX, -2, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ramet_vocab_source s = copy_source(&bytes_file);
        s.bos = bad[i], expect(&s, RAMET_E_CORRUPT, "bos");
        s = copy_source(&bytes_file);
        s.eos = bad[i], expect(&s, RAMET_E_CORRUPT, "eos");
        s = copy_source(&bytes_file);
        s.eot = bad[i], expect(&s, RAMET_E_CORRUPT, "eot");
        s = copy_source(&bytes_file);
        s.unk = bad[i], expect(&s, RAMET_E_CORRUPT, "unknown");
        s = copy_source(&bytes_file);
        s.pad = bad[i], expect(&s, RAMET_E_CORRUPT, "padding");
    }
    ramet_vocab_source s = copy_source(&bytes_file);
    s.bos = -1, s.add_bos = 1, expect(&s, RAMET_E_CORRUPT, "bos_token_id");
    s.add_bos = -1, expect(&s, RAMET_OK, NULL);
}

static void test_bad_merges(void **state) {
    (void)state;
    static const ramet_text_slice bad[] = {SLICE("he"),   SLICE(""),     SLICE(" "),     SLICE("h "),
                                           SLICE(" h"),   SLICE("h  e"), SLICE("h e e"), SLICE("h zz"),
                                           SLICE("zz h"), SLICE("z q"),  SLICE("h\0 e"), {NULL, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ramet_vocab_source s = copy_source(&bytes_file);
        merges[3] = bad[i], expect(&s, RAMET_E_CORRUPT, "merge 3");
    }
    ramet_vocab_source s = copy_source(&bytes_file);
    s.n_merges = 0, expect(&s, RAMET_E_CORRUPT, "merges");
    s = copy_source(&bytes_file);
    merges[9] = merges[2], expect(&s, RAMET_OK, NULL); /* the first counts */
}

static bool encodes_to(const ramet_vocab *v, const char *text, int32_t id) {
    id_list got = encode_bytes(v, text, strlen(text), 0);
    bool same = has_ids(got, &id, 1);
    free(got.ids);
    return same;
}

/* A merge that makes a control token would let plain text make it. */
static void test_merges_never_make_control_tokens(void **state) {
    (void)state;
    ramet_vocab_source s = copy_source(&bytes_file);
    ramet_vocab *v = create_vocab(&s);
    assert_true(encodes_to(v, "he", 256)); /* the control */
    ramet_vocab_destroy(&v);
    types[256] = RAMET_TOKEN_CONTROL;
    v = create_vocab(&s);
    assert_false(encodes_to(v, "he", 256));
    ramet_vocab_destroy(&v);
}

static void test_odd_but_fine(void **state) {
    (void)state;
    ramet_vocab_source s = copy_source(&bytes_file);
    types[310] = types[311] = RAMET_TOKEN_UNUSED; /* nameless padding, twice */
    s.n_merges = 10;
    pieces[310] = pieces[311] = SLICE("");
    expect(&s, RAMET_OK, NULL);
    s = copy_source(&bytes_file);
    pieces[319] = SLICE("a\0b"); /* NUL is a byte like others */
    ramet_vocab *v = create_vocab(&s);
    id_list got = encode_bytes(v, "xa\0bx", 5, RAMET_TOKENIZE_SPECIAL);
    assert_int_equal(got.n, 3);
    assert_int_equal(got.ids[1], 319);
    free(got.ids);
    ramet_vocab_destroy(&v);
    s = copy_source(&pieces_file);
    s.types = NULL; /* all normal, but <0x00> still means a byte */
    expect(&s, RAMET_OK, NULL);
    s = copy_source(&pieces_file);
    types[350] = 0; /* undefined: as normal */
    expect(&s, RAMET_OK, NULL);
    v = NULL;
    ramet_vocab_destroy(&v);
}

/* Every allocation of a whole life fails once; then nothing is left, and nothing is half there. */
static void test_out_of_memory(void **state) {
    (void)state;
    const fixture *files[] = {&bytes_file, &pieces_file};
    for (int k = 0; k < 2; k++) {
        ramet_status status = RAMET_E_NO_MEMORY;
        int failures = 0;
        for (uint64_t nth = 1; status != RAMET_OK; nth++) {
            ramet_vocab *v;
            ramet_stream *stream = NULL;
            int32_t *ids = NULL;
            char *text = NULL;
            size_t n = 0;
            ramet_alloc_fail_after(nth);
            status = ramet_vocab_create(&files[k]->source, &v, NULL);
            if (!status) status = ramet_vocab_encode(v, "the then\xFF there", 15, RAMET_TOKENIZE_BOS, &ids, &n, NULL);
            if (!status) status = ramet_vocab_decode(v, ids, n, true, &text, &n, NULL);
            if (!status) status = ramet_stream_create(v, true, &stream, NULL);
            ramet_alloc_fail_after(0);
            assert_true(status == RAMET_OK || status == RAMET_E_NO_MEMORY);
            failures += status != RAMET_OK;
            ramet_stream_destroy(&stream);
            free(text), free(ids);
            ramet_vocab_destroy(&v);
            assert_true(nth < 1000);
        }
        assert_true(failures > 15);
    }
}

/* Half the tokens have one name; that is found later, since nothing is built before the sum is known to fit. */
static void test_too_much_text(void **state) {
    (void)state;
    enum { TOKENS = 1 << 20 };
    static char text[4096];
    ramet_text_slice *many = malloc(TOKENS * sizeof *many);
    assert_non_null(many);
    for (uint32_t i = 0; i < TOKENS; i++) many[i] = (ramet_text_slice){text, sizeof text};
    ramet_vocab_source s = copy_source(&bytes_file);
    s.pieces = many, s.n_tokens = TOKENS, s.types = NULL;
    expect(&s, RAMET_E_UNSUPPORTED, "4 GiB");
    s.n_tokens = 1000, expect(&s, RAMET_E_CORRUPT, "same name"); /* the same, but for the size */
    free(many);
}

/* A vocabulary lives as long as the model: SmolLM2's 49,152 tokens and 48,900 merges fit in 40 bytes a token, since what
 * only building needs is let go. One that looks whole words up keeps it. */
static void test_memory_is_small(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "smollm2.bin");
    ramet_vocab *v = create_vocab(&f.source), *keeps;
    ramet_vocab_source s = f.source;
    s.pre = "llama-bpe";
    assert_int_equal(ramet_vocab_create(&s, &keeps, NULL), RAMET_OK);
    assert_true(ramet_vocab_bytes(v) < 40 * (uint64_t)f.source.n_tokens);
    assert_true(ramet_vocab_bytes(keeps) > 50 * (uint64_t)f.source.n_tokens);
    ramet_vocab_destroy(&keeps);
    ramet_vocab_destroy(&v);
    fixture_close(&f);
}

static int open_files(void **state) {
    (void)state;
    fixture_open(&bytes_file, "tiny-llama3.bin");
    fixture_open(&pieces_file, "tiny-gemma.bin");
    return 0;
}

static int close_files(void **state) {
    (void)state;
    fixture_close(&bytes_file);
    fixture_close(&pieces_file);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_untouched_loads),
                                       cmocka_unit_test(case_15_unknown_kinds),
                                       cmocka_unit_test(case_46_contradicting_arrays),
                                       cmocka_unit_test(case_46_ids_out_of_range),
                                       cmocka_unit_test(test_bad_merges),
                                       cmocka_unit_test(test_merges_never_make_control_tokens),
                                       cmocka_unit_test(test_odd_but_fine),
                                       cmocka_unit_test(test_too_much_text),
                                       cmocka_unit_test(test_memory_is_small),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, open_files, close_files);
}
