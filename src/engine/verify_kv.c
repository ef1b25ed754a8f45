/* verify_kv.c - what a coarser KV precision costs: the share of the sampler's probability mass that it moves (half
 * the sum of |p - q|, temperature 1) over 64 positions of text, against f32. A one-bit cache must fail the bound
 * that the others pass. */
#include "engine/verify.h"
#include "numerics/math.h"

#include <float.h>
#include <stdlib.h>

enum { POSITIONS = 64 };
static const double bound = 0.05;

struct quality {
    const ramet_subject *s;
    double sum, worst;
    uint32_t worst_pos, n, greedy_equal;
};

/* Largest logit, its index, and the sum of exp(l - largest). */
static double normaliser(const float *row, uint32_t n, float *out_largest, uint32_t *out_at) {
    *out_largest = -FLT_MAX;
    *out_at = 0;
    for (uint32_t i = 0; i < n; i++)
        if (row[i] > *out_largest) {
            *out_largest = row[i];
            *out_at = i;
        }
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)ramet_expf(row[i] - *out_largest);
    return sum;
}

static void add_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab) {
    struct quality *quality = user;
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *q = rows + (size_t)r * n_vocab, *p = quality->s->rows + (size_t)(first_pos + r) * n_vocab;
        float p_largest, q_largest;
        uint32_t p_at, q_at;
        double p_sum = normaliser(p, n_vocab, &p_largest, &p_at), q_sum = normaliser(q, n_vocab, &q_largest, &q_at);
        double moved = 0;
        for (uint32_t i = 0; i < n_vocab; i++) {
            double a = (double)ramet_expf(p[i] - p_largest) / p_sum, b = (double)ramet_expf(q[i] - q_largest) / q_sum;
            moved += a > b ? a - b : b - a;
        }
        moved /= 2;
        quality->sum += moved;
        quality->n++;
        quality->greedy_equal += p_at == q_at;
        if (!(moved <= quality->worst)) {
            quality->worst = moved;
            quality->worst_pos = first_pos + r;
        }
    }
}

static ramet_status measure(ramet_subject *s, int precision, struct quality *out, ramet_error *error) {
    *out = (struct quality){.s = s};
    ramet_engine *engine = NULL;
    ramet_context *context = NULL;
    RAMET_TRY(ramet_engine_create_on(s->model, s->model->weights, &s->options, precision, &engine, error));
    ramet_status status = ramet_context_create(engine, &context, error);
    if (status == RAMET_OK)
        status = ramet_context_extend_rows(context, s->tokens, s->n, s->n - POSITIONS, add_rows, out, error);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
    return status;
}

ramet_status ramet_verify_kv(ramet_subject *s, ramet_error *error) {
    static const struct {
        int precision;
        const char *check;
        bool is_bound; /* else a note */
    } rows[] = {{RAMET_KV_F16, "f16 KV", true}, {RAMET_KV_VQ8, "vq8 KV", true}, {RAMET_KV_Q8, "q8 KV", false}};
    struct quality quality;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        RAMET_TRY(measure(s, rows[i].precision, &quality, error));
        double mean = quality.sum / quality.n;
        ramet_verdict verdict = !rows[i].is_bound ? RAMET_NOTE : mean < bound ? RAMET_PASS : RAMET_FAIL;
        ramet_verify_report(s, rows[i].check, verdict,
                            "moves %.3f %% of the mass, greedy %u of %u, worst %.2f %% at %u", 100 * mean,
                            quality.greedy_equal, quality.n, 100 * quality.worst, quality.worst_pos);
    }
    RAMET_TRY(measure(s, RAMET_KV_ONE_BIT, &quality, error));
    double mean = quality.sum / quality.n;
    ramet_verify_report(s, "bound has teeth", mean >= bound ? RAMET_PASS : RAMET_FAIL,
                        "a one-bit cache moves %.1f %%, the bound is %.0f %%", 100 * mean, 100 * bound);
    return RAMET_OK;
}
