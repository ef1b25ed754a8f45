/* sample.c - the filters and the draw; see sample.h. */
#include "sample/sample.h"
#include "numerics/math.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

void ramet_sampler_defaults(ramet_sampler *out) {
    *out = (ramet_sampler){
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.0f, .repeat_last = 64};
    ramet_sampler_seed(out, 0, 0);
}

/* NaN never wins; infinities become the largest finite number, so that differences stay numbers. */
static float tame(float logit) {
    if (!(logit == logit)) return -FLT_MAX;
    return logit > FLT_MAX ? FLT_MAX : logit < -FLT_MAX ? -FLT_MAX : logit;
}

static void penalise(const ramet_sampler *s, uint32_t n_vocab, const int32_t *recent, size_t n_recent, float *logits) {
    if (s->repeat_penalty == 1.0f || s->repeat_last == 0) return;
    size_t first = n_recent > s->repeat_last ? n_recent - s->repeat_last : 0;
    for (size_t i = first; i < n_recent; i++) {
        bool seen = false; /* a token is penalised once, however often it occurs */
        for (size_t j = first; j < i && !seen; j++) seen = recent[j] == recent[i];
        if (seen || recent[i] < 0 || (uint32_t)recent[i] >= n_vocab) continue;
        float *l = &logits[recent[i]];
        *l = *l > 0 ? *l / s->repeat_penalty : *l * s->repeat_penalty;
    }
}

static bool is_better(const ramet_candidate *a, const ramet_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static int compare(const void *a, const void *b) {
    return is_better(a, b) ? -1 : is_better(b, a) ? 1 : 0;
}

static void sift_down(ramet_candidate *heap, uint32_t n, uint32_t at) {
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && is_better(&heap[child], &heap[child + 1])) child++;
        if (!is_better(&heap[at], &heap[child])) return;
        ramet_candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

/* The k best, sorted; a heap with the worst at the top. */
static void select_best(const float *logits, uint32_t n_vocab, uint32_t k, ramet_candidate *out) {
    for (uint32_t i = 0; i < k; i++) out[i] = (ramet_candidate){.token = (int32_t)i, .logit = logits[i]};
    if (k < n_vocab) {
        for (uint32_t i = k / 2; i-- > 0;) sift_down(out, k, i);
        for (uint32_t i = k; i < n_vocab; i++) {
            ramet_candidate c = {.token = (int32_t)i, .logit = logits[i]};
            if (!is_better(&c, &out[0])) continue;
            out[0] = c;
            sift_down(out, k, 0);
        }
    }
    qsort(out, k, sizeof *out, compare);
}

static double weigh(ramet_candidate *c, uint32_t n, float temperature) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        c[i].weight = (double)ramet_expf((c[i].logit - c[0].logit) / temperature);
        sum += c[i].weight;
    }
    return sum;
}

/* The fewest candidates whose probability reaches top_p. */
static uint32_t keep_top_p(ramet_candidate *c, uint32_t n, float top_p) {
    if (!(top_p < 1)) return n;
    double want = weigh(c, n, 1) * (double)(top_p > 0 ? top_p : 0), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum >= want) return i + 1;
    }
    return n;
}

static uint32_t keep_min_p(ramet_candidate *c, uint32_t n, float min_p) {
    if (!(min_p > 0)) return n;
    weigh(c, n, 1); /* the best has weight 1 */
    uint32_t kept = 1;
    while (kept < n && c[kept].weight >= (double)min_p) kept++;
    return kept;
}

uint32_t ramet_sample_filter(const ramet_sampler *sampler, const float *logits, uint32_t n_vocab, const int32_t *recent,
                             size_t n_recent, float *scratch, ramet_candidate *out) {
    bool any = false;
    for (uint32_t i = 0; i < n_vocab; i++) {
        any |= logits[i] == logits[i];
        scratch[i] = tame(logits[i]);
    }
    if (!any) return 0;
    penalise(sampler, n_vocab, recent, n_recent, scratch);
    uint32_t k = sampler->top_k > 0 && sampler->top_k < n_vocab ? sampler->top_k : n_vocab;
    if (!(sampler->temperature > 0)) k = 1;
    select_best(scratch, n_vocab, k, out);
    uint32_t n = keep_top_p(out, k, sampler->top_p);
    n = keep_min_p(out, n, sampler->min_p);
    weigh(out, n, sampler->temperature > 0 ? sampler->temperature : 1);
    return n;
}

static int32_t draw(ramet_sampler *sampler, const ramet_candidate *c, uint32_t n) {
    if (n == 1) return c[0].token;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += c[i].weight;
    double at = ramet_rng_uniform(sampler->rng) * sum;
    for (uint32_t i = 0; i + 1 < n; i++) {
        at -= c[i].weight;
        if (at < 0) return c[i].token;
    }
    return c[n - 1].token;
}

static float log_probability(const float *logits, uint32_t n_vocab, int32_t token) {
    float best = -FLT_MAX;
    for (uint32_t i = 0; i < n_vocab; i++)
        if (logits[i] > best) best = tame(logits[i]);
    double sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++) sum += (double)ramet_expf(tame(logits[i]) - best);
    return (float)((double)(tame(logits[token]) - best) - ramet_log(sum));
}

static ramet_status check_parameters(const ramet_sampler *s, ramet_error *error) {
    if (!(s->temperature >= 0 && s->temperature <= FLT_MAX))
        return ramet_fail(error, RAMET_E_ARGUMENT, "temperature must be 0 or more, not %g", (double)s->temperature);
    if (!(s->top_p >= 0) || !(s->min_p >= 0 && s->min_p <= 1))
        return ramet_fail(error, RAMET_E_ARGUMENT, "top_p %g and min_p %g must be 0 to 1", (double)s->top_p,
                          (double)s->min_p);
    if (!(s->repeat_penalty > 0 && s->repeat_penalty <= FLT_MAX))
        return ramet_fail(error, RAMET_E_ARGUMENT, "repeat_penalty must be above 0, not %g", (double)s->repeat_penalty);
    return RAMET_OK;
}

size_t ramet_sample_scratch_bytes(uint32_t n_vocab) {
    return n_vocab * (sizeof(ramet_candidate) + sizeof(float));
}

ramet_status ramet_sample(ramet_sampler *sampler, const float *logits, uint32_t n_vocab, const int32_t *recent,
                          size_t n_recent, void *scratch, int32_t *out_token, float *out_logprob, ramet_error *error) {
    *out_token = -1;
    if (n_vocab == 0) return ramet_fail(error, RAMET_E_ARGUMENT, "cannot sample from an empty vocabulary");
    RAMET_TRY(check_parameters(sampler, error));
    ramet_candidate *candidates = scratch;
    float *penalised = (float *)(void *)(candidates + n_vocab);
    uint32_t n = ramet_sample_filter(sampler, logits, n_vocab, recent, n_recent, penalised, candidates);
    if (n == 0) return ramet_fail(error, RAMET_E_FAILED, "no logit is a number; the model file may be damaged");
    *out_token = draw(sampler, candidates, n);
    if (out_logprob) *out_logprob = log_probability(logits, n_vocab, *out_token);
    return RAMET_OK;
}
