/* lora.c - low-rank adapters in GGUF files: pairs "<tensor>.lora_a" [n_in x rank], "<tensor>.lora_b" [rank x n_out].
 * Owns the reading, the scale (alpha / rank times the user's) and the identity of model + adapter. The factors stay
 * apart from the weights, as float32 panels. Refuses adapters that would be applied in part: every tensor must find its
 * matrix. */
#include "model/weights_internal.h"

#include "base/hash.h"
#include "base/memory.h"
#include "numerics/panel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANK = 1 << 16 };

typedef struct pair {
    ramet_matrix *target;
    const ramet_gguf_tensor *a, *b;
    uint64_t a_off, b_off; /* inside the region */
} pair;

typedef struct adapter {
    ramet_gguf *gguf;
    ramet_weights *weights;
    ramet_error *error;
    float alpha; /* 0: no division by the rank */
    pair *pairs;
    size_t n_pairs;
    uint64_t bytes;
    uint32_t widest; /* n_k */
    uint8_t digest[32];
} adapter;

static ramet_status fail(const adapter *l, ramet_status code, const char *what) {
    return ramet_fail(l->error, code, "%s %s", ramet_gguf_path(l->gguf), what);
}

static ramet_status fail_tensor(const adapter *l, const ramet_gguf_tensor *t, ramet_status code, const char *what) {
    return ramet_fail(l->error, code, "%s: tensor '%s' %s", ramet_gguf_path(l->gguf), ramet_gguf_show(t->name).text,
                      what);
}

static bool key_is(const adapter *l, const char *key, const char *text) {
    ramet_gguf_string s;
    return ramet_gguf_str(l->gguf, key, &s, NULL) == RAMET_OK && ramet_gguf_string_is(s, text);
}

static ramet_status check_kind(adapter *l) {
    if (!key_is(l, "general.type", "adapter") || !key_is(l, "adapter.type", "lora"))
        return fail(l, RAMET_E_ARGUMENT, "is not a LoRA adapter (general.type, adapter.type)");
    if (!key_is(l, "general.architecture", l->weights->hparams.arch))
        return ramet_fail(l->error, RAMET_E_MODEL_MISMATCH,
                          "%s is an adapter for another architecture than the model's, '%s'", ramet_gguf_path(l->gguf),
                          l->weights->hparams.arch);
    if (ramet_gguf_has(l->gguf, "adapter.alora.invocation_tokens"))
        return fail(l, RAMET_E_UNSUPPORTED, "is an activated LoRA adapter: not supported");
    ramet_status status = ramet_gguf_f32(l->gguf, "adapter.lora.alpha", &l->alpha, l->error);
    if (status != RAMET_OK && status != RAMET_E_NOT_FOUND) return status;
    return isfinite(l->alpha) ? RAMET_OK
                              : fail(l, RAMET_E_CORRUPT, "has a key 'adapter.lora.alpha' that is not a number");
}

enum { TAIL_BYTES = sizeof ".lora_a" - 1 };

static bool ends_in(ramet_gguf_string s, const char *tail) {
    return s.bytes > TAIL_BYTES && memcmp(s.data + s.bytes - TAIL_BYTES, tail, TAIL_BYTES) == 0;
}

/* The other half of the pair: the same name with another last letter. */
static ramet_status find_partner(const adapter *l, const ramet_gguf_tensor *t, char last,
                                 const ramet_gguf_tensor **out) {
    char name[128];
    *out = NULL;
    if (t->name.bytes < sizeof name) {
        memcpy(name, t->name.data, (size_t)t->name.bytes);
        name[t->name.bytes - 1] = last;
        name[t->name.bytes] = 0;
        *out = ramet_gguf_find(l->gguf, name);
    }
    return *out ? RAMET_OK
                : fail_tensor(l, t, RAMET_E_CORRUPT, "has no other half (.lora_a and .lora_b come in pairs)");
}

static ramet_status check_pair(const adapter *l, const pair *p) {
    const ramet_gguf_tensor *halves[2] = {p->a, p->b};
    for (int i = 0; i < 2; i++) {
        if (!ramet_dtype_get(halves[i]->dtype))
            return fail_tensor(l, halves[i], RAMET_E_UNSUPPORTED, "has a type that this version of ramet does not run");
        if (halves[i]->dims[2] != 1 || halves[i]->dims[3] != 1)
            return fail_tensor(l, halves[i], RAMET_E_CORRUPT, "has more than two dimensions");
    }
    if (p->a->dims[0] != p->target->n_k || p->b->dims[1] != p->target->n_rows)
        return fail_tensor(l, p->a, RAMET_E_MODEL_MISMATCH,
                           "or its other half has a shape that does not fit the model");
    if (p->a->dims[1] != p->b->dims[0] || p->a->dims[1] > MOST_RANK)
        return fail_tensor(l, p->a, RAMET_E_CORRUPT, "and its other half have different ranks, or too large ones");
    return RAMET_OK;
}

static ramet_status add_pair(adapter *l, const ramet_gguf_tensor *a) {
    pair p = {.a = a};
    RAMET_TRY(find_partner(l, a, 'b', &p.b));
    ramet_gguf_string base = {.data = a->name.data, .bytes = a->name.bytes - TAIL_BYTES};
    p.target = ramet_weights_matrix(l->weights, base);
    if (!p.target) return fail_tensor(l, a, RAMET_E_MODEL_MISMATCH, "belongs to no matrix of the model");
    if (p.target == &l->weights->embd)
        return fail_tensor(l, a, RAMET_E_UNSUPPORTED, "adapts the embedding: not supported");
    RAMET_TRY(check_pair(l, &p));
    uint64_t a_bytes, b_bytes;
    uint32_t rank = (uint32_t)a->dims[1];
    if (!ramet_matrix_reserve(RAMET_F32, rank, p.target->n_k, &l->bytes, &p.a_off, &a_bytes) ||
        !ramet_matrix_reserve(RAMET_F32, p.target->n_rows, rank, &l->bytes, &p.b_off, &b_bytes))
        return fail(l, RAMET_E_NO_MEMORY, "does not fit in memory");
    if (p.target->n_k > l->widest) l->widest = p.target->n_k;
    if (rank > l->widest) l->widest = rank;
    l->pairs[l->n_pairs++] = p;
    return RAMET_OK;
}

static ramet_status find_pairs(adapter *l) {
    uint64_t n = ramet_gguf_n_tensors(l->gguf);
    if (n == 0) return fail(l, RAMET_E_CORRUPT, "is an adapter without tensors");
    l->pairs = ramet_alloc((size_t)n, sizeof *l->pairs);
    if (!l->pairs) return fail(l, RAMET_E_NO_MEMORY, "does not fit in memory");
    for (uint64_t i = 0; i < n; i++) {
        const ramet_gguf_tensor *t = ramet_gguf_tensor_at(l->gguf, i), *partner;
        if (ends_in(t->name, ".lora_a"))
            RAMET_TRY(add_pair(l, t));
        else if (ends_in(t->name, ".lora_b"))
            RAMET_TRY(find_partner(l, t, 'a', &partner));
        else
            return fail_tensor(l, t, RAMET_E_UNSUPPORTED, "is neither .lora_a nor .lora_b");
    }
    return RAMET_OK;
}

/* Any type becomes float32 panels. `scratch` holds 16 rows. */
static ramet_matrix pack(const ramet_gguf_tensor *t, uint8_t *panels, float *scratch) {
    uint32_t n_k = (uint32_t)t->dims[0], n_rows = (uint32_t)t->dims[1];
    ramet_matrix m = ramet_matrix_at(RAMET_F32, n_rows, n_k, panels);
    uint64_t row_bytes = t->bytes / n_rows;
    for (uint32_t panel = 0; panel < m.n_panels; panel++) {
        const uint8_t *rows[RAMET_LANES];
        uint32_t first = panel * RAMET_LANES, n = n_rows - first < RAMET_LANES ? n_rows - first : RAMET_LANES;
        for (uint32_t i = 0; i < n; i++) {
            float *row = scratch + (size_t)i * n_k;
            ramet_dequantize_row((ramet_dtype)t->dtype, t->data + (first + i) * row_bytes, n_k, row);
            rows[i] = (const uint8_t *)row;
        }
        ramet_panel_pack(RAMET_F32, rows, n, n_k, panels + panel * m.panel_bytes);
    }
    return m;
}

/* Nothing fails from here on. */
static void attach(adapter *l, uint8_t *region, ramet_matrix *matrices, float *scratch, float scale) {
    for (size_t i = 0; i < l->n_pairs; i++) {
        const pair *p = &l->pairs[i];
        ramet_matrix *a = &matrices[2 * i], *b = &matrices[2 * i + 1];
        *a = pack(p->a, region + p->a_off, scratch);
        *b = pack(p->b, region + p->b_off, scratch);
        p->target->lora_a = a;
        p->target->lora_b = b;
        p->target->lora_scale = l->alpha == 0 ? scale : l->alpha / (float)a->n_rows * scale;
    }
    ramet_weights *w = l->weights;
    w->memory->lora_region = region;
    w->memory->lora_bytes = (size_t)l->bytes;
    w->memory->lora_matrices = matrices;
    w->bytes += l->bytes;
}

/* SHA-256 of: "ramet-weights-1", the model's digest, the adapter's, the user's scale as little-endian binary32. */
static void identify(const adapter *l, float scale, ramet_sha256 *sha) {
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    uint8_t scale_bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24)};
    ramet_sha256_update(sha, "ramet-weights-1", 15);
    ramet_sha256_update(sha, l->weights->sha256, 32);
    ramet_sha256_update(sha, l->digest, 32);
    ramet_sha256_update(sha, scale_bytes, sizeof scale_bytes);
    ramet_sha256_finish(&sha, l->weights->sha256);
}

static ramet_status load(adapter *l, float scale, const char *digest_cache) {
    RAMET_TRY(check_kind(l));
    RAMET_TRY(find_pairs(l));
    RAMET_TRY(ramet_gguf_digest(l->gguf, digest_cache, l->digest, NULL, l->error));
    ramet_sha256 *sha = ramet_sha256_create();
    uint8_t *region = ramet_map((size_t)l->bytes);
    ramet_matrix *matrices = ramet_alloc(2 * l->n_pairs, sizeof *matrices);
    float *scratch = ramet_alloc((size_t)l->widest * RAMET_LANES, sizeof *scratch);
    ramet_status status = RAMET_OK;
    if (sha && region && matrices && scratch) {
        attach(l, region, matrices, scratch, scale);
        identify(l, scale, sha);
    } else {
        uint8_t unused[32];
        if (sha) ramet_sha256_finish(&sha, unused);
        ramet_unmap(region, (size_t)l->bytes);
        free(matrices);
        status = fail(l, RAMET_E_NO_MEMORY, "does not fit in memory");
    }
    free(scratch);
    return status;
}

ramet_status ramet_lora_attach(ramet_weights *w, const ramet_model_options *options, ramet_error *error) {
    if (!isfinite(options->lora_scale))
        return ramet_fail(error, RAMET_E_ARGUMENT, "the adapter's scale is not a number");
    adapter l = {.weights = w, .error = error};
    RAMET_TRY(ramet_gguf_open(options->lora_path, &l.gguf, error));
    ramet_status status = load(&l, options->lora_scale, options->digest_cache);
    if (status == RAMET_OK) status = ramet_gguf_check_unchanged(l.gguf, error);
    free(l.pairs);
    ramet_gguf_close(&l.gguf);
    return status;
}
