/* quantize.c - the definition of the int8 activations of kernels.h, one column at a time. */
#include "kernels/tables.h"

#include <float.h>
#include <math.h>

enum { BLOCK = 32, RUN = 16 };

/* Round to nearest, ties to even, of |t| <= 127: adding 1.5 * 2^23 leaves no fraction bits. */
static int8_t round_to_int8(float t) {
    const float magic = 12582912.0f;
    return (int8_t)((t + magic) - magic);
}

static int8_t quantize_one(float x, float z, float id) {
    float t = (x - z) * id;
    return round_to_int8(t > 127.0f ? 127.0f : t < -127.0f ? -127.0f : t);
}

/* Smallest and largest element; false when one is not finite or their distance is not. */
static bool find_range(const float *x, float *out_lo, float *out_hi) {
    float lo[RUN], hi[RUN];
    bool finite = true;
    for (uint32_t i = 0; i < BLOCK; ++i) finite = finite && fabsf(x[i]) <= FLT_MAX;
    for (uint32_t i = 0; i < RUN; ++i) {
        lo[i] = ramet_min(x[i], x[i + RUN]);
        hi[i] = ramet_max(x[i], x[i + RUN]);
    }
    *out_lo = ramet_tree16_min(lo);
    *out_hi = ramet_tree16_max(hi);
    return finite && *out_hi - *out_lo <= FLT_MAX;
}

static void quantize_block(ramet_acts *acts, size_t at, const float *x) {
    float lo, hi;
    bool finite = find_range(x, &lo, &hi);
    float range = hi - lo;
    bool flat = range < RAMET_FLAT_RANGE;
    float id = finite && !flat ? 254.0f / range : 0.0f;
    float d = !finite ? NAN : flat ? 0.0f : range / 254.0f;
    float z = finite ? fmaf(0.5f, lo, 0.5f * hi) : NAN;
    int32_t sums[2] = {0, 0};
    for (uint32_t i = 0; i < BLOCK; ++i) {
        int8_t q = finite ? quantize_one(x[i], z, id) : 0;
        acts->q[at * BLOCK + i] = q;
        sums[i / RUN] += q;
    }
    acts->d[at] = d;
    acts->z[at] = z;
    for (uint32_t i = 0; i < 2; ++i) {
        acts->sum16[2 * at + i] = sums[i];
        acts->s16[2 * at + i] = fmaf(d, (float)sums[i], 16.0f * z);
    }
    acts->sum32[at] = sums[0] + sums[1];
    acts->s32[at] = fmaf(d, (float)(sums[0] + sums[1]), 32.0f * z);
}

static void quantize_column(ramet_acts *acts, uint32_t col, const float *x) {
    const size_t n_blocks = acts->n_k / BLOCK;
    for (size_t b = 0; b < n_blocks; ++b) quantize_block(acts, col * n_blocks + b, x + b * BLOCK);
}

void ramet_quantize_fill_c(ramet_kernels *table) {
    table->quantize = quantize_column;
}
