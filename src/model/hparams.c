/* hparams.c - what the keys of a model file mean, for each architecture that ramet runs, with every value checked.
 * Owns the defaults that published files leave out; refuses to know weights beyond the embedding's shape.
 * A new family is a row in `families`, and a small function if its files say or omit something of their own. */
#include "model/gguf_internal.h"
#include "model/model.h"
#include "numerics/math.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_LAYERS = 1024,
    MOST_HEADS = 4096,
    MOST_HEAD_DIM = 512,
    MOST_EMBD = 1 << 18,
    MOST_FF = 1 << 22,
    GEMMA3_PATTERN = 6,
    GEMMA3_27B_LAYERS = 62,
};

typedef struct reader {
    const ramet_gguf *gguf;
    const char *arch;
    ramet_error *error;
} reader;

typedef struct family {
    const char *arch;
    bool rope_neighbours, gelu, qkv_bias, qk_norm, post_norms;
    ramet_status (*refine)(const reader *r, ramet_hparams *h);
} family;

enum { KEY_BYTES = 96 };
static const char *write_key(const reader *r, const char *suffix, char out[KEY_BYTES]) {
    snprintf(out, KEY_BYTES, "%s.%s", r->arch, suffix);
    return out;
}

typedef enum need { OPTIONAL, REQUIRED } need;

/* An absent optional key leaves *out; an absent required one is a fault of the file. */
static ramet_status settle(ramet_status status, need n, ramet_error *error) {
    if (status != RAMET_E_NOT_FOUND) return status;
    if (n == OPTIONAL) return RAMET_OK;
    if (error) error->code = RAMET_E_CORRUPT;
    return RAMET_E_CORRUPT;
}

static ramet_status read_u32(const reader *r, const char *suffix, need n, uint32_t least, uint32_t most,
                             uint32_t *out) {
    char key[KEY_BYTES];
    uint32_t value = *out;
    if (ramet_gguf_is_array(r->gguf, write_key(r, suffix, key)))
        return ramet_fail(r->error, RAMET_E_UNSUPPORTED, "%s: key '%s' differs by layer: not supported yet",
                          ramet_gguf_path(r->gguf), key);
    ramet_status status = ramet_gguf_u32(r->gguf, key, &value, r->error);
    if (status != RAMET_OK) return settle(status, n, r->error);
    if (value < least || value > most)
        return ramet_fail(r->error, RAMET_E_CORRUPT, "%s: key '%s' is %u, outside %u..%u", ramet_gguf_path(r->gguf),
                          key, value, least, most);
    *out = value;
    return RAMET_OK;
}

/* `least` is excluded. */
static ramet_status read_f64(const reader *r, const char *suffix, need n, double least, double most, double *out) {
    char key[KEY_BYTES];
    float value = 0;
    ramet_status status = ramet_gguf_f32(r->gguf, write_key(r, suffix, key), &value, r->error);
    if (status != RAMET_OK) return settle(status, n, r->error);
    if (!((double)value > least && (double)value <= most))
        return ramet_fail(r->error, RAMET_E_CORRUPT, "%s: key '%s' is %g, outside %g..%g", ramet_gguf_path(r->gguf),
                          key, (double)value, least, most);
    *out = (double)value;
    return RAMET_OK;
}

static ramet_status fail_model(const reader *r, ramet_status code, const char *what) {
    return ramet_fail(r->error, code, "%s: %s", ramet_gguf_path(r->gguf), what);
}

/* ---- rope ---- */

static ramet_status read_scaling_type(const reader *r, bool has_factor, ramet_rope_scaling *out) {
    char key[KEY_BYTES];
    ramet_gguf_string type;
    *out = has_factor ? RAMET_ROPE_LINEAR : RAMET_ROPE_NONE; /* what other engines assume when the type is absent */
    ramet_status status = ramet_gguf_str(r->gguf, write_key(r, "rope.scaling.type", key), &type, r->error);
    if (status != RAMET_OK) return settle(status, OPTIONAL, r->error);
    if (ramet_gguf_string_is(type, "none"))
        *out = RAMET_ROPE_NONE;
    else if (ramet_gguf_string_is(type, "yarn"))
        *out = RAMET_ROPE_YARN;
    else if (!ramet_gguf_string_is(type, "linear"))
        return ramet_fail(r->error, RAMET_E_UNSUPPORTED, "%s: rope scaling '%s' is not supported",
                          ramet_gguf_path(r->gguf), ramet_gguf_show(type).text);
    return RAMET_OK;
}

static ramet_status read_yarn(const reader *r, uint32_t n_ctx_train, ramet_rope *rope) {
    double log_multiplier = 0, ext_factor = 1, yarn_attn_factor = 1;
    rope->original_ctx = n_ctx_train;
    RAMET_TRY(read_u32(r, "rope.scaling.original_context_length", OPTIONAL, 1, INT32_MAX, &rope->original_ctx));
    RAMET_TRY(read_f64(r, "rope.scaling.attn_factor", OPTIONAL, 0, 1e6, &rope->attn_factor));
    RAMET_TRY(read_f64(r, "rope.scaling.yarn_attn_factor", OPTIONAL, 0, 1e6, &yarn_attn_factor));
    rope->attn_factor *= yarn_attn_factor;
    RAMET_TRY(read_f64(r, "rope.scaling.yarn_beta_fast", OPTIONAL, 0, 1e6, &rope->beta_fast));
    RAMET_TRY(read_f64(r, "rope.scaling.yarn_beta_slow", OPTIONAL, 0, 1e6, &rope->beta_slow));
    RAMET_TRY(read_f64(r, "rope.scaling.yarn_ext_factor", OPTIONAL, -1e6, 1e6, &ext_factor));
    RAMET_TRY(read_f64(r, "rope.scaling.yarn_log_multiplier", OPTIONAL, -1e6, 1e6, &log_multiplier));
    if (log_multiplier != 0 || ext_factor != 1)
        return fail_model(r, RAMET_E_UNSUPPORTED, "this variant of YaRN rope scaling is not supported");
    return RAMET_OK;
}

static ramet_status read_rope(const reader *r, uint32_t n_ctx_train, ramet_rope *rope) {
    *rope = (ramet_rope){.base = 10000, .factor = 1, .beta_fast = 32, .beta_slow = 1, .attn_factor = 1};
    double factor = 0;
    RAMET_TRY(read_f64(r, "rope.freq_base", OPTIONAL, 1, 1e12, &rope->base));
    RAMET_TRY(read_f64(r, "rope.scale_linear", OPTIONAL, -1, 1e6, &factor)); /* the older name */
    RAMET_TRY(read_f64(r, "rope.scaling.factor", OPTIONAL, -1, 1e6, &factor));
    if (factor < 0) return fail_model(r, RAMET_E_CORRUPT, "the factor of the rope scaling is negative");
    RAMET_TRY(read_scaling_type(r, factor > 0, &rope->scaling));
    if (factor > 0) rope->factor = factor; /* 0 means 1 */
    if (rope->scaling == RAMET_ROPE_YARN) return read_yarn(r, n_ctx_train, rope);
    if (rope->factor == 1) rope->scaling = RAMET_ROPE_NONE;
    if (rope->scaling == RAMET_ROPE_NONE) rope->factor = 1;
    return RAMET_OK;
}

/* ---- families ---- */

/* Published files say the window and mostly the global base, and omit the pattern, the local base and the scale of the
 * 27B size. Linear scaling is for the global layers only, so rope_local has none. */
static ramet_status refine_gemma3(const reader *r, ramet_hparams *h) {
    RAMET_TRY(read_u32(r, "attention.sliding_window", OPTIONAL, 0, INT32_MAX, &h->window));
    if (h->window > 0) {
        h->window_pattern = GEMMA3_PATTERN;
        RAMET_TRY(read_u32(r, "attention.sliding_window_pattern", OPTIONAL, 1, MOST_LAYERS, &h->window_pattern));
    }
    char key[KEY_BYTES];
    if (!ramet_gguf_has(r->gguf, write_key(r, "rope.freq_base", key))) h->rope.base = 1000000;
    h->rope_local.base = 10000;
    RAMET_TRY(read_f64(r, "rope.freq_base_swa", OPTIONAL, 1, 1e12, &h->rope_local.base));
    h->embd_scale = ramet_sqrtf((float)h->n_embd);
    if (h->n_layers == GEMMA3_27B_LAYERS) h->attn_scale = 1 / ramet_sqrtf((float)h->n_embd / (float)h->n_heads);
    return RAMET_OK;
}

static const family families[] = {
    {.arch = "llama", .rope_neighbours = true},
    {.arch = "qwen2", .qkv_bias = true},
    {.arch = "qwen3", .qk_norm = true},
    {.arch = "gemma3", .gelu = true, .qk_norm = true, .post_norms = true, .refine = refine_gemma3},
};

static ramet_status find_family(const ramet_gguf *gguf, const family **out, ramet_error *error) {
    ramet_gguf_string arch, type;
    if (ramet_gguf_str(gguf, "general.type", &type, NULL) == RAMET_OK && ramet_gguf_string_is(type, "adapter"))
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "%s is an adapter, not a model; load it on top of its model",
                          ramet_gguf_path(gguf));
    RAMET_TRY(settle(ramet_gguf_str(gguf, "general.architecture", &arch, error), REQUIRED, error));
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (ramet_gguf_string_is(arch, families[i].arch)) {
            *out = &families[i];
            return RAMET_OK;
        }
    return ramet_fail(error, RAMET_E_UNSUPPORTED, "%s: architecture '%s' is not supported by this version of ramet",
                      ramet_gguf_path(gguf), ramet_gguf_show(arch).text);
}

/* ---- what all share ---- */

/* Keys that change the result and that the forward pass does not know: silence would be wrong answers. */
static ramet_status refuse_unknown_meaning(const reader *r) {
    static const char *const scales[] = {"attn_logit_softcapping", "final_logit_softcapping", "logit_scale",
                                         "residual_scale",         "embedding_scale",         "attention.scale"};
    uint32_t experts = 0;
    RAMET_TRY(read_u32(r, "expert_count", OPTIONAL, 0, UINT32_MAX, &experts));
    if (experts > 0)
        return ramet_fail(r->error, RAMET_E_UNSUPPORTED,
                          "%s: mixture of experts (%s with %u experts) is not supported yet", ramet_gguf_path(r->gguf),
                          r->arch, experts);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        char key[KEY_BYTES];
        float value = 0;
        ramet_status status = ramet_gguf_f32(r->gguf, write_key(r, scales[i], key), &value, r->error);
        RAMET_TRY(settle(status, OPTIONAL, r->error));
        if (value != 0)
            return ramet_fail(r->error, RAMET_E_UNSUPPORTED, "%s: key '%s' is not supported", ramet_gguf_path(r->gguf),
                              key);
    }
    bool causal = true;
    char key[KEY_BYTES];
    RAMET_TRY(
        settle(ramet_gguf_bool(r->gguf, write_key(r, "attention.causal", key), &causal, r->error), OPTIONAL, r->error));
    return causal ? RAMET_OK : fail_model(r, RAMET_E_UNSUPPORTED, "attention that is not causal is not supported");
}

static ramet_status read_heads(const reader *r, ramet_hparams *h) {
    RAMET_TRY(read_u32(r, "attention.head_count", REQUIRED, 1, MOST_HEADS, &h->n_heads));
    h->n_kv_heads = h->n_heads;
    RAMET_TRY(read_u32(r, "attention.head_count_kv", OPTIONAL, 1, MOST_HEADS, &h->n_kv_heads));
    if (h->n_heads % h->n_kv_heads != 0)
        return fail_model(r, RAMET_E_CORRUPT, "'attention.head_count' is no multiple of 'attention.head_count_kv'");
    h->head_dim = 0;
    RAMET_TRY(read_u32(r, "attention.key_length", OPTIONAL, 1, MOST_HEAD_DIM, &h->head_dim));
    if (h->head_dim == 0) {
        if (h->n_embd % h->n_heads != 0 || h->n_embd / h->n_heads > MOST_HEAD_DIM)
            return fail_model(r, RAMET_E_CORRUPT, "'embedding_length' does not divide into heads of at most 512");
        h->head_dim = h->n_embd / h->n_heads;
    }
    uint32_t value_dim = h->head_dim;
    RAMET_TRY(read_u32(r, "attention.value_length", OPTIONAL, 1, MOST_HEAD_DIM, &value_dim));
    if (value_dim != h->head_dim)
        return fail_model(r, RAMET_E_UNSUPPORTED, "values of another length than keys are not supported");
    h->n_rot = h->head_dim;
    RAMET_TRY(read_u32(r, "rope.dimension_count", OPTIONAL, 1, h->head_dim, &h->n_rot));
    if (h->n_rot % 2 != 0) return fail_model(r, RAMET_E_CORRUPT, "the number of rotated dimensions is odd");
    return RAMET_OK;
}

static ramet_status read_vocabulary(const reader *r, ramet_hparams *h) {
    const ramet_gguf_tensor *embd = ramet_gguf_find(r->gguf, "token_embd.weight");
    if (!embd) return fail_model(r, RAMET_E_CORRUPT, "tensor 'token_embd.weight' is missing");
    if (embd->dims[0] != h->n_embd || embd->dims[1] > INT32_MAX || embd->dims[2] != 1 || embd->dims[3] != 1)
        return fail_model(r, RAMET_E_CORRUPT, "tensor 'token_embd.weight' does not have rows of 'embedding_length'");
    h->n_vocab = (uint32_t)embd->dims[1];
    return RAMET_OK;
}

static ramet_status read_all(const reader *r, const family *f, ramet_hparams *h) {
    double eps = 0;
    RAMET_TRY(refuse_unknown_meaning(r));
    RAMET_TRY(read_u32(r, "block_count", REQUIRED, 1, MOST_LAYERS, &h->n_layers));
    RAMET_TRY(read_u32(r, "context_length", REQUIRED, 1, INT32_MAX, &h->n_ctx_train));
    RAMET_TRY(read_u32(r, "embedding_length", REQUIRED, 1, MOST_EMBD, &h->n_embd));
    RAMET_TRY(read_u32(r, "feed_forward_length", REQUIRED, 1, MOST_FF, &h->n_ff));
    RAMET_TRY(read_heads(r, h));
    RAMET_TRY(read_f64(r, "attention.layer_norm_rms_epsilon", REQUIRED, 0, 1, &eps));
    h->rms_eps = (float)eps;
    RAMET_TRY(read_rope(r, h->n_ctx_train, &h->rope));
    h->rope_local = (ramet_rope){.base = h->rope.base, .factor = 1, .beta_fast = 32, .beta_slow = 1, .attn_factor = 1};
    h->attn_scale = 1 / ramet_sqrtf((float)h->head_dim);
    h->embd_scale = 1;
    RAMET_TRY(read_vocabulary(r, h));
    /* some llama files carry them too, and there the tensors alone say so */
    h->qkv_bias = f->qkv_bias || ramet_gguf_find(r->gguf, "blk.0.attn_q.bias");
    return f->refine ? f->refine(r, h) : RAMET_OK;
}

ramet_status ramet_hparams_read(const ramet_gguf *gguf, ramet_hparams *out, ramet_error *error) {
    const family *f = NULL;
    RAMET_TRY(find_family(gguf, &f, error));
    ramet_hparams h = {
        .rope_neighbours = f->rope_neighbours, .gelu = f->gelu, .qk_norm = f->qk_norm, .post_norms = f->post_norms};
    snprintf(h.arch, sizeof h.arch, "%s", f->arch);
    reader r = {.gguf = gguf, .arch = f->arch, .error = error};
    RAMET_TRY(read_all(&r, f, &h));
    *out = h;
    return RAMET_OK;
}
