/* weigh_avx2.h - scores of a segment become weights, 8 positions at a time: weigh_positions of attend_tiles.h. */
#ifndef RAMET_KERNELS_X86_WEIGH_AVX2_H
#define RAMET_KERNELS_X86_WEIGH_AVX2_H

#include "kernels/tables.h"
#include "kernels/x86/lanes_avx2.h"

#include <math.h>

/* Lanes of 8 positions from `first` on that lie in [lo, hi). */
static inline __m256 visible_lanes(uint32_t first, uint32_t lo, uint32_t hi) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i p = _mm256_add_epi32(lane, _mm256_set1_epi32((int32_t)first));
    const __m256i above = _mm256_cmpgt_epi32(p, _mm256_set1_epi32((int32_t)lo - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(above, _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)hi), p)));
}

static float weigh_positions(float *s, uint32_t lo, uint32_t hi, float *m, float *l) {
    const uint32_t first = lo / 8, end = (hi + 7) / 8; /* vectors with a visible lane */
    __m256 max[2], sum[2];
    max[0] = max[1] = _mm256_set1_ps(-INFINITY);
    sum[0] = sum[1] = _mm256_setzero_ps();
    for (uint32_t j = first; j < end; ++j) {
        const __m256 larger = _mm256_max_ps(max[j % 2], _mm256_loadu_ps(s + 8 * j));
        max[j % 2] = _mm256_blendv_ps(max[j % 2], larger, visible_lanes(8 * j, lo, hi));
    }
    const float new_m = ramet_max(*m, tree16_max(max[0], max[1])), a = exp_one(*m - new_m);
    for (uint32_t j = first; j < end; ++j) { /* absent lanes add +0 to a sum that is never -0 */
        const __m256 w = exp_lanes(_mm256_sub_ps(_mm256_loadu_ps(s + 8 * j), _mm256_set1_ps(new_m)));
        const __m256 visible = _mm256_and_ps(w, visible_lanes(8 * j, lo, hi));
        _mm256_storeu_ps(s + 8 * j, visible);
        sum[j % 2] = _mm256_add_ps(sum[j % 2], visible);
    }
    *l = fmaf(*l, a, tree16_add(sum[0], sum[1]));
    *m = new_m;
    return a;
}

#endif
