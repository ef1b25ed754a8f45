/* tables.h - inside the kernels room: who fills which entries of the table, and the fixed tree of all reductions. */
#ifndef RAMET_KERNELS_TABLES_H
#define RAMET_KERNELS_TABLES_H

#include "kernels/kernels.h"

/* The types of weights. */
#define RAMET_FLOAT_TYPES(X) X(F32) X(F16) X(BF16)
#define RAMET_BLOCK_TYPES(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K)

/* The definitions: every entry, whatever RAMET_TEETH says. */
void ramet_kernels_fill_c(ramet_kernels *table);
/* Its parts. */
void ramet_quantize_fill_c(ramet_kernels *table);
void ramet_matmul_fill_c(ramet_kernels *table);
void ramet_vector_fill_c(ramet_kernels *table);
void ramet_attend_fill_c(ramet_kernels *table);
/* The C matmuls once more; they add in descending order of k when there is more than one column. */
void ramet_matmul_fill_backward(ramet_kernels *table);

/* Each overwrites what it does faster: lanes is all but the products and their activations. */
#if defined(__x86_64__)
void ramet_matmul_fill_avx2(ramet_kernels *table);
void ramet_lanes_fill_avx2(ramet_kernels *table);
void ramet_quantize_fill_avx2(ramet_kernels *table);
void ramet_matmul_fill_avx512(ramet_kernels *table);
void ramet_lanes_fill_avx512(ramet_kernels *table);
#elif defined(__aarch64__)
void ramet_matmul_fill_neon(ramet_kernels *table);
void ramet_lanes_fill_neon(ramet_kernels *table);
void ramet_quantize_fill_neon(ramet_kernels *table);
#endif

/* a > b ? a : b, not fmaxf: when one is NaN, b wins. */
static inline float ramet_max(float a, float b) {
    return a > b ? a : b;
}

static inline float ramet_min(float a, float b) {
    return a < b ? a : b;
}

/* A block of activations whose range is smaller counts as constant. */
#define RAMET_FLAT_RANGE 0x1p-100f

static inline float ramet_tree16_add(float t[16]) {
    for (uint32_t half = 8; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
    return t[0];
}

static inline float ramet_tree16_max(float t[16]) {
    for (uint32_t half = 8; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; ++i) t[i] = ramet_max(t[i], t[i + half]);
    return t[0];
}

static inline float ramet_tree16_min(float t[16]) {
    for (uint32_t half = 8; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; ++i) t[i] = ramet_min(t[i], t[i + half]);
    return t[0];
}

#endif
