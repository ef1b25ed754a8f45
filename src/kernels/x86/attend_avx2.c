/* attend_avx2.c - attention 8 lanes wide, two queries at a time, and the merging of parts. */
#if defined(__x86_64__)
#include "kernels/x86/weigh_avx2.h"

#define FVEC        __m256
#define FLANES      8
#define FLOAD       _mm256_loadu_ps
#define FLOAD_SOME  load_some
#define FSTORE      _mm256_storeu_ps
#define FSTORE_SOME store_some
#define FSET1       _mm256_set1_ps
#define FMUL        _mm256_mul_ps
#define FFMA        _mm256_fmadd_ps
#define MAX_QUERIES 2

/* Eight sums at once hide the latency of an fma and leave registers for two queries' broadcasts. */
ALWAYS_INLINE uint32_t widest_tile(uint32_t queries) {
    return queries == 1 ? 8 : 4;
}

#include "kernels/attend_tiles.h"

#include <string.h>

static bool is_empty(float m, float l) {
    return l == 0.0f && m == -INFINITY;
}

static void merge_parts(float *m, float *l, float *o, float m2, float l2, const float *o2, uint32_t head_dim) {
    if (is_empty(m2, l2)) return;
    if (is_empty(*m, *l)) {
        *m = m2, *l = l2;
        memcpy(o, o2, head_dim * sizeof *o);
        return;
    }
    const float max = ramet_max(*m, m2), a = exp_one(*m - max), b = exp_one(m2 - max);
    for (uint32_t d = 0; d < head_dim; d += 8) {
        const __m256 later = _mm256_mul_ps(load_some(o2 + d, head_dim - d), _mm256_set1_ps(b));
        const __m256 sum = _mm256_fmadd_ps(load_some(o + d, head_dim - d), _mm256_set1_ps(a), later);
        store_some(o + d, head_dim - d, sum);
    }
    *l = fmaf(*l, a, l2 * b);
    *m = max;
}

void ramet_attend_fill_avx2(ramet_kernels *table) {
    table->attend = attend_segment;
    table->attend_merge = merge_parts;
}
#endif
