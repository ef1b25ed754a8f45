/* attend.c - the definition of attention over one segment of at most 64 positions, and of merging such parts. */
#include "base/error.h"
#include "kernels/tables.h"
#include "numerics/math.h"

#include <math.h>
#include <string.h>

enum { SEGMENT = 64 };

/* s[p] = q . k[p] for p in [lo, hi). */
static void score_positions(const ramet_attend_args *args, const float *q, uint32_t lo, uint32_t hi, float *s) {
    for (uint32_t p = lo; p < hi; ++p) {
        float sum = 0.0f;
        for (uint32_t d = 0; d < args->head_dim; ++d) sum = fmaf(q[d], args->k[d * args->k_stride + p], sum);
        s[p] = sum;
    }
}

static void attend_query(const ramet_attend_args *args, uint32_t i) {
    const uint32_t lo = args->lo[i], hi = args->hi[i], head_dim = args->head_dim;
    float s[SEGMENT], max[16], sum[16];
    score_positions(args, args->q + (size_t)i * head_dim, lo, hi, s);

    for (uint32_t j = 0; j < 16; ++j) max[j] = -INFINITY, sum[j] = 0.0f;
    for (uint32_t p = lo; p < hi; ++p) max[p % 16] = ramet_max(max[p % 16], s[p]);
    const float m = ramet_max(args->m[i], ramet_tree16_max(max));
    const float a = ramet_expf(args->m[i] - m);
    for (uint32_t p = lo; p < hi; ++p) {
        s[p] = ramet_expf(s[p] - m);
        sum[p % 16] = sum[p % 16] + s[p];
    }
    args->m[i] = m;
    args->l[i] = fmaf(args->l[i], a, ramet_tree16_add(sum));

    float *o = args->o + (size_t)i * head_dim;
    for (uint32_t d = 0; d < head_dim; ++d) o[d] = o[d] * a;
    for (uint32_t p = lo; p < hi; ++p)
        for (uint32_t d = 0; d < head_dim; ++d) o[d] = fmaf(s[p], args->v[p * args->v_stride + d], o[d]);
}

static void attend_segment(const ramet_attend_args *args) {
    RAMET_ASSERT(args->n <= SEGMENT, "segment of %u positions", args->n);
    for (uint32_t i = 0; i < args->n_q; ++i)
        if (args->lo[i] < args->hi[i]) attend_query(args, i);
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
    for (uint32_t d = 0; d < head_dim; ++d) o[d] = fmaf(o[d], a, o2[d] * b);
    *l = fmaf(*l, a, l2 * b);
    *m = max;
}

static void finish_part(float *o, float l, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; ++d) o[d] = o[d] / l;
}

void ramet_attend_fill_c(ramet_kernels *table) {
    table->attend = attend_segment;
    table->attend_merge = merge_parts;
    table->attend_finish = finish_part;
    table->kv_read_k = ramet_kv_read_k;
    table->kv_read_v = ramet_kv_read_v;
    table->kv_write = ramet_kv_write;
}
