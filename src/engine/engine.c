/* engine.c - an engine: pages, workers and scratch for one model at one KV precision. Fills in defaults and sizes everything once. */
#include "base/crypt.h"
#include "base/memory.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* The cheap defaults; the budgets need the layout and come after it. */
static ramet_status complete_options(ramet_engine_options *o, const ramet_hparams *h, ramet_error *error) {
    if (o->page_tokens == 0) o->page_tokens = 64;
    if (o->page_tokens < 16 || o->page_tokens > 256 || (o->page_tokens & (o->page_tokens - 1)) != 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "page size must be 16, 32, 64, 128 or 256 tokens, not %u",
                          o->page_tokens);
    if (o->n_ctx == 0) o->n_ctx = ramet_min_u32(h->n_ctx_train ? h->n_ctx_train : 2048, 8192);
    if (o->n_ctx > 1u << 24)
        return ramet_fail(error, RAMET_E_ARGUMENT, "context size %u is over 16,777,216 tokens", o->n_ctx);
    if (o->threads == 0) o->threads = ramet_cpu_count();
    if (o->chunk_tokens == 0) o->chunk_tokens = 256;
    o->chunk_tokens = ramet_min_u32(o->chunk_tokens, 4096);
    return RAMET_OK;
}

static ramet_status lay_out_kv(ramet_engine *e, int precision, ramet_error *error) {
    const ramet_hparams *h = &e->weights->hparams;
    if (!ramet_kv_layout_init(&e->layout, precision, h->n_layers, h->n_kv_heads, h->head_dim, e->options.page_tokens))
        return ramet_fail(error, RAMET_E_ARGUMENT, "no page layout for %u layers of %u heads", h->n_layers,
                          h->n_kv_heads);
    return RAMET_OK;
}

/* Memory: 16 full contexts, and 64 rows of logits. */
static ramet_status complete_budgets(ramet_engine_options *o, const ramet_kv_layout *layout, uint64_t row_bytes,
                                     ramet_error *error) {
    uint64_t pages = (o->n_ctx + o->page_tokens - 1) / o->page_tokens;
    if (o->kv_budget_bytes == 0 && (!ramet_mul_u64(16 * pages, layout->page_bytes, &o->kv_budget_bytes) ||
                                    !ramet_add_u64(o->kv_budget_bytes, 64 * row_bytes, &o->kv_budget_bytes)))
        return ramet_fail(error, RAMET_E_ARGUMENT, "a context of %u tokens is too large", o->n_ctx);
    if (o->tree_budget_bytes == 0) o->tree_budget_bytes = o->kv_budget_bytes / 2;
    if (o->pin_budget_bytes == 0) o->pin_budget_bytes = o->tree_budget_bytes / 2;
    return RAMET_OK;
}

/* A key of its own, so that what is spilled is never readable by others. */
static ramet_status take_key(ramet_engine *e, ramet_error *error) {
    ramet_snapshot_policy *policy = &e->options.snapshots;
    if (!policy->context_key) return ramet_random(e->context_key, sizeof e->context_key, error);
    memcpy(e->context_key, policy->context_key, sizeof e->context_key);
    policy->context_key = e->context_key;
    return RAMET_OK;
}

static ramet_status create_cache(ramet_engine *e, ramet_error *error) {
    uint32_t stride = ramet_forward_logits_stride(e->forward);
    ramet_store_crew crew = ramet_engine_crew(e);
    RAMET_TRY(complete_budgets(&e->options, &e->layout, stride * sizeof(float), error));
    if (e->options.spill_directory)
        RAMET_TRY(ramet_spill_create(e->options.spill_directory, e->context_key, &crew, &e->spill, error));
    ramet_pager pager = e->spill ? ramet_spill_pager(e->spill) : (ramet_pager){0};
    ramet_cache_options cache = {.page_tokens = e->options.page_tokens,
                                 .page_bytes = e->layout.page_bytes,
                                 .n_ctx = e->options.n_ctx,
                                 .n_vocab = stride,
                                 .budget_bytes = e->options.kv_budget_bytes,
                                 .tree_budget_bytes = e->options.tree_budget_bytes,
                                 .pin_budget_bytes = e->options.pin_budget_bytes,
                                 .pager = e->spill ? &pager : NULL,
                                 .user = e};
    return ramet_cache_create(&cache, &e->cache, error);
}

static ramet_status create_parts(ramet_engine *e, ramet_error *error) {
    if (!ramet_kernels_init(&e->kernels, e->options.kernels))
        return ramet_fail(error, RAMET_E_ARGUMENT, "this CPU has no kernels named '%s'", e->options.kernels);
    RAMET_TRY(ramet_pool_create(e->options.threads, &e->pool, error));
    if (!e->options.unbound_threads) ramet_pool_bind(e->pool);
    RAMET_TRY(ramet_forward_create(e->weights, &e->kernels, &e->layout, e->options.n_ctx, e->options.chunk_tokens,
                                   e->pool, &e->forward, error));
    RAMET_TRY(create_cache(e, error));
    e->rows_bytes = (uint64_t)RAMET_ROWS * ramet_forward_logits_stride(e->forward) * sizeof(float);
    e->rows = ramet_reserve((size_t)e->rows_bytes);
    e->spans = ramet_alloc(e->options.chunk_tokens, sizeof *e->spans);
    if (!e->rows || !e->spans) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the engine's buffers");
    return RAMET_OK;
}

ramet_status ramet_engine_create_on(const ramet_model *model, const ramet_weights *weights,
                                    const ramet_engine_options *options, int precision, ramet_engine **out,
                                    ramet_error *error) {
    *out = NULL;
    ramet_engine *e = ramet_alloc(1, sizeof *e);
    if (!e) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for an engine");
    e->model = model;
    e->weights = weights;
    if (options) e->options = *options;
    pthread_mutex_init(&e->run_lock, NULL);
    ramet_status status = complete_options(&e->options, &weights->hparams, error);
    if (status == RAMET_OK) status = lay_out_kv(e, precision, error);
    if (status == RAMET_OK) status = take_key(e, error);
    if (status == RAMET_OK) status = create_parts(e, error);
    if (status != RAMET_OK) {
        ramet_engine_destroy(&e);
        return status;
    }
    e->options.kernels = e->kernels.name; /* the caller's strings may go away */
    e->options.spill_directory = NULL;    /* the spill has its own */
    *out = e;
    return RAMET_OK;
}

ramet_status ramet_engine_create(const ramet_model *model, const ramet_engine_options *options, ramet_engine **out,
                                 ramet_error *error) {
    *out = NULL;
    int precision = options ? (int)options->kv : RAMET_KV_F32;
    if (precision < RAMET_KV_F32 || precision > RAMET_KV_Q8)
        return ramet_fail(error, RAMET_E_ARGUMENT, "unknown KV precision %d", precision);
    char id[33];
    RAMET_TRY(ramet_numerics(options ? options->kernels : NULL, id, NULL, error));
    RAMET_TRY(ramet_engine_create_on(model, model->weights, options, precision, out, error));
    memcpy((*out)->numerics_id, id, sizeof id);
    return RAMET_OK;
}

void ramet_engine_destroy(ramet_engine **handle) {
    ramet_engine *e = *handle;
    if (!e) return;
    *handle = NULL;
    ramet_cache_destroy(&e->cache);
    ramet_spill_destroy(&e->spill);
    ramet_forward_destroy(&e->forward);
    ramet_pool_destroy(&e->pool);
    ramet_unmap(e->rows, (size_t)e->rows_bytes);
    free(e->spans);
    pthread_mutex_destroy(&e->run_lock);
    ramet_wipe(e->context_key, sizeof e->context_key);
    free(e);
}

void ramet_engine_get_info(const ramet_engine *e, ramet_engine_info *out) {
    *out = (ramet_engine_info){.kv = (ramet_kv)e->layout.precision,
                               .n_ctx = e->options.n_ctx,
                               .page_tokens = e->options.page_tokens,
                               .threads = e->options.threads,
                               .chunk_tokens = e->options.chunk_tokens,
                               .page_bytes = e->layout.page_bytes,
                               .kv_budget_bytes = e->options.kv_budget_bytes,
                               .tree_budget_bytes = e->options.tree_budget_bytes,
                               .pin_budget_bytes = e->options.pin_budget_bytes,
                               .scratch_bytes = ramet_forward_scratch_bytes(e->forward) + e->rows_bytes,
                               .kv_bytes_per_token = e->layout.row_bytes,
                               .kernels = e->kernels.name};
    memcpy(out->numerics_id, e->numerics_id, sizeof out->numerics_id);
}

void ramet_engine_get_stats(ramet_engine *e, ramet_engine_stats *out) {
    ramet_cache_get_stats(e->cache, out);
}
ramet_status ramet_engine_check(ramet_engine *e, ramet_error *error) {
    return ramet_cache_check(e->cache, error);
}
void ramet_prefix_clear(ramet_engine *e) {
    ramet_tree_clear(e->cache);
}
