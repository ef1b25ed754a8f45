/* cmd_perplexity.c - `ramet perplexity`: mean negative log-likelihood over windows that do not overlap. Sums are in
 * double precision and use libm: this measures the model, it is not part of it. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct score {
    const int32_t *window; /* the row after window[i] is scored against window[i + 1] */
    uint32_t n_window;
    uint64_t n;
    double sum, sum_squares;
} score;

static double negative_log_likelihood(const float *logits, uint32_t n_vocab, int32_t token) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        if ((double)logits[i] > max) max = (double)logits[i];
    for (uint32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - max);
    return log(sum) - ((double)logits[token] - max);
}

static void score_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab) {
    score *sc = user;
    for (uint32_t r = 0; r < n_rows && first_pos + r + 1 < sc->n_window; r++) {
        double nll = negative_log_likelihood(rows + (size_t)r * n_vocab, n_vocab, sc->window[first_pos + r + 1]);
        sc->sum += nll;
        sc->sum_squares += nll * nll;
        sc->n++;
    }
}

static ramet_status score_window(ramet_engine *engine, score *sc, ramet_error *error) {
    ramet_context *context;
    RAMET_TRY(ramet_context_create(engine, &context, error));
    ramet_status status = ramet_context_extend_rows(context, sc->window, sc->n_window - 1, 0, score_rows, sc, error);
    ramet_drop(&context);
    return status;
}

/* Windows of `size` tokens: BOS, when there is one, takes the first place in each. */
static ramet_status score_text(ramet_session *s, const ramet_options *o, const int32_t *tokens, size_t n, score *sc,
                               uint64_t *out_windows, ramet_error *error) {
    size_t lead = s->info.adds_bos && s->info.bos >= 0 ? 1 : 0, step = o->window - lead;
    int32_t *window = ramet_alloc(o->window, sizeof *window);
    if (!window) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a window of %u tokens", o->window);
    ramet_status status = RAMET_OK;
    *out_windows = 0;
    for (size_t at = 0; at < n && status == RAMET_OK; at += step) {
        size_t take = n - at < step ? n - at : step;
        if (lead) window[0] = s->info.bos;
        memcpy(window + lead, tokens + at, take * sizeof *window);
        if (lead + take < 2) break; /* nothing comes before this one */
        sc->window = window;
        sc->n_window = (uint32_t)(lead + take);
        status = score_window(s->engine, sc, error);
        ++*out_windows;
        ramet_progress(o, "tokens", at + take, n);
    }
    ramet_progress(o, "tokens", n, n);
    free(window);
    return status;
}

static void print_result(const ramet_options *o, const ramet_session *s, const score *sc, uint64_t n_windows,
                         uint64_t nanoseconds) {
    double n = (double)sc->n, mean = sc->sum / n;
    double variance = sc->n > 1 ? fmax(0, (sc->sum_squares - n * mean * mean) / (n - 1)) : NAN;
    double standard_error = sqrt(variance / n);
    if (!o->json) {
        printf("mean negative log-likelihood %.6f +- %.6f, perplexity %.4f +- %.4f\n", mean, standard_error, exp(mean),
               exp(mean) * standard_error);
        ramet_say(o, "%llu tokens scored in %llu windows of %u, %s", (unsigned long long)sc->n,
                  (unsigned long long)n_windows, o->window, ramet_label_duration(nanoseconds).text);
        return;
    }
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_string(&j, "model", s->info.name);
    ramet_json_string(&j, "kv", ramet_kv_name(s->engine_info.kv));
    ramet_json_string(&j, "numerics_id", s->engine_info.numerics_id);
    ramet_json_u64(&j, "window", o->window);
    ramet_json_u64(&j, "windows", n_windows);
    ramet_json_u64(&j, "tokens", sc->n);
    ramet_json_double(&j, "mean_negative_log_likelihood", mean);
    ramet_json_double(&j, "standard_error", standard_error);
    ramet_json_double(&j, "perplexity", exp(mean));
    ramet_json_u64(&j, "nanoseconds", nanoseconds);
    ramet_json_object_end(&j);
}

static ramet_status run(const ramet_options *o, ramet_session *s, const char *text, size_t bytes, ramet_error *error) {
    int32_t *tokens;
    size_t n;
    score sc = {0};
    uint64_t n_windows = 0, start = ramet_now_nanoseconds();
    RAMET_TRY(ramet_session_start(s, o, o->window, error));
    RAMET_TRY(ramet_tokenize(s->model, text, bytes, 0, &tokens, &n, error));
    ramet_status status = score_text(s, o, tokens, n, &sc, &n_windows, error);
    free(tokens);
    if (status != RAMET_OK) return status;
    if (sc.n == 0) return ramet_fail(error, RAMET_E_ARGUMENT, "%s: no token to score in so short a text", o->file);
    print_result(o, s, &sc, n_windows, ramet_now_nanoseconds() - start);
    return RAMET_OK;
}

ramet_status ramet_cmd_perplexity(const ramet_options *o, ramet_error *error) {
    char *text;
    size_t bytes;
    ramet_session s;
    if (!o->file) return ramet_fail(error, RAMET_E_ARGUMENT, "which text? Give -f FILE");
    RAMET_TRY(ramet_input_text(o, &text, &bytes, error));
    ramet_status status = ramet_session_open(o, &s, error);
    if (status == RAMET_OK) status = run(o, &s, text, bytes, error);
    ramet_session_close(&s);
    free(text);
    return status;
}
