/* rope.c - rotary position embedding: frequencies per model, cos and sin per position.
 *
 * Everything up to the last rounding is binary64 with our own functions. Pair i of n_rot / 2 turns by
 *     pos * base^(-2i / n_rot), divided by divisors[i] (llama3) or by `factor` (linear), or blended between both (YaRN).
 * Sources: RoFormer (Su et al., 2021), YaRN (Peng et al., 2023). */
#include "forward/internal.h"
#include "numerics/math.h"

static double clamp01(double x) {
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
static double floor_of(double x) {
    double truncated = (double)(int64_t)x;
    return truncated > x ? truncated - 1 : truncated;
}

/* The pair that turns `turns` times within the original context. */
static double yarn_pair(const ramet_rope *rope, uint32_t n_rot, double turns) {
    const double two_pi = 6.283185307179586476925286766559;
    return (double)n_rot * ramet_log((double)rope->original_ctx / (turns * two_pi)) / (2 * ramet_log(rope->base));
}

static double yarn_blend(const ramet_rope *rope, uint32_t n_rot, uint32_t pair, double frequency) {
    double low = floor_of(yarn_pair(rope, n_rot, rope->beta_fast));
    double high = -floor_of(-yarn_pair(rope, n_rot, rope->beta_slow));
    low = low < 0 ? 0 : low;
    high = high > (double)n_rot - 1 ? (double)n_rot - 1 : high;
    double width = high - low < 0.001 ? 0.001 : high - low;
    double ramp = clamp01(((double)pair - low) / width); /* 0: as trained, 1: stretched */
    return frequency / rope->factor * ramp + frequency * (1 - ramp);
}

void ramet_rope_init(const ramet_rope *rope, uint32_t n_rot, double *inverse_freq, double *magnitude) {
    *magnitude = 1;
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double frequency = ramet_pow(rope->base, -2.0 * (double)i / (double)n_rot);
        if (rope->divisors) frequency /= (double)rope->divisors[i];
        if (rope->scaling == RAMET_ROPE_LINEAR) frequency /= rope->factor;
        if (rope->scaling == RAMET_ROPE_YARN) frequency = yarn_blend(rope, n_rot, i, frequency);
        inverse_freq[i] = frequency;
    }
    if (rope->scaling == RAMET_ROPE_YARN) *magnitude = rope->attn_factor * (1 + 0.1 * ramet_log(rope->factor));
}

static void fill_row(void *user, uint32_t row, uint32_t worker) {
    (void)worker;
    ramet_forward *f = user;
    uint32_t pairs = f->weights->hparams.n_rot / 2;
    double pos = (double)f->row_pos[row];
    for (int kind = 0; kind < 2; kind++) {
        if (!f->inverse_freq[kind]) continue;
        float *cosines = f->cos[kind] + (size_t)row * pairs, *sines = f->sin[kind] + (size_t)row * pairs;
        for (uint32_t i = 0; i < pairs; i++) {
            double sine, cosine;
            ramet_sincos(pos * f->inverse_freq[kind][i], &sine, &cosine);
            sines[i] = (float)(sine * f->rope_magnitude[kind]);
            cosines[i] = (float)(cosine * f->rope_magnitude[kind]);
        }
    }
}

void ramet_rope_fill(ramet_forward *f) {
    ramet_pool_run(f->pool, f->n_rows, fill_row, f);
}
