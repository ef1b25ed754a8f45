/* snapshot.c - snapshots as the library's users see them: who a context belongs to (identity) is known here, the bytes are
 * the store's. Also who works on files, of snapshots and of what is spilled. */
#include "store/snapshot.h"
#include "engine/internal.h"

#include <string.h>

static ramet_snapshot_identity identity_of(const ramet_engine *e) {
    ramet_snapshot_identity id = {.model_name = e->model->name,
                                  .arch = e->weights->hparams.arch,
                                  .numerics_id = e->numerics_id,
                                  .n_vocab = e->weights->hparams.n_vocab,
                                  .layout = &e->layout};
    memcpy(id.weights_sha256, e->weights->sha256, sizeof id.weights_sha256);
    memcpy(id.tokenizer_sha256, e->model->tokenizer_sha256, sizeof id.tokenizer_sha256);
    return id;
}

/* The engine's threads where they are idle; else this one alone, for whoever prefills has them for long. */
static void run_jobs(void *user, uint32_t n, ramet_job job, void *job_user) {
    ramet_engine *e = user;
    bool are_idle = pthread_mutex_trylock(&e->run_lock) == 0;
    ramet_pool_run(are_idle ? e->pool : NULL, n, job, job_user);
    if (are_idle) pthread_mutex_unlock(&e->run_lock);
}

ramet_store_crew ramet_engine_crew(ramet_engine *e) {
    return (ramet_store_crew){.n_workers = ramet_pool_threads(e->pool), .run = run_jobs, .user = e};
}

ramet_status ramet_snapshot_save(ramet_context *context, const char *path, const ramet_snapshot_options *options,
                                 ramet_snapshot_info *out_info, ramet_error *error) {
    RAMET_TRY(ramet_engine_use(context, error));
    ramet_engine *e = ramet_engine_of(context);
    ramet_snapshot_identity id = identity_of(e);
    ramet_store_crew crew = ramet_engine_crew(e);
    ramet_status status =
        ramet_store_save(context, &id, options, e->options.snapshots.context_key, path, &crew, out_info, error);
    ramet_context_leave(context);
    return status;
}

ramet_status ramet_snapshot_restore(ramet_engine *engine, const char *path, const ramet_snapshot_policy *policy,
                                    ramet_context **out, ramet_snapshot_sampler *out_sampler,
                                    ramet_snapshot_info *out_info, ramet_error *error) {
    ramet_snapshot_identity id = identity_of(engine);
    ramet_store_crew crew = ramet_engine_crew(engine);
    void **data = NULL;
    size_t *bytes = NULL;
    if (out_sampler) {
        *out_sampler = (ramet_snapshot_sampler){0};
        data = &out_sampler->data;
        bytes = &out_sampler->bytes;
    }
    if (!policy) policy = &engine->options.snapshots;
    return ramet_store_restore(engine->cache, &id, policy, path, &crew, out, data, bytes, out_info, error);
}

ramet_status ramet_snapshot_read_info(const char *path, ramet_snapshot_info *out, ramet_error *error) {
    return ramet_store_read_info(path, out, error);
}

ramet_status ramet_snapshot_verify(const char *path, const ramet_snapshot_policy *policy, ramet_error *error) {
    return ramet_store_verify(path, policy, error);
}

ramet_status ramet_snapshot_read_tokens(const char *path, const ramet_snapshot_policy *policy, int32_t **out,
                                        uint32_t *out_n, ramet_error *error) {
    return ramet_store_read_tokens(path, policy, out, out_n, error);
}

static void run_on_pool(void *user, uint32_t n, ramet_job job, void *job_user) {
    ramet_pool_run(user, n, job, job_user);
}

ramet_status ramet_snapshot_convert(const char *path, const ramet_snapshot_policy *policy, const char *to_path,
                                    const ramet_convert_options *options, ramet_snapshot_info *out_info,
                                    ramet_error *error) {
    ramet_pool *pool;
    RAMET_TRY(ramet_pool_create(options->threads ? options->threads : ramet_cpu_count(), &pool, error));
    ramet_store_crew crew = {.n_workers = ramet_pool_threads(pool), .run = run_on_pool, .user = pool};
    ramet_status status =
        ramet_store_convert(path, policy, to_path, options->payload, options->context_key, &crew, out_info, error);
    ramet_pool_destroy(&pool);
    return status;
}
