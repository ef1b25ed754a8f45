/* weights_plan.c - which tensors a model needs, by name and shape, and where each goes.
 * Owns the table of names; refuses to read a single weight. Everything is checked here, before anything is allocated
 * for it. */
#include "model/weights_internal.h"

#include "base/memory.h"
#include "numerics/panel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum extent { ONE, EMBD, FF, Q_DIM, KV_DIM, HEAD_DIM } extent;
typedef enum condition { ALWAYS, IF_BIAS, IF_QK_NORM, IF_POST_NORMS } condition;

/* Tensors of one layer: "blk.N." in front. rows = ONE is a vector. */
typedef struct slot {
    const char *suffix;
    size_t off;
    extent rows, k;
    condition when;
} slot;

static const slot slots[] = {
    {"attn_norm.weight", offsetof(ramet_layer, attn_norm), ONE, EMBD, ALWAYS},
    {"attn_q.weight", offsetof(ramet_layer, q), Q_DIM, EMBD, ALWAYS},
    {"attn_k.weight", offsetof(ramet_layer, k), KV_DIM, EMBD, ALWAYS},
    {"attn_v.weight", offsetof(ramet_layer, v), KV_DIM, EMBD, ALWAYS},
    {"attn_output.weight", offsetof(ramet_layer, o), EMBD, Q_DIM, ALWAYS},
    {"attn_q.bias", offsetof(ramet_layer, q_bias), ONE, Q_DIM, IF_BIAS},
    {"attn_k.bias", offsetof(ramet_layer, k_bias), ONE, KV_DIM, IF_BIAS},
    {"attn_v.bias", offsetof(ramet_layer, v_bias), ONE, KV_DIM, IF_BIAS},
    {"attn_q_norm.weight", offsetof(ramet_layer, q_norm), ONE, HEAD_DIM, IF_QK_NORM},
    {"attn_k_norm.weight", offsetof(ramet_layer, k_norm), ONE, HEAD_DIM, IF_QK_NORM},
    {"post_attention_norm.weight", offsetof(ramet_layer, attn_post_norm), ONE, EMBD, IF_POST_NORMS},
    {"ffn_norm.weight", offsetof(ramet_layer, ffn_norm), ONE, EMBD, ALWAYS},
    {"ffn_gate.weight", offsetof(ramet_layer, gate), FF, EMBD, ALWAYS},
    {"ffn_up.weight", offsetof(ramet_layer, up), FF, EMBD, ALWAYS},
    {"ffn_down.weight", offsetof(ramet_layer, down), EMBD, FF, ALWAYS},
    {"post_ffw_norm.weight", offsetof(ramet_layer, ffn_post_norm), ONE, EMBD, IF_POST_NORMS},
};
enum { N_SLOTS = sizeof slots / sizeof slots[0] };

/* Known tensors that change the result and that the forward pass does not use; other extra tensors are ignored. */
static const char *const refused[] = {"attn_output.bias", "ffn_gate.bias",  "ffn_up.bias",
                                      "ffn_down.bias",    "attn_norm.bias", "ffn_norm.bias"};

static uint32_t extent_of(const ramet_hparams *h, extent e) {
    switch (e) {
    case EMBD: return h->n_embd;
    case FF: return h->n_ff;
    case Q_DIM: return h->n_heads * h->head_dim;
    case KV_DIM: return h->n_kv_heads * h->head_dim;
    case HEAD_DIM: return h->head_dim;
    case ONE: break;
    }
    return 1;
}

static bool applies(const ramet_hparams *h, condition when) {
    switch (when) {
    case IF_BIAS: return h->qkv_bias;
    case IF_QK_NORM: return h->qk_norm;
    case IF_POST_NORMS: return h->post_norms;
    case ALWAYS: break;
    }
    return true;
}

typedef struct planner {
    const ramet_gguf *gguf;
    const ramet_hparams *hparams;
    weight_plan *plan;
    ramet_error *error;
    size_t n_missing, n_listed;
    char missing[360]; /* as many names as a message can hold */
} planner;

static void note_missing(planner *p, const char *name) {
    size_t used = strlen(p->missing);
    p->n_missing++;
    if (used + strlen(name) + 3 >= sizeof p->missing) return;
    snprintf(p->missing + used, sizeof p->missing - used, "%s%s", used ? ", " : "", name);
    p->n_listed++;
}

static ramet_status check_tensor(const planner *p, const ramet_gguf_tensor *t, uint32_t n_rows, uint32_t n_k) {
    const char *path = ramet_gguf_path(p->gguf);
    gguf_shown name = ramet_gguf_show(t->name);
    if (!ramet_dtype_get(t->dtype)) {
        gguf_tensor_type type = {.name = "?"};
        ramet_gguf_tensor_type(t->dtype, &type);
        return ramet_fail(p->error, RAMET_E_UNSUPPORTED,
                          "%s: tensor '%s' has type %s, which this version of ramet does not run", path, name.text,
                          type.name);
    }
    if (t->dims[0] != n_k || t->dims[1] != n_rows || t->dims[2] != 1 || t->dims[3] != 1)
        return ramet_fail(p->error, RAMET_E_CORRUPT,
                          "%s: tensor '%s' has shape %llu x %llu x %llu x %llu; the keys need %u x %u", path, name.text,
                          (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                          (unsigned long long)t->dims[2], (unsigned long long)t->dims[3], n_k, n_rows);
    return RAMET_OK;
}

bool ramet_matrix_reserve(ramet_dtype dtype, uint32_t n_rows, uint32_t n_k, uint64_t *end, uint64_t *out_off,
                          uint64_t *out_bytes) {
    uint64_t n_panels = ((uint64_t)n_rows + RAMET_LANES - 1) / RAMET_LANES;
    *out_off = (*end + 63) & ~(uint64_t)63;
    if (!ramet_mul_u64(ramet_panel_bytes(dtype, n_k), n_panels, out_bytes)) return false;
    return *end <= UINT64_MAX - 63 && ramet_add_u64(*out_off, *out_bytes, end) && *end <= SIZE_MAX;
}

/* Adds tensor `name`; an absent one is noted. Give `matrix` or `vector`. */
static ramet_status add(planner *p, const char *name, uint32_t n_rows, uint32_t n_k, ramet_matrix *matrix,
                        const float **vector) {
    const ramet_gguf_tensor *t = ramet_gguf_find(p->gguf, name);
    if (!t) {
        note_missing(p, name);
        return RAMET_OK;
    }
    RAMET_TRY(check_tensor(p, t, n_rows, n_k));
    weight_item item = {.tensor = t, .matrix = matrix, .vector = vector, .n_rows = n_rows, .n_k = n_k};
    bool fits;
    if (matrix) {
        fits = ramet_matrix_reserve((ramet_dtype)t->dtype, n_rows, n_k, &p->plan->bytes, &item.off, &item.bytes);
    } else {
        item.off = (p->plan->bytes + 63) & ~(uint64_t)63;
        item.bytes = (uint64_t)n_k * sizeof(float);
        fits = ramet_add_u64(item.off, item.bytes, &p->plan->bytes);
    }
    if (!fits) return ramet_fail(p->error, RAMET_E_NO_MEMORY, "%s does not fit in memory", ramet_gguf_path(p->gguf));
    void *grown = p->plan->items;
    bool ok = ramet_grow(&grown, &p->plan->capacity, p->plan->n + 1, sizeof item);
    p->plan->items = grown;
    if (!ok) return ramet_fail(p->error, RAMET_E_NO_MEMORY, "no memory to load %s", ramet_gguf_path(p->gguf));
    p->plan->items[p->plan->n++] = item;
    p->plan->n_params += (uint64_t)n_rows * n_k;
    return RAMET_OK;
}

static ramet_status add_layer(planner *p, uint32_t number, ramet_layer *layer) {
    char name[64];
    for (size_t i = 0; i < N_SLOTS; i++) {
        const slot *s = &slots[i];
        if (!applies(p->hparams, s->when)) continue;
        snprintf(name, sizeof name, "blk.%u.%s", number, s->suffix);
        void *target = (char *)layer + s->off;
        RAMET_TRY(add(p, name, extent_of(p->hparams, s->rows), extent_of(p->hparams, s->k),
                      s->rows == ONE ? NULL : target, s->rows == ONE ? target : NULL));
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", number, refused[i]);
        if (ramet_gguf_find(p->gguf, name))
            return ramet_fail(p->error, RAMET_E_UNSUPPORTED, "%s: tensor '%s' is not supported",
                              ramet_gguf_path(p->gguf), name);
    }
    return RAMET_OK;
}

/* "Q4_1 210, Q8_0 1, F32 61": quantised types first, then floats, each by GGUF's number. */
static void write_types(weight_plan *plan) {
    size_t counts[RAMET_DTYPE_COUNT] = {0}, used = 0;
    for (size_t i = 0; i < plan->n; i++) counts[plan->items[i].tensor->dtype]++;
    for (int floats = 0; floats < 2; floats++)
        for (uint32_t t = 0; t < RAMET_DTYPE_COUNT; t++) {
            if (counts[t] == 0 || (ramet_dtype_get(t)->block == 1) != (floats == 1) || used >= sizeof plan->types)
                continue;
            used += (size_t)snprintf(plan->types + used, sizeof plan->types - used, "%s%s %zu", used ? ", " : "",
                                     ramet_dtype_get(t)->name, counts[t]);
        }
}

ramet_status ramet_weights_plan(const ramet_gguf *gguf, ramet_weights *w, weight_plan *out, ramet_error *error) {
    *out = (weight_plan){0};
    ramet_hparams *h = &w->hparams;
    planner p = {.gguf = gguf, .hparams = h, .plan = out, .error = error};
    RAMET_TRY(add(&p, "token_embd.weight", h->n_vocab, h->n_embd, &w->embd, NULL));
    for (uint32_t i = 0; i < h->n_layers; i++) RAMET_TRY(add_layer(&p, i, &w->layers[i]));
    RAMET_TRY(add(&p, "output_norm.weight", 1, h->n_embd, NULL, &w->output_norm));
    if (ramet_gguf_find(gguf, "output.weight"))
        RAMET_TRY(add(&p, "output.weight", h->n_vocab, h->n_embd, &w->output, NULL));
    if (ramet_gguf_find(gguf, "rope_freqs.weight"))
        RAMET_TRY(add(&p, "rope_freqs.weight", 1, h->n_rot / 2, NULL, &h->rope.divisors));
    if (p.n_missing > 0)
        return ramet_fail(error, RAMET_E_CORRUPT, "%s lacks %zu tensor%s: %s%s", ramet_gguf_path(gguf), p.n_missing,
                          p.n_missing == 1 ? "" : "s", p.missing, p.n_listed < p.n_missing ? ", and more" : "");
    write_types(out);
    return RAMET_OK;
}

/* Layer number and suffix of "blk.12.attn_q.weight". */
static bool split_layer_name(ramet_gguf_string name, uint32_t *out_layer, ramet_gguf_string *out_suffix) {
    if (name.bytes < 6 || memcmp(name.data, "blk.", 4) != 0) return false;
    uint32_t layer = 0;
    uint64_t i = 4;
    for (; i < name.bytes && i < 10 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        layer = layer * 10 + (uint32_t)(name.data[i] - '0');
    bool has_digits = i > 4 && (name.data[4] != '0' || i == 5);
    if (!has_digits || i >= name.bytes || name.data[i] != '.') return false;
    *out_layer = layer;
    *out_suffix = (ramet_gguf_string){.data = name.data + i + 1, .bytes = name.bytes - i - 1};
    return true;
}

ramet_matrix *ramet_weights_matrix(ramet_weights *w, ramet_gguf_string name) {
    if (ramet_gguf_string_is(name, "token_embd.weight")) return &w->embd;
    if (ramet_gguf_string_is(name, "output.weight")) return w->output.panels == w->embd.panels ? NULL : &w->output;
    uint32_t layer;
    ramet_gguf_string suffix;
    if (!split_layer_name(name, &layer, &suffix) || layer >= w->hparams.n_layers) return NULL;
    for (size_t i = 0; i < N_SLOTS; i++)
        if (slots[i].rows != ONE && ramet_gguf_string_is(suffix, slots[i].suffix))
            return (ramet_matrix *)(void *)((char *)&w->layers[layer] + slots[i].off);
    return NULL;
}
