/* vector_lanes.h - norm, rotation, gates, sums and the merging of attention's parts, for whatever width lanes.h has. */
#ifndef RAMET_KERNELS_VECTOR_LANES_H
#define RAMET_KERNELS_VECTOR_LANES_H

#include "numerics/math.h"

#include <math.h>
#include <string.h>

static void normalize_rms(const float *x, const float *w, uint32_t n, float eps, float *y) {
    FVEC t[GROUPS];
    UNROLL
    for (uint32_t j = 0; j < GROUPS; ++j) t[j] = FSET1(0.0f);
    for (uint32_t i = 0; i < n; i += 16) { /* absent lanes add +0 to a sum that is never -0 */
        UNROLL
        for (uint32_t j = 0; j < GROUPS; ++j) {
            const uint32_t at = i + FLANES * j;
            const FVEC v = at < n ? FLOAD_SOME(x + at, n - at) : FSET1(0.0f);
            t[j] = FFMA(v, v, t[j]);
        }
    }
    const float mean = tree16_add(t) / (float)n, r = 1.0f / ramet_sqrtf(mean + eps);
    for (uint32_t i = 0; i < n; i += FLANES) {
        const FVEC v = FMUL(FLOAD_SOME(x + i, n - i), FSET1(r));
        FSTORE_SOME(y + i, n - i, FMUL(v, FLOAD_SOME(w + i, n - i)));
    }
}

ALWAYS_INLINE void rotate_lanes(FVEC *a, FVEC *b, FVEC cos, FVEC sin) {
    const FVEC x = *a, y = *b;
    *a = FFMA(x, cos, FNEG(FMUL(y, sin)));
    *b = FFMA(x, sin, FMUL(y, cos));
}

static void rotate_pairs(float *x, const float *cos, const float *sin, uint32_t n_pairs, bool neighbours) {
    uint32_t i = 0;
    for (; i + FLANES <= n_pairs; i += FLANES) {
        FVEC a, b;
        if (neighbours)
            load_pairs(x + 2 * i, &a, &b);
        else
            a = FLOAD(x + i), b = FLOAD(x + n_pairs + i);
        rotate_lanes(&a, &b, FLOAD(cos + i), FLOAD(sin + i));
        if (neighbours)
            store_pairs(x + 2 * i, a, b);
        else
            FSTORE(x + i, a), FSTORE(x + n_pairs + i, b);
    }
    for (; i < n_pairs; ++i) {
        float *first = neighbours ? x + 2 * i : x + i, *second = neighbours ? first + 1 : first + n_pairs;
        const float a = *first, b = *second;
        *first = fmaf(a, cos[i], -(b * sin[i]));
        *second = fmaf(a, sin[i], b * cos[i]);
    }
}

static void multiply_silu(const float *gate, const float *up, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += FLANES) {
        const FVEC x = FLOAD_SOME(gate + i, n - i), e = exp_lanes(FNEG(x));
        const FVEC silu = FDIV(x, FADD(FSET1(1.0f), e));
        FSTORE_SOME(out + i, n - i, FMUL(silu, FLOAD_SOME(up + i, n - i)));
    }
}

static void multiply_gelu(const float *gate, const float *up, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += FLANES) {
        const FVEC x = FLOAD_SOME(gate + i, n - i);
        const FVEC cubic = FFMA(FMUL(FSET1(0x1.6e4e26p-5f), FMUL(x, x)), x, x);
        const FVEC e = exp_lanes(FMUL(FSET1(-0x1.988454p0f), cubic));
        const FVEC gelu = FDIV(x, FADD(FSET1(1.0f), e));
        FSTORE_SOME(out + i, n - i, FMUL(gelu, FLOAD_SOME(up + i, n - i)));
    }
}

static void add_vector(float *x, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += FLANES)
        FSTORE_SOME(x + i, n - i, FADD(FLOAD_SOME(x + i, n - i), FLOAD_SOME(y + i, n - i)));
}

static void scale_vector(float *x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; i += FLANES) FSTORE_SOME(x + i, n - i, FMUL(FLOAD_SOME(x + i, n - i), FSET1(factor)));
}

static void add_scaled(float *x, float factor, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += FLANES)
        FSTORE_SOME(x + i, n - i, FFMA(FSET1(factor), FLOAD_SOME(y + i, n - i), FLOAD_SOME(x + i, n - i)));
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
    const float max = ramet_max(*m, m2);
    float factor[FLANES] = {*m - max, m2 - max};
    FSTORE(factor, exp_lanes(FLOAD(factor)));
    for (uint32_t d = 0; d < head_dim; d += FLANES) {
        const FVEC later = FMUL(FLOAD_SOME(o2 + d, head_dim - d), FSET1(factor[1]));
        FSTORE_SOME(o + d, head_dim - d, FFMA(FLOAD_SOME(o + d, head_dim - d), FSET1(factor[0]), later));
    }
    *l = fmaf(*l, factor[0], l2 * factor[1]);
    *m = max;
}

static void finish_part(float *o, float l, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d += FLANES)
        FSTORE_SOME(o + d, head_dim - d, FDIV(FLOAD_SOME(o + d, head_dim - d), FSET1(l)));
}

static void fill_vector(ramet_kernels *table) {
    table->rms_norm = normalize_rms;
    table->rope = rotate_pairs;
    table->silu_mul = multiply_silu;
    table->gelu_mul = multiply_gelu;
    table->add = add_vector;
    table->scale = scale_vector;
    table->axpy = add_scaled;
    table->attend_merge = merge_parts;
    table->attend_finish = finish_part;
}

#endif
