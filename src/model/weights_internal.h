/* weights_internal.h - between the files that load weights: the plan (which tensor goes where) and the memory behind
 * it. Private to src/model. */
#ifndef RAMET_MODEL_WEIGHTS_INTERNAL_H
#define RAMET_MODEL_WEIGHTS_INTERNAL_H

#include "model/gguf_internal.h"
#include "model/model.h"

struct ramet_weights_memory {
    void *region; /* all panels and floats of the model */
    size_t region_bytes;
    void *lora_region; /* the same of the adapter */
    size_t lora_bytes;
    ramet_matrix *lora_matrices;
};

/* One tensor that the model needs: either `matrix` or `vector` says where it goes. */
typedef struct weight_item {
    const ramet_gguf_tensor *tensor;
    ramet_matrix *matrix;
    const float **vector;
    uint32_t n_rows, n_k; /* a vector has one row */
    uint64_t off, bytes;  /* inside the region; 64-byte aligned */
} weight_item;

typedef struct weight_plan {
    weight_item *items;
    size_t n, capacity;
    uint64_t bytes; /* of the region */
    uint64_t n_params;
    char types[128];
} weight_plan;

/* Finds and checks every tensor that `w->hparams` asks for. w->layers are there. Nothing of `w` changes but `*out`,
 * which the caller frees (items) also on failure. */
ramet_status ramet_weights_plan(const ramet_gguf *gguf, ramet_weights *w, weight_plan *out, ramet_error *error);

/* The matrix that tensor `name` became ("blk.3.attn_q.weight"), or NULL. */
ramet_matrix *ramet_weights_matrix(ramet_weights *w, ramet_gguf_string name);

/* Reserves `n_rows` x `n_k` of `dtype` at *end, and moves *end on; false when it overflows. */
bool ramet_matrix_reserve(ramet_dtype dtype, uint32_t n_rows, uint32_t n_k, uint64_t *end, uint64_t *out_off,
                          uint64_t *out_bytes);
ramet_matrix ramet_matrix_at(ramet_dtype dtype, uint32_t n_rows, uint32_t n_k, const uint8_t *panels);

/* Loads the adapter of `options` and changes `w` (matrices, bytes, identity), or changes nothing. */
ramet_status ramet_lora_attach(ramet_weights *w, const ramet_model_options *options, ramet_error *error);

#endif
