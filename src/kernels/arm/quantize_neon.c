/* quantize_neon.c - the int8 activations of c/quantize.c, 4 lanes wide. */
#if defined(__aarch64__)
#include "kernels/arm/lanes_neon.h"

#include <float.h>
#include <math.h>

enum { BLOCK = 32, BLOCK_VECTORS = BLOCK / FLANES };

/* Smallest and largest of a block; false when one is not finite or their distance is not. */
ALWAYS_INLINE bool find_range(const FVEC v[BLOCK_VECTORS], float *out_lo, float *out_hi) {
    FVEC lo[GROUPS], hi[GROUPS];
    FMASK finite = FLESS_EQUAL(FABS(v[0]), FSET1(FLT_MAX));
    UNROLL
    for (uint32_t j = 1; j < BLOCK_VECTORS; ++j) finite = finite & FLESS_EQUAL(FABS(v[j]), FSET1(FLT_MAX));
    UNROLL
    for (uint32_t j = 0; j < GROUPS; ++j) lo[j] = FMIN(v[j], v[j + GROUPS]), hi[j] = FMAX(v[j], v[j + GROUPS]);
    *out_lo = tree16_min(lo);
    *out_hi = tree16_max(hi);
    return FALL(finite) && *out_hi - *out_lo <= FLT_MAX;
}

/* Codes of a block as whole floats within +-127: the sum of a run is exact, in whatever order. */
ALWAYS_INLINE void quantize_lanes(FVEC v[BLOCK_VECTORS], float z, float id) {
    const FVEC magic = FSET1(0x1.8p23f); /* rounds half to even */
    UNROLL
    for (uint32_t j = 0; j < BLOCK_VECTORS; ++j) {
        const FVEC t = FMUL(FSUB(v[j], FSET1(z)), FSET1(id));
        const FVEC within = FMAX(FMIN(t, FSET1(127.0f)), FSET1(-127.0f));
        v[j] = FSUB(FADD(within, magic), magic);
    }
}

ALWAYS_INLINE void quantize_block(ramet_acts *acts, size_t at, const float *x) {
    FVEC v[BLOCK_VECTORS];
    float lo, hi;
    UNROLL
    for (uint32_t j = 0; j < BLOCK_VECTORS; ++j) v[j] = FLOAD(x + FLANES * j);
    const bool finite = find_range(v, &lo, &hi);
    const float range = hi - lo;
    const bool flat = range < RAMET_FLAT_RANGE;
    const float d = !finite ? NAN : flat ? 0.0f : range / 254.0f;
    const float z = finite ? fmaf(0.5f, lo, 0.5f * hi) : NAN;
    if (finite && !flat) {
        quantize_lanes(v, z, 254.0f / range);
    } else {
        UNROLL
        for (uint32_t j = 0; j < BLOCK_VECTORS; ++j) v[j] = FSET1(0.0f);
    }
    UNROLL
    for (uint32_t j = 0; j < BLOCK_VECTORS; ++j) store_bytes((uint8_t *)acts->q + BLOCK * at + FLANES * j, v[j]);
    const float sum[2] = {tree16_add(v), tree16_add(v + GROUPS)}, both = sum[0] + sum[1];
    acts->d[at] = d;
    acts->z[at] = z;
    for (uint32_t i = 0; i < 2; ++i) {
        acts->sum16[2 * at + i] = (int32_t)sum[i];
        acts->s16[2 * at + i] = fmaf(d, sum[i], 16.0f * z);
    }
    acts->sum32[at] = (int32_t)both;
    acts->s32[at] = fmaf(d, both, 32.0f * z);
}

static void quantize_column(ramet_acts *acts, uint32_t col, const float *x) {
    const size_t n_blocks = acts->n_k / BLOCK;
    for (size_t b = 0; b < n_blocks; ++b) quantize_block(acts, col * n_blocks + b, x + b * BLOCK);
}

void ramet_quantize_fill_neon(ramet_kernels *table) {
    table->quantize = quantize_column;
}
#endif
