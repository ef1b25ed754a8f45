/* test_cli_parts.c - the pieces of the command that need no model: sizes, numbers, spelling, options, JSON, tables,
 * .npy. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/console.h"
#include "cli/json.h"
#include "cli/npy.h"
#include "cli/session.h"
#include "cli/table.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"1K", 1024},
                {"8G", UINT64_C(8) << 30},
                {"512MiB", 512u << 20},
                {"512mib", 512u << 20},
                {"1.5KB", 1536},
                {"7B", 7},
                {"2T", UINT64_C(2) << 40}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        assert_true(ramet_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",      "-1",    "G",  "8X",   "8GG", "8Gi", "1 G", "1e30",
                                      "0x10 ", "8GiBs", " 8", "0x10", "1e3", ".5",  "1.",  "1.5.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes;
        if (ramet_parse_size(bad[i], &bytes)) fail_msg("'%s' was taken for a size", bad[i]);
    }
}

static void test_numbers(void **state) {
    (void)state;
    uint64_t n;
    float f;
    assert_true(ramet_parse_u64("18446744073709551615", &n));
    assert_int_equal(n, UINT64_MAX);
    assert_false(ramet_parse_u64("18446744073709551616", &n));
    assert_false(ramet_parse_u64("-1", &n));
    assert_false(ramet_parse_u64("", &n));
    assert_false(ramet_parse_u64("1x", &n));
    assert_true(ramet_parse_float("0.25", &f));
    assert_true(f == 0.25f);
    assert_false(ramet_parse_float("nan", &f));
    assert_false(ramet_parse_float("inf", &f));
    assert_false(ramet_parse_float("", &f));
    assert_false(ramet_parse_float("1,5", &f));
}

static void test_spelling(void **state) {
    (void)state;
    assert_int_equal(ramet_edit_distance("temp", "temp"), 0);
    assert_int_equal(ramet_edit_distance("tmep", "temp"), 1);
    assert_int_equal(ramet_edit_distance("", "abc"), 3);
    assert_int_equal(ramet_edit_distance("kitten", "sitting"), 3);
    unsigned best = UINT32_MAX;
    assert_true(ramet_is_near("branchs", "branches", &best));
    assert_false(ramet_is_near("xyzzy", "branches", &best)); /* too far to be worth saying */
}

static ramet_status parse(unsigned command, ramet_options *o, ramet_error *error, int argc, const char **words) {
    char *argv[16] = {0};
    for (int i = 0; i < argc; i++) argv[i] = (char *)(uintptr_t)words[i];
    return ramet_options_parse(argc, argv, command, o, error);
}
#define PARSE(command, o, error, ...)                                                                                  \
    parse(command, o, error, (int)(sizeof((const char *[]){"x", __VA_ARGS__}) / sizeof(char *)),                       \
          (const char *[]){"x", __VA_ARGS__})

static void test_options(void **state) {
    (void)state;
    ramet_options o;
    ramet_error error;
    assert_int_equal(
        PARSE(RAMET_CMD_RUN, &o, &error, "-m", "a", "-n5", "-temp", "0", "--top-k=7", "-p", "-", "--kv", "q8"),
        RAMET_OK);
    assert_string_equal(o.model, "a");
    assert_int_equal(o.n_generate, 5);
    assert_true(o.sampler.temperature == 0);
    assert_int_equal(o.sampler.top_k, 7);
    assert_string_equal(o.prompt, "-");
    assert_true(o.has_kv && o.kv == RAMET_KV_Q8);
    assert_int_equal(PARSE(RAMET_CMD_FORK, &o, &error, "-n", "3", "-i", "f"), RAMET_OK);
    assert_int_equal(o.n_forks, 3); /* the same letter means another thing there */
    assert_false(o.has_kv);
    assert_int_equal(PARSE(RAMET_CMD_BENCH, &o, &error, "-forks", "9", "-prompt", "12"), RAMET_OK);
    assert_int_equal(o.bench_forks, 9);
    assert_int_equal(o.bench_prompt, 12);
    assert_int_equal(PARSE(RAMET_CMD_RUN, &o, &error, "--ctx-mem-budget", "8G"), RAMET_OK);
    assert_int_equal(o.kv_budget_bytes, UINT64_C(8) << 30);
    assert_int_equal(PARSE(RAMET_CMD_VERIFY, &o, &error, "-ctx-mem-budget", "64MiB", "--ctx-spill-dir=d"), RAMET_OK);
    assert_int_equal(o.kv_budget_bytes, 64 << 20);
    assert_string_equal(o.spill_directory, "d");
}

static void expect_refused(const char *in_message, unsigned command, const char *a, const char *b) {
    ramet_options o;
    ramet_error error;
    ramet_status status = b ? PARSE(command, &o, &error, a, b) : PARSE(command, &o, &error, a);
    assert_int_equal(status, RAMET_E_ARGUMENT);
    if (!strstr(error.message, in_message)) fail_msg("'%s' is not in '%s'", in_message, error.message);
}

static void test_refused_options(void **state) {
    (void)state;
    expect_refused("did you mean --branches?", RAMET_CMD_RUN, "--branchs", "3");
    expect_refused("did you mean --temp?", RAMET_CMD_RUN, "-tmep=1", NULL);
    expect_refused("unknown option --forks", RAMET_CMD_RUN, "--forks", "3"); /* another command's */
    expect_refused("did you mean --model?", RAMET_CMD_RUN, "-modle", "x");
    expect_refused("unknown option -z", RAMET_CMD_RUN, "-z", NULL);
    expect_refused("needs a value", RAMET_CMD_RUN, "--temp", NULL);
    expect_refused("takes no value", RAMET_CMD_RUN, "--json=1", NULL);
    expect_refused("more than one", RAMET_CMD_RUN, "--top", "3");
    expect_refused("from 0 to 100", RAMET_CMD_RUN, "--temp", "-1");
    expect_refused("from 1 to 4096", RAMET_CMD_RUN, "--branches", "0");
    expect_refused("whole number", RAMET_CMD_RUN, "-n", "many");
    expect_refused("f32|f16|vq8|q8", RAMET_CMD_RUN, "--kv", "q4");
    expect_refused("c|avx2", RAMET_CMD_RUN, "--kernels", "av");
    expect_refused("16, 32, 64", RAMET_CMD_RUN, "--page-tokens", "48");
    expect_refused("512MiB", RAMET_CMD_RUN, "--ctx-mem-budget", "0");
    expect_refused("512MiB", RAMET_CMD_RUN, "--ctx-mem-budget", "all");
    expect_refused("more than one", RAMET_CMD_RUN, "--ctx", "3");
    expect_refused("takes DIR", RAMET_CMD_RUN, "--ctx-spill-dir", "");
    expect_refused("takes KEYFILE", RAMET_CMD_CONVERT, "--encrypt", "");
}

static void test_token_ids(void **state) {
    (void)state;
    static const char text[] = "[1,2, 30\n4\t5]";
    int32_t *tokens;
    size_t n;
    ramet_error error;
    assert_int_equal(ramet_input_tokens(text, strlen(text), "x", &tokens, &n, &error), RAMET_OK);
    assert_int_equal(n, 5);
    assert_int_equal(tokens[2], 30);
    free(tokens);
    static const char *const bad[] = {"1 -2", "1.5", "a", "2147483648", "99999999999999999999", "1 2x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ramet_input_tokens(bad[i], strlen(bad[i]), "x", &tokens, &n, &error), RAMET_E_ARGUMENT);
}

static char *written(void (*write)(FILE *)) {
    static char text[4096];
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    write(file);
    fclose(file);
    return text;
}

static void write_json(FILE *file) {
    ramet_json j = {.out = file};
    ramet_json_object_begin(&j, NULL);
    ramet_json_text(&j, "a\"", "q\"\\\n\x01 \xC3\xA9 \xF0\x9F\x98\x80", 13);
    ramet_json_text(&j, "bad", "\xFF|\xC0\x80|\xED\xA0\x80|\xE2\x82|\xF4\x90\x80\x80", 16);
    ramet_json_array_begin(&j, "n");
    ramet_json_u64(&j, NULL, UINT64_MAX);
    ramet_json_i64(&j, NULL, -1);
    ramet_json_double(&j, NULL, (double)NAN);
    ramet_json_double(&j, NULL, 0.5);
    ramet_json_bool(&j, NULL, true);
    ramet_json_array_end(&j);
    ramet_json_array_begin(&j, "e");
    ramet_json_array_end(&j);
    ramet_json_string(&j, "s", NULL);
    ramet_json_object_end(&j);
}

static void test_json(void **state) {
    (void)state;
#define BAD "\xEF\xBF\xBD"
    assert_string_equal(written(write_json),
                        "{\"a\\\"\":\"q\\\"\\\\\\n\\u0001 \xC3\xA9 \xF0\x9F\x98\x80\",\"bad\":\"" BAD "|" BAD BAD
                        "|" BAD BAD BAD "|" BAD "|" BAD BAD BAD BAD
                        "\",\"n\":[18446744073709551615,-1,null,0.5,true],\"e\":[],\"s\":null}\n");
#undef BAD
}

static void write_largest(FILE *file) {
    ramet_json j = {.out = file};
    ramet_json_array_begin(&j, NULL);
    ramet_json_double(&j, NULL, DBL_MAX);
    ramet_json_double(&j, NULL, -1.797693134862e308); /* with ten digits it would round past the largest */
    ramet_json_array_end(&j);
}

/* A reader refuses a document with a number that it cannot hold; a fuzzer found that we wrote such. */
static void test_json_largest(void **state) {
    (void)state;
    char *end, *text = written(write_largest);
    assert_true(strtod(text + 1, &end) == DBL_MAX);
    double second = strtod(end + 1, &end);
    assert_true(isfinite(second) && second < -1.7976931e308);
    assert_string_equal(end, "]\n");
}

static void write_tables(FILE *file) {
    ramet_table t = {0};
    ramet_table_add(&t, "name", ">size", NULL);
    ramet_table_add(&t, "\xC2\xB5", "10", NULL);
    ramet_table_add(&t, "a,\"b", NULL);
    assert_int_equal(ramet_table_print(&t, RAMET_TABLE_TEXT, file, NULL), RAMET_OK);
    assert_int_equal(ramet_table_print(&t, RAMET_TABLE_MARKDOWN, file, NULL), RAMET_OK);
    assert_int_equal(ramet_table_print(&t, RAMET_TABLE_CSV, file, NULL), RAMET_OK);
    ramet_table_free(&t);
}

static void test_table(void **state) {
    (void)state;
    assert_string_equal(written(write_tables),
                        "name  size\n\xC2\xB5       10\na,\"b      \n"
                        "| name | size |\n| ---- | ---: |\n| \xC2\xB5    |   10 |\n| a,\"b |      |\n"
                        "name,size\n\xC2\xB5,10\n\"a,\"\"b\",\n");
}

static void test_npy(void **state) {
    (void)state;
    ramet_scratch scratch;
    ramet_npy npy;
    ramet_error error;
    const float rows[6] = {1, 2, 3, 4, 5, 6};
    char head[128];
    float back[6];
    assert_int_equal(ramet_scratch_create(ramet_temporary_parent(), "x.npy", &scratch, &error), RAMET_OK);
    assert_int_equal(ramet_npy_begin(scratch.file, 3, 2, &npy, &error), RAMET_OK);
    assert_int_equal(ramet_npy_write(&npy, rows, 1, &error), RAMET_OK);
    assert_int_not_equal(access(scratch.file, F_OK), 0); /* not there before it is whole */
    assert_int_equal(ramet_npy_write(&npy, rows + 2, 2, &error), RAMET_OK);
    assert_int_equal(ramet_npy_commit(&npy, &error), RAMET_OK);
    FILE *file = fopen(scratch.file, "rb");
    assert_non_null(file);
    assert_int_equal(fread(head, 1, sizeof head, file), sizeof head);
    assert_memory_equal(head, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } ",
                        70);
    assert_int_equal(head[127], '\n');
    assert_int_equal(fread(back, sizeof *back, 6, file), 6);
    assert_memory_equal(back, rows, sizeof rows);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    assert_int_equal(ramet_npy_begin(scratch.file, 3, 2, &npy, &error), RAMET_OK);
    assert_int_equal(ramet_npy_commit(&npy, &error), RAMET_E_FAILED); /* rows are missing: the old file stays */
    assert_int_equal(access(scratch.file, F_OK), 0);
    ramet_scratch_remove(&scratch);
    assert_int_not_equal(access(scratch.file, F_OK), 0);
}

static void test_labels(void **state) {
    (void)state;
    assert_string_equal(ramet_label_bytes(565391).text, "552.14 KiB");
    assert_string_equal(ramet_label_bytes(999).text, "999 bytes");
    assert_string_equal(ramet_label_duration(175 * 1000000).text, "175 ms");
    assert_string_equal(ramet_label_duration(483).text, "483 ns");
    assert_string_equal(ramet_label_duration(1500).text, "1.5 \xC2\xB5s");
    assert_string_equal(ramet_label_count(1234567).text, "1,234,567");
    assert_true(isnan(ramet_per_second(1, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),   cmocka_unit_test(test_numbers),         cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_options), cmocka_unit_test(test_refused_options), cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_json),    cmocka_unit_test(test_table),           cmocka_unit_test(test_npy),
        cmocka_unit_test(test_labels),  cmocka_unit_test(test_json_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
