/* quantize_avx2.c - the int8 activations of c/quantize.c, 8 lanes wide, for AVX-512 too: what counts here are reductions, and
 * those of narrow vectors are shorter. */
#if defined(__x86_64__)
#include "kernels/x86/lanes_avx2.h"

#include <float.h>
#include <math.h>

/* lo and hi of 32 elements; false when one is not finite or their distance is not. */
static inline bool find_range(const __m256 v[4], float *out_lo, float *out_hi) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), largest = _mm256_set1_ps(FLT_MAX);
    __m256 finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int i = 0; i < 4; ++i)
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(_mm256_and_ps(v[i], magnitude), largest, _CMP_LE_OQ));
    *out_lo = tree16_min((__m256[]){_mm256_min_ps(v[0], v[2]), _mm256_min_ps(v[1], v[3])});
    *out_hi = tree16_max((__m256[]){_mm256_max_ps(v[0], v[2]), _mm256_max_ps(v[1], v[3])});
    return _mm256_movemask_ps(finite) == 0xff && *out_hi - *out_lo <= FLT_MAX;
}

/* 8 elements as int32; the conversion rounds half to even. */
static inline __m256i quantize_lanes(__m256 x, __m256 z, __m256 id) {
    __m256 t = _mm256_mul_ps(_mm256_sub_ps(x, z), id);
    t = _mm256_max_ps(_mm256_min_ps(t, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(t);
}

static inline __m256i quantize_32(const __m256 v[4], __m256 z, __m256 id) {
    __m256i a = _mm256_packs_epi32(quantize_lanes(v[0], z, id), quantize_lanes(v[1], z, id));
    __m256i b = _mm256_packs_epi32(quantize_lanes(v[2], z, id), quantize_lanes(v[3], z, id));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The sums of q over each run of 16. */
static inline void sum_runs(__m256i q, int32_t out[2]) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i v = _mm_hadd_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    v = _mm_hadd_epi32(v, v);
    out[0] = _mm_cvtsi128_si32(v), out[1] = _mm_extract_epi32(v, 1);
}

static inline void quantize_block(ramet_acts *acts, size_t at, const float *x) {
    __m256 v[4];
    float lo, hi;
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
    const bool finite = find_range(v, &lo, &hi);
    const float range = hi - lo;
    const bool flat = range < RAMET_FLAT_RANGE;
    const float d = !finite ? NAN : flat ? 0.0f : range / 254.0f;
    const float z = finite ? fmaf(0.5f, lo, 0.5f * hi) : NAN;
    __m256i q = _mm256_setzero_si256();
    if (finite && !flat) q = quantize_32(v, _mm256_set1_ps(z), _mm256_set1_ps(254.0f / range));
    _mm256_storeu_si256((__m256i *)(void *)(acts->q + 32 * at), q);
    int32_t *sums = acts->sum16 + 2 * at;
    sum_runs(q, sums);
    acts->d[at] = d;
    acts->z[at] = z;
    acts->s16[2 * at] = fmaf(d, (float)sums[0], 16.0f * z);
    acts->s16[2 * at + 1] = fmaf(d, (float)sums[1], 16.0f * z);
    acts->sum32[at] = sums[0] + sums[1];
    acts->s32[at] = fmaf(d, (float)acts->sum32[at], 32.0f * z);
}

static void quantize_column(ramet_acts *acts, uint32_t col, const float *x) {
    const size_t n_blocks = acts->n_k / 32;
    for (size_t b = 0; b < n_blocks; ++b) quantize_block(acts, col * n_blocks + b, x + 32 * b);
}

void ramet_quantize_fill_avx2(ramet_kernels *table) {
    table->quantize = quantize_column;
}
#endif
