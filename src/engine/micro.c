/* micro.c - see micro.h. Random bytes are valid blocks of every type once their binary16 scales are set to a sensible size; the
 * table below says where those lie in a file's block. Changing anything here changes every numerics_id. */
#include "engine/micro.h"
#include "base/memory.h"
#include "numerics/panel.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_EMBD = 256,
    N_FF = 256,
    N_HEADS = 4,
    N_KV_HEADS = 2,
    HEAD_DIM = 64,
    N_LAYERS = 2,
    N_MATRICES = 16,
    FLOATS = 8 * 256
};

/* Scales d and m of a block: byte offset, exponent field of the binary16, sign of m. Types without scales have d_off -1. */
static const struct recipe {
    ramet_dtype dtype;
    int d_off, d_exponent, m_off, m_exponent, m_sign;
} recipes[] = {
    {RAMET_Q4_0, 0, 9, -1, 0, 0},   {RAMET_Q4_1, 0, 9, 2, 12, 1}, {RAMET_Q5_0, 0, 8, -1, 0, 0},
    {RAMET_Q5_1, 0, 8, 2, 12, 1},   {RAMET_Q8_0, 0, 5, -1, 0, 0}, {RAMET_Q2_K, 80, 7, 82, 8, 0},
    {RAMET_Q3_K, 108, 5, -1, 0, 0}, {RAMET_Q4_K, 0, 2, 2, 5, 0},  {RAMET_Q5_K, 0, 1, 2, 5, 0},
    {RAMET_Q6_K, 208, 1, -1, 0, 0}, {RAMET_F32, -1, 0, -1, 0, 0}, {RAMET_F16, -1, 0, -1, 0, 0},
    {RAMET_BF16, -1, 0, -1, 0, 0},
};
enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

struct micro {
    ramet_weights weights; /* first: ramet_micro_destroy gets its address */
    ramet_layer layers[N_LAYERS];
    float *floats;
    uint32_t n_floats;
    uint64_t rng;
};

static uint32_t next_random(struct micro *m) {
    m->rng = m->rng * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return (uint32_t)(m->rng >> 32);
}

static void put_half(struct micro *m, uint8_t *at, int sign, int exponent) {
    uint32_t bits = (uint32_t)sign << 15 | (uint32_t)exponent << 10 | (next_random(m) & 0x3ff);
    at[0] = (uint8_t)bits;
    at[1] = (uint8_t)(bits >> 8);
}

static void fill_block(struct micro *m, const struct recipe *r, uint8_t *block, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++) block[i] = (uint8_t)(next_random(m) >> 24);
    if (r->d_off >= 0) put_half(m, block + r->d_off, 0, r->d_exponent);
    if (r->m_off >= 0) put_half(m, block + r->m_off, r->m_sign, r->m_exponent);
    if (r->dtype == RAMET_F16) put_half(m, block, (int)(next_random(m) & 1), 10);
    if (r->dtype == RAMET_BF16) { /* +-2^-5 .. 2^-4 */
        uint32_t bits = (next_random(m) & 1) << 15 | 122u << 7 | (next_random(m) & 0x7f);
        block[0] = (uint8_t)bits;
        block[1] = (uint8_t)(bits >> 8);
    }
    if (r->dtype == RAMET_F32) {
        float value = (float)((int32_t)(next_random(m) >> 16) - 32768) * 0x1p-19f;
        memcpy(block, &value, sizeof value);
    }
}

static bool make_matrix(struct micro *m, int type, uint32_t n_rows, uint32_t n_k, ramet_matrix *out) {
    const struct recipe *r = &recipes[type % N_RECIPES];
    const ramet_dtype_info *info = ramet_dtype_get(r->dtype);
    size_t row_bytes = (size_t)n_k / info->block * info->block_bytes;
    *out = (ramet_matrix){.dtype = r->dtype,
                          .n_rows = n_rows,
                          .n_k = n_k,
                          .n_panels = n_rows / RAMET_LANES,
                          .panel_bytes = ramet_panel_bytes(r->dtype, n_k)};
    uint8_t *rows = ramet_alloc(RAMET_LANES, row_bytes);
    uint8_t *panels = ramet_map((size_t)(out->n_panels * out->panel_bytes));
    out->panels = panels;
    for (uint32_t panel = 0; rows && panels && panel < out->n_panels; panel++) {
        const uint8_t *pointers[RAMET_LANES];
        for (uint32_t lane = 0; lane < RAMET_LANES; lane++) {
            pointers[lane] = rows + lane * row_bytes;
            for (size_t at = 0; at < row_bytes; at += info->block_bytes)
                fill_block(m, r, rows + lane * row_bytes + at, info->block_bytes);
        }
        ramet_panel_pack(r->dtype, pointers, RAMET_LANES, n_k, panels + panel * out->panel_bytes);
    }
    bool ok = rows && panels;
    free(rows);
    return ok;
}

/* n floats around `middle`. */
static const float *make_floats(struct micro *m, uint32_t n, float middle) {
    float *at = m->floats + m->n_floats;
    m->n_floats += n;
    for (uint32_t i = 0; i < n; i++) at[i] = middle + (float)((int32_t)(next_random(m) >> 16) - 32768) * 0x1p-18f;
    return at;
}

static bool make_layer(struct micro *m, int type, bool is_rich, ramet_layer *l) {
    enum { N_Q = N_HEADS * HEAD_DIM, N_KV = N_KV_HEADS * HEAD_DIM };
    bool ok = make_matrix(m, type, N_Q, N_EMBD, &l->q) && make_matrix(m, type + 1, N_KV, N_EMBD, &l->k) &&
              make_matrix(m, type + 2, N_KV, N_EMBD, &l->v) && make_matrix(m, type + 3, N_EMBD, N_Q, &l->o) &&
              make_matrix(m, type + 4, N_FF, N_EMBD, &l->gate) && make_matrix(m, type + 5, N_FF, N_EMBD, &l->up) &&
              make_matrix(m, type + 6, N_EMBD, N_FF, &l->down);
    l->attn_norm = make_floats(m, N_EMBD, 1);
    l->ffn_norm = l->attn_norm;
    if (is_rich) {
        l->q_bias = l->attn_norm; /* sizes fit; what matters is that they are used */
        l->k_bias = l->v_bias = l->attn_norm + 16;
        l->q_norm = make_floats(m, HEAD_DIM, 1);
        l->k_norm = make_floats(m, HEAD_DIM, 1);
        l->attn_post_norm = make_floats(m, N_EMBD, 1);
        l->ffn_post_norm = l->attn_post_norm;
    }
    return ok;
}

static void set_hparams(struct micro *m, bool is_rich) {
    ramet_rope plain = {
        .base = 10000, .factor = 1, .original_ctx = 64, .beta_fast = 32, .beta_slow = 1, .attn_factor = 1};
    m->weights.hparams = (ramet_hparams){.arch = "micro",
                                         .n_layers = N_LAYERS,
                                         .n_embd = N_EMBD,
                                         .n_ff = N_FF,
                                         .n_heads = N_HEADS,
                                         .n_kv_heads = N_KV_HEADS,
                                         .head_dim = HEAD_DIM,
                                         .n_rot = HEAD_DIM,
                                         .n_vocab = RAMET_MICRO_VOCAB,
                                         .n_ctx_train = 128,
                                         .rms_eps = 0x1p-20f,
                                         .attn_scale = 0.125f,
                                         .embd_scale = 1,
                                         .rope_neighbours = !is_rich,
                                         .gelu = is_rich,
                                         .qkv_bias = is_rich,
                                         .qk_norm = is_rich,
                                         .post_norms = is_rich,
                                         .window = is_rich ? 32 : 0,
                                         .window_pattern = is_rich ? 2 : 0,
                                         .rope = plain,
                                         .rope_local = plain};
    if (!is_rich) return;
    m->weights.hparams.embd_scale = 16;
    m->weights.hparams.rope.scaling = RAMET_ROPE_YARN;
    m->weights.hparams.rope.factor = 4;
    m->weights.hparams.rope_local.scaling = RAMET_ROPE_LINEAR;
    m->weights.hparams.rope_local.factor = 2;
}

ramet_weights *ramet_micro_create(int kind) {
    struct micro *m = ramet_alloc(1, sizeof *m);
    if (!m) return NULL;
    ramet_weights *w = &m->weights;
    m->rng = 1 + (uint64_t)kind;
    m->floats = ramet_alloc(FLOATS, sizeof(float));
    bool ok = m->floats != NULL, is_rich = kind == 1;
    set_hparams(m, is_rich);
    w->layers = m->layers;
    int type = kind * 6; /* so that a type serves other shapes in the other model */
    for (int i = 0; ok && i < N_LAYERS; i++) ok = make_layer(m, type + 7 * i, is_rich, &m->layers[i]);
    ok = ok && make_matrix(m, type + 4, RAMET_MICRO_VOCAB, N_EMBD, &w->embd) &&
         make_matrix(m, type + 9, RAMET_MICRO_VOCAB, N_EMBD, &w->output);
    if (ok) w->output_norm = make_floats(m, N_EMBD, 1);
    if (!ok) ramet_micro_destroy(&w);
    return w;
}

void ramet_micro_destroy(ramet_weights **weights) {
    struct micro *m = (struct micro *)(void *)*weights;
    if (!m) return;
    *weights = NULL;
    const ramet_layer *l = m->layers;
    const ramet_matrix *all[N_MATRICES] = {
        &l[0].q, &l[0].k, &l[0].v, &l[0].o,    &l[0].gate, &l[0].up,   &l[0].down,       &l[1].q,
        &l[1].k, &l[1].v, &l[1].o, &l[1].gate, &l[1].up,   &l[1].down, &m->weights.embd, &m->weights.output};
    for (int i = 0; i < N_MATRICES; i++)
        if (all[i]->panels)
            ramet_unmap((void *)(uintptr_t)all[i]->panels, (size_t)(all[i]->n_panels * all[i]->panel_bytes));
    free(m->floats);
    free(m);
}
