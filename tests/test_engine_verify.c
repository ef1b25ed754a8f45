/* test_engine_verify.c - `verify` on the bundled model: every check passes in a sound build, and in a build with a reordered sum
 * (RAMET_TEETH) every exactness check fails by name. Also the golden numerics_id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/numerics_id.h"
#include "kernels/kernels.h"
#include "ramet.h"

#include <string.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"

/* The checks that a reordered sum breaks. */
static const char *const exact[] = {
    "prefill == decode",      "fork is exact",
    "truncate then extend",   "snapshot resumes",
    "spill reads back",       "page size changes nothing",
    "thread-count invariant", "batch neighbours change nothing",
    "kernels agree",          "numerics_id",
};
enum { N_EXACT = sizeof exact / sizeof exact[0] };

struct tally {
    uint32_t rows, exact_rows, exact_failed, other_failed;
};

static void count_row(void *user, const ramet_verify_row *row) {
    struct tally *t = user;
    bool is_exact = false;
    for (int i = 0; i < N_EXACT; i++) is_exact |= strcmp(row->check, exact[i]) == 0;
    t->rows++;
    t->exact_rows += is_exact;
    if (row->verdict == RAMET_FAIL) {
        t->exact_failed += is_exact;
        t->other_failed += !is_exact;
        if (!RAMET_TEETH || !is_exact) print_error("%s: %s\n", row->check, row->detail);
    }
    if (is_exact && row->verdict == RAMET_PASS && strcmp(row->check, "numerics_id") != 0)
        assert_memory_equal(row->detail, "difference 0.00e+00", 19);
}

static void verify_passes_or_bites(void **state) {
    (void)state;
    ramet_model *model = NULL;
    ramet_error error = {0};
    if (ramet_model_open(MODEL, NULL, &model, &error) != RAMET_OK) fail_msg("%s", error.message);
    struct tally t = {0};
    uint32_t failed;
    ramet_engine_options options = {.threads = 2};
    if (ramet_verify(model, &options, count_row, &t, &failed, &error) != RAMET_OK) fail_msg("%s", error.message);
    assert_int_equal(t.exact_rows, N_EXACT);
    assert_int_equal(t.exact_failed, RAMET_TEETH ? N_EXACT : 0);
    assert_int_equal(t.other_failed, 0);
    assert_int_equal(failed, t.exact_failed + t.other_failed);
    ramet_model_close(&model);
}

static void all_kernels_make_the_golden_id(void **state) {
    (void)state;
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    assert_true(n >= 1);
    for (uint32_t i = 0; i < n; i++) {
        char id[33];
        const char *used;
        assert_int_equal(ramet_numerics(names[i], id, &used, NULL), RAMET_OK);
        assert_string_equal(used, names[i]);
        if (RAMET_TEETH)
            assert_string_not_equal(id, RAMET_NUMERICS_GOLDEN);
        else
            assert_string_equal(id, RAMET_NUMERICS_GOLDEN);
    }
    char id[33];
    assert_int_equal(ramet_numerics("sse9", id, NULL, NULL), RAMET_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kernels_make_the_golden_id),
        cmocka_unit_test(verify_passes_or_bites),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
