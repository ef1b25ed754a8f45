/* vector.c - the definitions of what runs over one vector: norm, rotation, gates, sums. */
#include "kernels/tables.h"
#include "numerics/math.h"

#include <math.h>

static void normalize_rms(const float *x, const float *w, uint32_t n, float eps, float *y) {
    float t[16] = {0};
    for (uint32_t i = 0; i < n; ++i) t[i % 16] = fmaf(x[i], x[i], t[i % 16]);
    float mean = ramet_tree16_add(t) / (float)n;
    float r = 1.0f / ramet_sqrtf(mean + eps);
    for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
}

static void rotate_pairs(float *x, const float *cos, const float *sin, uint32_t n_pairs, bool neighbours) {
    for (uint32_t i = 0; i < n_pairs; ++i) {
        float *first = neighbours ? x + 2 * i : x + i;
        float *second = neighbours ? first + 1 : first + n_pairs;
        float a = *first, b = *second;
        *first = fmaf(a, cos[i], -(b * sin[i]));
        *second = fmaf(a, sin[i], b * cos[i]);
    }
}

static void multiply_silu(const float *gate, const float *up, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; ++i) out[i] = ramet_siluf(gate[i]) * up[i];
}

static void multiply_gelu(const float *gate, const float *up, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; ++i) out[i] = ramet_geluf(gate[i]) * up[i];
}

static void add_vector(float *x, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

static void scale_vector(float *x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

static void add_scaled(float *x, float factor, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = fmaf(factor, y[i], x[i]);
}

void ramet_vector_fill_c(ramet_kernels *table) {
    table->rms_norm = normalize_rms;
    table->rope = rotate_pairs;
    table->silu_mul = multiply_silu;
    table->gelu_mul = multiply_gelu;
    table->add = add_vector;
    table->scale = scale_vector;
    table->axpy = add_scaled;
}
