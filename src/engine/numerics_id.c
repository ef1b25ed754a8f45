/* numerics_id.c - "these kernels make these bits", as 32 characters: the contract's version, then a hash of everything that the two
 * micro-models compute: logits of a prefill and of decode steps, and the pages, at each KV precision. Equal ids: snapshots may be
 * exchanged. Owns the golden id of contract version 1; a build that makes other bits must say so by changing both. */
#include "engine/numerics_id.h"
#include "base/hash.h"
#include "engine/internal.h"
#include "engine/micro.h"

#include <stdio.h>
#include <string.h>

enum { CONTRACT_VERSION = 1, LONG_TOKENS = 80, SHORT_TOKENS = 20, DECODED = 3, MAX_CACHED = 8 };

static void hash_logits(ramet_sha256 *hash, ramet_context *context) {
    const float *logits = NULL;
    ramet_status status = ramet_context_logits(context, &logits, NULL);
    RAMET_ASSERT(status == RAMET_OK, "the micro-model has no logits");
    ramet_sha256_update(hash, logits, RAMET_MICRO_VOCAB * sizeof *logits);
}

static ramet_status hash_pages(ramet_sha256 *hash, const ramet_engine *e, ramet_context *context, uint8_t *row,
                               ramet_error *error) {
    RAMET_TRY(ramet_engine_use(context, error));
    for (uint32_t pos = 0; pos < ramet_context_length(context); pos++) {
        ramet_kv_export(&e->layout, ramet_context_page_read(context, pos), pos % e->layout.page_tokens, 1, row);
        ramet_sha256_update(hash, row, e->layout.row_bytes);
    }
    ramet_context_leave(context);
    return RAMET_OK;
}

static ramet_status hash_context(ramet_sha256 *hash, const ramet_engine *e, ramet_context *context, uint32_t n_tokens,
                                 ramet_error *error) {
    static uint8_t row[2 * 2 * 64 * 2 * sizeof(float)]; /* layers, heads, dimension, K and V; under the caller's lock */
    RAMET_ASSERT(e->layout.row_bytes <= sizeof row, "a row of the micro-model has %zu bytes", e->layout.row_bytes);
    int32_t tokens[LONG_TOKENS];
    for (uint32_t i = 0; i < n_tokens; i++) tokens[i] = (int32_t)(i * 7 + 3) % RAMET_MICRO_VOCAB;
    uint32_t prefill = n_tokens - DECODED;
    RAMET_TRY(ramet_context_extend(context, tokens, prefill, error));
    hash_logits(hash, context);
    for (uint32_t i = prefill; i < n_tokens; i++) {
        RAMET_TRY(ramet_context_extend(context, tokens + i, 1, error));
        hash_logits(hash, context);
    }
    return hash_pages(hash, e, context, row, error);
}

static ramet_status hash_engine(ramet_sha256 *hash, const ramet_weights *weights, const char *kernels, ramet_kv kv,
                                const char **out_kernels, ramet_error *error) {
    ramet_engine_options options = {.kv = kv, .n_ctx = 128, .threads = 1, .chunk_tokens = 64, .kernels = kernels};
    ramet_engine *e = NULL;
    ramet_context *context = NULL;
    RAMET_TRY(ramet_engine_create_on(NULL, weights, &options, (int)kv, &e, error));
    *out_kernels = e->kernels.name;
    ramet_status status = ramet_context_create(e, &context, error);
    if (status == RAMET_OK)
        status = hash_context(hash, e, context, kv == RAMET_KV_F32 ? LONG_TOKENS : SHORT_TOKENS, error);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&e);
    return status;
}

/* The merge of parts, which the micro-models are too short for. */
static void hash_merge(ramet_sha256 *hash, const char *kernels) {
    ramet_kernels table;
    ramet_kernels_init(&table, kernels);
    float o[64], o2[64], m = 0.25f, l = 3.5f;
    for (int part = 1; part <= 3; part++) {
        for (int d = 0; d < 64; d++) {
            o2[d] = (float)(d * part) * 0x1p-5f - 0.7f;
            if (part == 1) o[d] = (float)d * 0x1p-4f + 0.3f;
        }
        table.attend_merge(&m, &l, o, 0.4f * (float)part - 0.6f, 1.7f, o2, 64);
    }
    table.attend_finish(o, l, 64);
    ramet_sha256_update(hash, o, sizeof o);
}

static ramet_status compute(const char *kernels, char out_id[33], const char **out_kernels, ramet_error *error) {
    ramet_sha256 *hash = ramet_sha256_create();
    if (!hash) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the numerics_id");
    ramet_status status = RAMET_OK;
    for (int kind = 0; kind < RAMET_MICRO_KINDS && status == RAMET_OK; kind++) {
        ramet_weights *weights = ramet_micro_create(kind);
        if (!weights) status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the micro-model");
        for (int kv = RAMET_KV_F32; kv <= RAMET_KV_Q8 && status == RAMET_OK; kv++)
            status = hash_engine(hash, weights, kernels, (ramet_kv)kv, out_kernels, error);
        ramet_micro_destroy(&weights);
    }
    if (status == RAMET_OK) hash_merge(hash, kernels);
    uint8_t digest[32];
    char hex[65];
    ramet_sha256_finish(&hash, digest);
    ramet_hex(digest, sizeof digest, hex);
    snprintf(out_id, 33, "%02x%.30s", CONTRACT_VERSION, hex);
    return status;
}

/* Ids are computed once per process and kernel set. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *wanted, *name; /* static strings: names from ramet_kernels_available, or NULL for the best */
    char id[33];
} cached[MAX_CACHED];
static size_t n_cached;

static bool same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static const char *known_name(const char *kernels) {
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    for (uint32_t i = 0; i < n; i++)
        if (same(names[i], kernels)) return names[i];
    return NULL;
}

ramet_status ramet_numerics(const char *kernels, char out_id[33], const char **out_kernels, ramet_error *error) {
    const char *wanted = kernels ? known_name(kernels) : NULL, *name = NULL;
    if (out_kernels) *out_kernels = NULL;
    if (kernels && !wanted) return ramet_fail(error, RAMET_E_ARGUMENT, "this CPU has no kernels named '%s'", kernels);
    ramet_status status = RAMET_OK;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < n_cached && !same(cached[i].wanted, wanted)) i++;
    if (i < n_cached) {
        memcpy(out_id, cached[i].id, 33);
        name = cached[i].name;
    } else {
        status = compute(wanted, out_id, &name, error);
        if (status == RAMET_OK && n_cached < MAX_CACHED) {
            cached[n_cached].wanted = wanted;
            cached[n_cached].name = name;
            memcpy(cached[n_cached++].id, out_id, 33);
        }
    }
    pthread_mutex_unlock(&lock);
    if (out_kernels) *out_kernels = name;
    return status;
}
