/* attend_avx2.c - attention over one segment. Scores have positions in the lanes, values have dimensions, so no sum
 * crosses lanes but the two trees. Neighbouring queries that see the same positions (the heads of a group) go in twos
 * and share each load of K and V. */
#if defined(__x86_64__)
#include "base/error.h"
#include "kernels/tables.h"
#include "kernels/x86/lanes_avx2.h"
#include "numerics/math.h"

#include <math.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { SEGMENT = 64, VECTORS = SEGMENT / 8 };

/* s[i][first ..] = scores of `vectors` times 8 positions for `queries` queries from q on. `n`: positions that exist. */
ALWAYS_INLINE void score_tile(const ramet_attend_args *args, const float *q, uint32_t queries, uint32_t first,
                              uint32_t vectors, float s[][SEGMENT]) {
    const float *k = args->k + first;
    const uint32_t n = args->n - first;
    __m256 acc[2][VECTORS];
    for (uint32_t i = 0; i < queries; ++i)
        for (uint32_t j = 0; j < vectors; ++j) acc[i][j] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < args->head_dim; ++d, k += args->k_stride)
        for (uint32_t j = 0; j < vectors; ++j) {
            __m256 row = vectors == 1 ? load_some(k, n) : _mm256_loadu_ps(k + 8 * j);
            for (uint32_t i = 0; i < queries; ++i)
                acc[i][j] = _mm256_fmadd_ps(_mm256_set1_ps(q[i * args->head_dim + d]), row, acc[i][j]);
        }
    for (uint32_t i = 0; i < queries; ++i)
        for (uint32_t j = 0; j < vectors; ++j) _mm256_storeu_ps(s[i] + first + 8 * j, acc[i][j]);
}

ALWAYS_INLINE void score_positions(const ramet_attend_args *args, const float *q, uint32_t queries,
                                   float s[][SEGMENT]) {
    uint32_t p = 0;
    if (queries == 1)
        for (; p + 64 <= args->n; p += 64) score_tile(args, q, 1, p, 8, s);
    for (; p + 32 <= args->n; p += 32) score_tile(args, q, queries, p, 4, s);
    for (; p < args->n; p += 8) score_tile(args, q, queries, p, 1, s);
}

/* Lanes of vector j that lie in [lo, hi). */
ALWAYS_INLINE __m256 visible_lanes(uint32_t j, uint32_t lo, uint32_t hi) {
    __m256i p = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int32_t)(8 * j)));
    __m256i above = _mm256_cmpgt_epi32(p, _mm256_set1_epi32((int32_t)lo - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(above, _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)hi), p)));
}

/* Scores become weights exp(s - m'), 0 where not visible; m and l move on. Returns a, the factor of what came before.
 */
static float weigh_positions(float *s, uint32_t lo, uint32_t hi, float *m, float *l) {
    const uint32_t first = lo / 8, end = (hi + 7) / 8; /* vectors with a visible lane */
    __m256 max[2], sum[2];
    max[0] = max[1] = _mm256_set1_ps(-INFINITY);
    sum[0] = sum[1] = _mm256_setzero_ps();
    for (uint32_t j = first; j < end; ++j) {
        __m256 larger = _mm256_max_ps(max[j % 2], _mm256_loadu_ps(s + 8 * j));
        max[j % 2] = _mm256_blendv_ps(max[j % 2], larger, visible_lanes(j, lo, hi));
    }
    const float new_m = ramet_max(*m, tree16_max(max[0], max[1]));
    const float a = ramet_expf(*m - new_m);
    for (uint32_t j = first; j < end; ++j) { /* absent lanes add +0 to a sum that is never -0 */
        __m256 w = exp_lanes(_mm256_sub_ps(_mm256_loadu_ps(s + 8 * j), _mm256_set1_ps(new_m)));
        w = _mm256_and_ps(w, visible_lanes(j, lo, hi));
        _mm256_storeu_ps(s + 8 * j, w);
        sum[j % 2] = _mm256_add_ps(sum[j % 2], w);
    }
    *l = fmaf(*l, a, tree16_add(sum[0], sum[1]));
    *m = new_m;
    return a;
}

/* o[i][d ..] = o * a[i] + sum of w * v over the visible positions, for `vectors` times 8 dimensions; `left` exist. */
ALWAYS_INLINE void value_tile(const ramet_attend_args *args, float *o, const float *a, uint32_t queries, uint32_t d,
                              uint32_t vectors, uint32_t lo, uint32_t hi, float s[][SEGMENT]) {
    const uint32_t left = args->head_dim - d;
    __m256 acc[2][VECTORS];
    for (uint32_t i = 0; i < queries; ++i)
        for (uint32_t j = 0; j < vectors; ++j) {
            float *at = o + i * args->head_dim + d + 8 * j;
            __m256 old = vectors == 1 ? load_some(at, left) : _mm256_loadu_ps(at);
            acc[i][j] = _mm256_mul_ps(old, _mm256_set1_ps(a[i]));
        }
    for (uint32_t p = lo; p < hi; ++p) {
        const float *v = args->v + p * args->v_stride + d;
        for (uint32_t j = 0; j < vectors; ++j) {
            __m256 row = vectors == 1 ? load_some(v, left) : _mm256_loadu_ps(v + 8 * j);
            for (uint32_t i = 0; i < queries; ++i) acc[i][j] = _mm256_fmadd_ps(_mm256_set1_ps(s[i][p]), row, acc[i][j]);
        }
    }
    for (uint32_t i = 0; i < queries; ++i)
        for (uint32_t j = 0; j < vectors; ++j) {
            float *at = o + i * args->head_dim + d + 8 * j;
            if (vectors == 1)
                store_some(at, left, acc[i][j]);
            else
                _mm256_storeu_ps(at, acc[i][j]);
        }
}

/* `queries` (1 or 2) queries from i on, which see the same positions. */
ALWAYS_INLINE void attend_queries(const ramet_attend_args *args, uint32_t i, uint32_t queries) {
    const uint32_t lo = args->lo[i], hi = args->hi[i], head_dim = args->head_dim;
    float s[2][SEGMENT], a[2];
    score_positions(args, args->q + (size_t)i * head_dim, queries, s);
    for (uint32_t j = 0; j < queries; ++j) a[j] = weigh_positions(s[j], lo, hi, &args->m[i + j], &args->l[i + j]);
    float *o = args->o + (size_t)i * head_dim;
    uint32_t d = 0;
    if (queries == 1)
        for (; d + 64 <= head_dim; d += 64) value_tile(args, o, a, 1, d, 8, lo, hi, s);
    for (; d + 32 <= head_dim; d += 32) value_tile(args, o, a, queries, d, 4, lo, hi, s);
    for (; d < head_dim; d += 8) value_tile(args, o, a, queries, d, 1, lo, hi, s);
}

static void attend_segment(const ramet_attend_args *args) {
    RAMET_ASSERT(args->n <= SEGMENT, "segment of %u positions", args->n);
    const uint8_t *lo = args->lo, *hi = args->hi;
    for (uint32_t i = 0; i < args->n_q;) {
        const bool two = i + 1 < args->n_q && lo[i] == lo[i + 1] && hi[i] == hi[i + 1];
        if (lo[i] < hi[i]) {
            if (two)
                attend_queries(args, i, 2);
            else
                attend_queries(args, i, 1);
        }
        i += two ? 2 : 1;
    }
}

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
    const float max = ramet_max(*m, m2), a = ramet_expf(*m - max), b = ramet_expf(m2 - max);
    for (uint32_t d = 0; d < head_dim; d += 8) {
        __m256 later = _mm256_mul_ps(load_some(o2 + d, head_dim - d), _mm256_set1_ps(b));
        __m256 sum = _mm256_fmadd_ps(load_some(o + d, head_dim - d), _mm256_set1_ps(a), later);
        store_some(o + d, head_dim - d, sum);
    }
    *l = fmaf(*l, a, l2 * b);
    *m = max;
}

static void finish_part(float *o, float l, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d += 8)
        store_some(o + d, head_dim - d, _mm256_div_ps(load_some(o + d, head_dim - d), _mm256_set1_ps(l)));
}

void ramet_attend_fill_avx2(ramet_kernels *table) {
    table->attend = attend_segment;
    table->attend_merge = merge_parts;
    table->attend_finish = finish_part;
}
#endif
