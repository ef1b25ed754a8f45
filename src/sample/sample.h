/* sample.h - choosing the next token: pure functions of (logits, parameters, rng state). The public types and
 * functions are those of ramet.h (ramet_sampler_*, ramet_sample); this header adds the parts that tests look at.
 * Owns the order of the filters: repetition penalty, top-k, top-p, min-p, temperature, draw. Refuses to know contexts. */
#ifndef RAMET_SAMPLE_SAMPLE_H
#define RAMET_SAMPLE_SAMPLE_H

#include "base/error.h"

typedef struct ramet_candidate {
    int32_t token;
    float logit;
    double weight; /* exp(logit - best), not normalised */
} ramet_candidate;

/* The candidates that the filters leave, best first, ties by lower id, weights after temperature; at least one. `out` has room for
 * n_vocab. `scratch` holds n_vocab floats: the logits after the penalty. Returns how many; 0 when no logit is a number. */
uint32_t ramet_sample_filter(const ramet_sampler *sampler, const float *logits, uint32_t n_vocab, const int32_t *recent,
                             size_t n_recent, float *scratch, ramet_candidate *out);
/* Uniform in [0, 1), 53 bits. */
double ramet_rng_uniform(uint64_t rng[2]);

#endif
