/* tiny_model.h - complete small models of any family for tests, in float32, with one wish each: a tensor left out,
 * renamed, of another shape. Header-only, on gguf_builder.h. The weights are small numbers from a generator, all
 * different. */
#ifndef RAMET_TESTS_TINY_MODEL_H
#define RAMET_TESTS_TINY_MODEL_H

#include "support/gguf_builder.h"

typedef struct tiny_model {
    const char *arch;
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab;
    int bias, qk_norm, post_norms, untied;
    const char *omit, *omit_too; /* names of tensors */
    const char *rename;          /* this tensor becomes "renamed" */
    const char *wider;           /* this tensor gets one row more */
    const char *omit_key;
} tiny_model;

static inline tiny_model tm_default(const char *arch) {
    tiny_model m = {.arch = arch,
                    .n_layers = 2,
                    .n_embd = 32,
                    .n_ff = 48,
                    .n_heads = 4,
                    .n_kv_heads = 2,
                    .head_dim = 8,
                    .n_vocab = 40};
    m.bias = strcmp(arch, "qwen2") == 0;
    m.post_norms = strcmp(arch, "gemma3") == 0;
    m.qk_norm = m.post_norms || strcmp(arch, "qwen3") == 0;
    return m;
}

static inline void tm_tensor(const tiny_model *m, gguf_builder *g, const char *name, uint64_t k, uint64_t rows) {
    if ((m->omit && strcmp(m->omit, name) == 0) || (m->omit_too && strcmp(m->omit_too, name) == 0)) return;
    if (m->wider && strcmp(m->wider, name) == 0) rows++;
    size_t n = (size_t)(k * rows);
    float *data = malloc(n * sizeof *data);
    if (!data) abort();
    uint32_t state = 1 + (uint32_t)g->n_tensors;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
    }
    gb_tensor(g, m->rename && strcmp(m->rename, name) == 0 ? "renamed" : name, k, rows, 0, data, n * sizeof *data);
    free(data);
}

static inline void tm_u32(const tiny_model *m, gguf_builder *g, const char *suffix, uint32_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    if (!m->omit_key || strcmp(m->omit_key, suffix) != 0) gb_u32(g, key, value);
}

static inline void tm_keys(const tiny_model *m, gguf_builder *g) {
    char key[96];
    gb_str(g, "general.architecture", m->arch);
    tm_u32(m, g, "block_count", m->n_layers);
    tm_u32(m, g, "context_length", 128);
    tm_u32(m, g, "embedding_length", m->n_embd);
    tm_u32(m, g, "feed_forward_length", m->n_ff);
    tm_u32(m, g, "attention.head_count", m->n_heads);
    tm_u32(m, g, "attention.head_count_kv", m->n_kv_heads);
    tm_u32(m, g, "attention.key_length", m->head_dim);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->arch);
    if (!m->omit_key || strcmp(m->omit_key, "attention.layer_norm_rms_epsilon") != 0) gb_f32(g, key, 1e-5f);
}

static inline void tm_tensors(const tiny_model *m, gguf_builder *g) {
    uint64_t e = m->n_embd, f = m->n_ff, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim,
             h = m->head_dim;
    const struct {
        const char *suffix;
        uint64_t k, rows;
        int there;
    } layer[] = {
        {"attn_norm.weight", e, 1, 1},
        {"attn_q.weight", e, q, 1},
        {"attn_k.weight", e, kv, 1},
        {"attn_v.weight", e, kv, 1},
        {"attn_output.weight", q, e, 1},
        {"attn_q.bias", q, 1, m->bias},
        {"attn_k.bias", kv, 1, m->bias},
        {"attn_v.bias", kv, 1, m->bias},
        {"attn_q_norm.weight", h, 1, m->qk_norm},
        {"attn_k_norm.weight", h, 1, m->qk_norm},
        {"post_attention_norm.weight", e, 1, m->post_norms},
        {"ffn_norm.weight", e, 1, 1},
        {"ffn_gate.weight", e, f, 1},
        {"ffn_up.weight", e, f, 1},
        {"ffn_down.weight", f, e, 1},
        {"post_ffw_norm.weight", e, 1, m->post_norms},
    };
    tm_tensor(m, g, "token_embd.weight", e, m->n_vocab);
    for (uint32_t i = 0; i < m->n_layers; i++)
        for (size_t t = 0; t < sizeof layer / sizeof layer[0]; t++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s", i, layer[t].suffix);
            if (layer[t].there) tm_tensor(m, g, name, layer[t].k, layer[t].rows);
        }
    tm_tensor(m, g, "output_norm.weight", e, 1);
    if (m->untied) tm_tensor(m, g, "output.weight", e, m->n_vocab);
}

static inline gguf_builder tm_build(const tiny_model *m) {
    gguf_builder g = gb_begin();
    tm_keys(m, &g);
    tm_tensors(m, &g);
    return g;
}

#endif
