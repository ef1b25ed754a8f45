/* acts.c - where the arrays of int8 activations lie in one piece of memory. */
#include "kernels/kernels.h"

enum { ALIGNMENT = 64 };

ramet_act_kind ramet_act_kind_of(ramet_dtype weights) {
    const ramet_dtype_info *info = ramet_dtype_get(weights);
    return info && info->block > 1 ? RAMET_ACT_Q8 : RAMET_ACT_F32;
}

/* The next array of n elements; *at moves past it. With memory = NULL only *at counts. */
static void *reserve(uint8_t *memory, size_t *at, size_t n, size_t size) {
    void *array = memory ? memory + *at : NULL;
    *at += (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return array;
}

static size_t lay_out(ramet_acts *acts, uint8_t *memory) {
    const size_t n = (size_t)acts->n_k * acts->n_cols, n_blocks = (n + 31) / 32;
    size_t at = 0;
    acts->q = reserve(memory, &at, n, sizeof(int8_t));
    acts->d = reserve(memory, &at, n_blocks, sizeof(float));
    acts->z = reserve(memory, &at, n_blocks, sizeof(float));
    acts->s32 = reserve(memory, &at, n_blocks, sizeof(float));
    acts->s16 = reserve(memory, &at, 2 * n_blocks, sizeof(float));
    acts->sum32 = reserve(memory, &at, n_blocks, sizeof(int32_t));
    acts->sum16 = reserve(memory, &at, 2 * n_blocks, sizeof(int32_t));
    return at;
}

size_t ramet_acts_bytes(uint32_t n_k, uint32_t n_cols) {
    ramet_acts acts = {.n_k = n_k, .n_cols = n_cols};
    return lay_out(&acts, NULL);
}

void ramet_acts_place(ramet_acts *acts, uint32_t n_k, uint32_t n_cols, const float *x, void *memory) {
    *acts = (ramet_acts){.n_k = n_k, .n_cols = n_cols, .f32 = x};
    lay_out(acts, memory);
}
