/* How each family cuts text into words; which names are known. Expected words follow from the published patterns, read
 * by hand; the goldens of test_text_goldens confirm them through whole tokenizers. */
#include "test_text_fixture.h"

#include "text/pre.h"

/* The words of `text`, joined by '~'. */
static void cut_text(const char *name, const char *text, size_t bytes, char *out, size_t room) {
    ramet_text_pre pre;
    assert_int_equal(ramet_text_pre_create(name, &pre, NULL), RAMET_OK);
    ramet_text_splitter *splitter = ramet_text_splitter_create(&pre);
    assert_non_null(splitter);
    size_t n = 0;
    for (size_t from = 0, end; from < bytes; from = end) {
        assert_int_equal(ramet_text_splitter_next(splitter, text, bytes, from, &end, NULL), RAMET_OK);
        assert_true(end > from && end <= bytes && n + end - from + 2 < room);
        if (from) out[n++] = '~';
        memcpy(out + n, text + from, end - from);
        n += end - from;
    }
    out[n] = 0;
    ramet_text_splitter_destroy(splitter);
    ramet_text_pre_destroy(&pre);
}

static void check_cut(const char *name, const char *text, const char *want) {
    char got[512];
    cut_text(name, text, strlen(text), got, sizeof got);
    if (strcmp(got, want) != 0) fail_msg("%s: \"%s\" was cut as \"%s\", not \"%s\"", name, text, got, want);
}

static void case_15_words(void **state) {
    (void)state;
    static const struct {
        const char *text, *gpt2, *smollm, *llama3, *qwen2, *qwen35;
    } rows[] = {
        {"12345", "12345", "1~2~3~4~5", "123~45", "1~2~3~4~5", "1~2~3~4~5"},
        {"a 12", "a~ 12", "a~ ~1~2", "a~ ~12", "a~ ~1~2", "a~ ~1~2"},
        {"a  12", "a~ ~ 12", "a~  ~1~2", "a~ ~ ~12", "a~ ~ ~1~2", "a~ ~ ~1~2"},
        {"don't", "don~'t", "don~'t", "don~'t", "don~'t", "don~'t"},
        {"DON'T", "DON~'~T", "DON~'~T", "DON~'T", "DON~'T", "DON~'T"},
        {"  x", " ~ x", " ~ x", " ~ x", " ~ x", " ~ x"},
        {"\r\n\n", "\r\n\n", "\r\n\n", "\r\n\n", "\r\n\n", "\r\n\n"},
        {"a \n b", "a~ \n~ b", "a~ \n~ b", "a~ \n~ b", "a~ \n~ b", "a~ \n~ b"},
        {"a\n\n b", "a~\n\n~ b", "a~\n\n~ b", "a~\n\n~ b", "a~\n\n~ b", "a~\n\n~ b"},
        {"\t\tif", "\t~\t~if", "\t~\t~if", "\t~\tif", "\t~\tif", "\t~\tif"},
        {"(x)\n", "(~x~)~\n", "(~x~)~\n", "(x~)\n", "(x~)\n", "(x~)\n"},
        {"x  ", "x~  ", "x~  ", "x~  ", "x~  ", "x~  "},
        {"a\xE2\x80\xA9"
         "b",
         "a~\xE2\x80\xA9~b", "a~\xE2\x80\xA9~b",
         "a~\xE2\x80\xA9"
         "b",
         "a~\xE2\x80\xA9"
         "b",
         "a~\xE2\x80\xA9"
         "b"}, /* U+2029 */
        {"e\xCC\x81t", "e~\xCC\x81~t", "e~\xCC\x81~t", "e~\xCC\x81t", "e~\xCC\x81t",
         "e\xCC\x81t"}, /* combining acute */
        {"\xE4\xBD\xA0\xE5\xA5\xBD!", "\xE4\xBD\xA0\xE5\xA5\xBD~!", "\xE4\xBD\xA0\xE5\xA5\xBD~!",
         "\xE4\xBD\xA0\xE5\xA5\xBD~!", "\xE4\xBD\xA0\xE5\xA5\xBD~!", "\xE4\xBD\xA0\xE5\xA5\xBD~!"},
        {"a\xF0\x9F\x98\x80", "a~\xF0\x9F\x98\x80", "a~\xF0\x9F\x98\x80", "a~\xF0\x9F\x98\x80", "a~\xF0\x9F\x98\x80",
         "a~\xF0\x9F\x98\x80"},
        {"\xE1\xA0\x8E\xE1\xA0\x8E!", "\xE1\xA0\x8E\xE1\xA0\x8E!", "\xE1\xA0\x8E\xE1\xA0\x8E!",
         "\xE1\xA0\x8E\xE1\xA0\x8E!", "\xE1\xA0\x8E\xE1\xA0\x8E!",
         "\xE1\xA0\x8E\xE1\xA0\x8E!"}, /* U+180E is no space since Unicode 6.3 */
        {"a\xC2\x85 b", "a~\xC2\x85~ b", "a~\xC2\x85~ b", "a~\xC2\x85~ b", "a~\xC2\x85~ b",
         "a~\xC2\x85~ b"}, /* U+0085 is */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_cut("gpt-2", rows[i].text, rows[i].gpt2);
        check_cut("smollm", rows[i].text, rows[i].smollm);
        check_cut("llama-bpe", rows[i].text, rows[i].llama3);
        check_cut("qwen2", rows[i].text, rows[i].qwen2);
        check_cut("qwen35", rows[i].text, rows[i].qwen35);
    }
}

static void test_aliases(void **state) {
    (void)state;
    static const struct {
        const char *alias, *of;
    } pairs[] = {{"llama3", "llama-bpe"}, {"deepseek-r1-qwen", "qwen2"}, {"refact", "smollm"}, {"mellum", "gpt-2"}};
    static const char text[] = "DON'T 12345\n\n  (e\xCC\x81t)\r\n x1";
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char a[512], b[512];
        cut_text(pairs[i].alias, text, sizeof text - 1, a, sizeof a);
        cut_text(pairs[i].of, text, sizeof text - 1, b, sizeof b);
        assert_string_equal(a, b);
    }
}

static void case_15_unknown_names(void **state) {
    (void)state;
    static const char *const names[] = {"default", "", "LLAMA-BPE", "llama-bpe ", "qwen", "tekken", "falcon"};
    ramet_text_pre pre;
    ramet_error error;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(ramet_text_pre_create(names[i], &pre, &error), RAMET_E_UNSUPPORTED);
        assert_non_null(strstr(error.message, names[i]));
        assert_null(pre.code);
    }
    assert_int_equal(ramet_text_pre_create(NULL, &pre, &error), RAMET_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "tokenizer.ggml.pre is missing"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(case_15_words), cmocka_unit_test(test_aliases),
                                       cmocka_unit_test(case_15_unknown_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
