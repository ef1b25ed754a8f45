/* internal.h - what the files of this room share: the scratch memory of a run, and the three services of the layer loop (matmul,
 * rope, attention). */
#ifndef RAMET_FORWARD_INTERNAL_H
#define RAMET_FORWARD_INTERNAL_H

#include "forward/forward.h"

/* Query vectors that attention takes together at most, but a whole row at least: each reading of a page serves them all. */
enum { RAMET_QUERY_BLOCK = 192 };

/* What one worker needs for attention; all arrays are its own. */
typedef struct ramet_attend_scratch {
    float *q;                        /* [max_block_rows * group][head_dim], and so for the states below */
    float *k_tile;                   /* [head_dim][64] */
    float *v_tile;                   /* [64][head_dim] */
    float *part_o, *part_m, *part_l; /* state of one part */
    float *all_o, *all_m, *all_l;    /* state of the parts merged so far */
    uint8_t *lo, *hi;
} ramet_attend_scratch;

struct ramet_forward {
    /* immutable */
    const ramet_weights *weights;
    const ramet_kernels *kernels;
    const ramet_kv_layout *layout;
    ramet_pool *pool;
    uint32_t max_tokens, max_parts, group;
    uint32_t max_block_rows;                                             /* of attention */
    uint32_t q_stride, kv_stride, embd_stride, ff_stride, logits_stride; /* rounded up to 16 */
    double *inverse_freq[2]; /* [n_rot / 2]; 0: global layers, 1: sliding ones */
    double rope_magnitude[2];
    uint64_t scratch_bytes;
    void *scratch;

    /* of the run in progress; a row is a token */
    const ramet_span *spans;
    uint32_t n_spans, n_rows;
    uint32_t *row_span, *row_pos; /* [max_tokens] which span a row belongs to, and its position there */
    float *hidden;                /* [max_tokens][n_embd] the residual stream */
    float *normed;                /* [max_tokens][n_embd] input of the next matmul */
    float *q, *k, *v;             /* [max_tokens][q_stride | kv_stride] */
    float *attn;                  /* [max_tokens][n_heads * head_dim] */
    float *gate, *up;             /* [max_tokens][ff_stride] */
    float *ff;                    /* [max_tokens][n_ff]; may be gate */
    float *projected;             /* [max_tokens][embd_stride] */
    float *lora_mid, *lora_out;   /* [max_tokens][..], only with an adapter */
    uint32_t lora_mid_stride, lora_out_stride;
    float *cos[2], *sin[2]; /* [max_tokens][n_rot / 2] */
    void *acts_memory;
    ramet_attend_scratch *workers; /* one per thread */
    float *partials;               /* [2 * threads][max_parts][group][head_dim + 2] */
};

/* y_i = W_i x for n matrices with one common input x [n_rows][n_k], dense; out_i has stride out_stride_i (a multiple of 16 that
 * holds the rows). Adds the adapters. */
typedef struct ramet_product {
    const ramet_matrix *matrix;
    float *out;
    size_t out_stride;
} ramet_product;
/* The input; fill(user, row, worker), unless NULL, makes each row of x first, where the row is then quantised. */
typedef struct ramet_input {
    const float *x;
    ramet_job fill;
    void *user;
} ramet_input;
void ramet_forward_matmul(ramet_forward *f, ramet_input input, uint32_t n_rows, const ramet_product *products,
                          uint32_t n);
/* job(user, row, worker) for each row, a few rows of one thread after the other. */
void ramet_forward_each_row(ramet_forward *f, uint32_t n_rows, ramet_job job, void *user);

/* matmul.c, rope.c, attention.c */
void ramet_rope_init(const ramet_rope *rope, uint32_t n_rot, double *inverse_freq, double *magnitude);
void ramet_rope_fill(ramet_forward *f);
void ramet_forward_attention(ramet_forward *f, uint32_t layer, uint32_t window);
/* dense.c: all layers of the llama, qwen2, qwen3 and gemma3 families. */
void ramet_dense_layers(ramet_forward *f);

static inline uint32_t ramet_round16(uint32_t n) {
    return (n + 15u) & ~15u;
}

#endif
