/* model.h - what a model file says, in our words: hyper-parameters and weights, ready for the kernels.
 * Owns the GGUF parts (gguf.h reads them), the repacked weights, adapters and identity. Refuses to know contexts and
 * tokens. */
#ifndef RAMET_MODEL_MODEL_H
#define RAMET_MODEL_MODEL_H

#include "base/error.h"
#include "base/pool.h"
#include "model/gguf.h"
#include "numerics/dtype.h"

typedef enum ramet_rope_scaling { RAMET_ROPE_NONE, RAMET_ROPE_LINEAR, RAMET_ROPE_YARN } ramet_rope_scaling;

/* How one kind of layer rotates. llama3 scaling is a table of divisors (rope_freqs.weight) on top of `none`. */
typedef struct ramet_rope {
    double base;
    ramet_rope_scaling scaling;
    double factor;               /* linear, yarn */
    uint32_t original_ctx;       /* yarn */
    double beta_fast, beta_slow; /* yarn: 32, 1 */
    double attn_factor;          /* yarn: multiplies the magnitude, 1 when absent */
    const float *divisors;       /* [n_rot / 2], or NULL */
} ramet_rope;

typedef struct ramet_hparams {
    char arch[32];
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_rot, n_vocab, n_ctx_train;
    float rms_eps;
    float attn_scale;     /* multiplies q */
    float embd_scale;     /* multiplies embeddings; 1 when none */
    bool rope_neighbours; /* (2i, 2i+1), else (i, i + n_rot/2) */
    bool gelu;            /* else silu */
    bool qkv_bias, qk_norm, post_norms;
    uint32_t window;             /* sliding layers: key visible if q - k < window; 0: none */
    uint32_t window_pattern;     /* layer l is global when (l + 1) % pattern == 0; 0: all global */
    ramet_rope rope, rope_local; /* rope_local: sliding layers */
} ramet_hparams;

/* A weight matrix, repacked. out[n_rows] = W[n_rows][n_k] x[n_k]. */
typedef struct ramet_matrix {
    ramet_dtype dtype;
    uint32_t n_rows, n_k, n_panels;
    uint64_t panel_bytes;
    const uint8_t *panels; /* n_panels * panel_bytes, 64-byte aligned */
    /* low-rank adapter: y += lora_scale * B (A x); NULL when none */
    const struct ramet_matrix *lora_a, *lora_b;
    float lora_scale;
} ramet_matrix;

typedef struct ramet_layer {
    ramet_matrix q, k, v, o, gate, up, down;
    const float *q_bias, *k_bias, *v_bias;       /* or NULL */
    const float *attn_norm, *ffn_norm;           /* [n_embd] */
    const float *q_norm, *k_norm;                /* [head_dim], or NULL */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd], or NULL */
} ramet_layer;

typedef struct ramet_weights {
    ramet_hparams hparams;
    ramet_layer *layers;
    ramet_matrix embd; /* also the output matrix when tied */
    ramet_matrix output;
    const float *output_norm;
    uint64_t bytes; /* memory of all repacked and float tensors */
    uint64_t n_params;
    uint64_t repack_nanoseconds, digest_nanoseconds; /* both from the same start */
    char types[128];
    uint8_t sha256[32]; /* identity: file(s), and the adapter's bytes and scale */
    bool digest_cached; /* the file(s)' part of it was remembered, not computed */
    /* private: memory that the pointers above lie in */
    struct ramet_weights_memory *memory;
} ramet_weights;

/* Hyper-parameters of the file, checked: E_UNSUPPORTED for an architecture that ramet does not run, E_CORRUPT naming
 * the key. */
ramet_status ramet_hparams_read(const ramet_gguf *gguf, ramet_hparams *out, ramet_error *error);

/* Reads, checks and repacks all weights; missing tensors are listed by name. The file's pages are given back as they
 * are read. `options` (NULL: no adapter, no cache of digests) and `pool` may be NULL; the threads are the pool's. *out has
 * a fixed address and is freed by ramet_weights_destroy. */
ramet_status ramet_weights_load(const ramet_gguf *gguf, const ramet_model_options *options, ramet_pool *pool,
                                ramet_weights **out, ramet_error *error);
void ramet_weights_destroy(ramet_weights **weights);
/* Row `token` of the embedding as float32, not scaled. */
void ramet_embedding_row(const ramet_weights *weights, int32_t token, float *out);

#endif
