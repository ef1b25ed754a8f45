/* test_sample_sampler.c - the sampler as a pure function: filters one by one against hand-made distributions, ties, seeds and
 * branches, and what it does with logits that are no numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sample/sample.h"

#include <math.h>
#include <string.h>

enum { N = 8 };
static ramet_candidate room[2 * N]; /* scratch: more than enough */
/* probabilities 0.4, 0.3, 0.15, 0.1, 0.05 and then nothing, at ids 3, 1, 6, 0, 7 */
static const float probabilities[N] = {0.1f, 0.3f, 0, 0.4f, 0, 0, 0.15f, 0.05f};

static void fill(float *logits) {
    for (int i = 0; i < N; i++) logits[i] = probabilities[i] > 0 ? logf(probabilities[i]) : -60.0f;
}

static ramet_sampler plain(void) {
    ramet_sampler s = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    ramet_sampler_seed(&s, 1, 0);
    return s;
}

static uint32_t filtered(const ramet_sampler *s, const float *logits, ramet_candidate *out) {
    float scratch[N];
    return ramet_sample_filter(s, logits, N, NULL, 0, scratch, out);
}

/* What an earlier call left in the scratch memory is nobody's business, and what lies behind it is untouched. */
static void scratch_is_only_scratch(void **state) {
    (void)state;
    float logits[N];
    fill(logits);
    size_t bytes = ramet_sample_scratch_bytes(N);
    assert_true(bytes < sizeof room);
    int32_t expected[64], token;
    for (int round = 0; round < 3; round++) {
        ramet_sampler s = plain();
        s.repeat_penalty = 1.3f, s.repeat_last = 4;
        ramet_sampler_seed(&s, 7, 0);
        memset(room, round == 1 ? 0xFF : 0, sizeof room);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(ramet_sample(&s, logits, N, expected, (size_t)(i < 4 ? i : 4), room, &token, NULL, NULL),
                             RAMET_OK);
            if (round == 0) expected[i] = token;
            assert_int_equal(token, expected[i]);
        }
        for (size_t i = bytes; i < sizeof room; i++)
            assert_int_equal(((const uint8_t *)room)[i], round == 1 ? 0xFF : 0);
    }
}

static void greedy_takes_the_best_and_the_lower_id_on_a_tie(void **state) {
    (void)state;
    float logits[N];
    fill(logits);
    ramet_sampler s = plain();
    s.temperature = 0;
    int32_t token;
    float logprob;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, &logprob, NULL), RAMET_OK);
    assert_int_equal(token, 3);
    assert_true(fabsf(logprob - logf(0.4f)) < 1e-5f);
    logits[6] = logits[3];
    logits[5] = logits[3];
    ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, NULL);
    assert_int_equal(token, 3);
    logits[2] = logits[3];
    ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, NULL);
    assert_int_equal(token, 2);
}

static void filters_keep_what_they_say(void **state) {
    (void)state;
    float logits[N];
    ramet_candidate c[N];
    fill(logits);
    ramet_sampler s = plain();
    assert_int_equal(filtered(&s, logits, c), N);
    s.top_k = 2;
    assert_int_equal(filtered(&s, logits, c), 2);
    assert_int_equal(c[0].token, 3);
    assert_int_equal(c[1].token, 1);
    s = plain();
    s.top_p = 0.69f; /* 0.4 + 0.3 reaches it */
    assert_int_equal(filtered(&s, logits, c), 2);
    s.top_p = 0.71f;
    assert_int_equal(filtered(&s, logits, c), 3);
    s.top_p = 0;
    assert_int_equal(filtered(&s, logits, c), 1);
    s = plain();
    s.min_p = 0.3f; /* of 0.4: 0.12 */
    assert_int_equal(filtered(&s, logits, c), 3);
    s.min_p = 1;
    assert_int_equal(filtered(&s, logits, c), 1);
}

static void temperature_sharpens_and_flattens(void **state) {
    (void)state;
    float logits[N];
    ramet_candidate c[N];
    fill(logits);
    ramet_sampler s = plain();
    s.temperature = 0.5f; /* squares the odds */
    filtered(&s, logits, c);
    assert_true(fabs(c[1].weight - 0.5625) < 1e-5);
    s.temperature = 2; /* takes their root */
    filtered(&s, logits, c);
    assert_true(fabs(c[1].weight - 0.866025) < 1e-5);
}

static void penalty_counts_a_token_once(void **state) {
    (void)state;
    float logits[N], scratch[N];
    ramet_candidate c[N];
    fill(logits);
    logits[3] = 2;
    const int32_t recent[] = {3, 1, 3, 3};
    ramet_sampler s = plain();
    s.repeat_penalty = 2;
    s.repeat_last = 3; /* the oldest, a 3, is out of sight; 3 and 1 are not */
    ramet_sample_filter(&s, logits, N, recent, 4, scratch, c);
    assert_true(scratch[3] == 1.0f);
    assert_true(scratch[1] == logits[1] * 2);
    assert_true(scratch[6] == logits[6]);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    float logits[N];
    fill(logits);
    ramet_sampler s = plain();
    int counts[N] = {0};
    enum { DRAWS = 40000 };
    for (int i = 0; i < DRAWS; i++) {
        int32_t token;
        assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, NULL), RAMET_OK);
        counts[token]++;
    }
    for (int i = 0; i < N; i++) { /* five standard deviations; and a shifted distribution would not pass */
        double p = (double)probabilities[i], deviation = sqrt(p * (1 - p) / DRAWS);
        assert_true(fabs(counts[i] / (double)DRAWS - p) <= 5 * deviation + 1e-9);
    }
    assert_true(fabs(counts[3] / (double)DRAWS - 0.3) > 5 * sqrt(0.3 * 0.7 / DRAWS));
}

static void seeds_and_branches_are_streams(void **state) {
    (void)state;
    ramet_sampler a = plain(), b = plain(), c = plain();
    ramet_sampler_seed(&a, 7, 0);
    ramet_sampler_seed(&b, 7, 1);
    ramet_sampler_seed(&c, 7, 0);
    int same = 0;
    for (int i = 0; i < 64; i++) {
        double x = ramet_rng_uniform(a.rng), y = ramet_rng_uniform(b.rng), z = ramet_rng_uniform(c.rng);
        assert_true(x == z && x >= 0 && x < 1);
        same += x == y;
    }
    assert_int_equal(same, 0);
    ramet_sampler_seed(&a, 0, 1);
    ramet_sampler_seed(&b, 1, 0);
    assert_true(a.rng[0] != b.rng[0]);
}

static void odd_logits_do_no_harm(void **state) {
    (void)state;
    float logits[N];
    int32_t token;
    ramet_error error;
    fill(logits);
    ramet_sampler s = plain();
    logits[3] = NAN;
    s.temperature = 0;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_OK);
    assert_int_equal(token, 1);
    logits[5] = INFINITY;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_OK);
    assert_int_equal(token, 5);
    s.temperature = 1;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_OK);
    assert_int_equal(token, 5);
    for (int i = 0; i < N; i++) logits[i] = -INFINITY;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_OK);
    for (int i = 0; i < N; i++) logits[i] = NAN;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_E_FAILED);
    assert_int_equal(ramet_sample(&s, logits, 0, NULL, 0, room, &token, NULL, &error), RAMET_E_ARGUMENT);
    fill(logits);
    const float bad[] = {NAN, -1};
    for (int i = 0; i < 2; i++) {
        for (int field = 0; field < 4; field++) {
            s = plain();
            *(float *[]){&s.temperature, &s.top_p, &s.min_p, &s.repeat_penalty}[field] = bad[i];
            assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_E_ARGUMENT);
        }
    }
    s.repeat_penalty = 0;
    assert_int_equal(ramet_sample(&s, logits, N, NULL, 0, room, &token, NULL, &error), RAMET_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_is_only_scratch),
        cmocka_unit_test(greedy_takes_the_best_and_the_lower_id_on_a_tie),
        cmocka_unit_test(filters_keep_what_they_say),
        cmocka_unit_test(temperature_sharpens_and_flattens),
        cmocka_unit_test(penalty_counts_a_token_once),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(seeds_and_branches_are_streams),
        cmocka_unit_test(odd_logits_do_no_harm),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
