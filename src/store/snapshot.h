/* snapshot.h - one context as one portable file. docs/FORMAT.md has the bytes.
 *
 * The bytes of a file are a function of the context's content, the identity and the options: not of page size, history,
 * time, file name or machine (K8). A file is published whole or not at all, and every byte of it is checked before a
 * context exists.
 *
 * Owns the snapshot format. Refuses to know models, and policy: who may restore what. The engine calls it. Functions
 * marked [used] are called between ramet_context_use and ramet_context_leave. */
#ifndef RAMET_STORE_SNAPSHOT_H
#define RAMET_STORE_SNAPSHOT_H

#include "base/pool.h"
#include "numerics/kv.h"
#include "state/state.h"

/* What the state of a context is a function of, tokens aside, and how it lies in a page. All borrowed. */
typedef struct ramet_snapshot_identity {
    const char *model_name, *arch; /* for people: not compared, cut to what ramet_snapshot_info holds; may be NULL */
    uint8_t weights_sha256[32], tokenizer_sha256[32];
    const char *numerics_id;       /* 1..32 characters */
    uint32_t n_vocab;              /* at least 1; a logits row has that many floats */
    const ramet_kv_layout *layout; /* of the cache's pages; KV precision and geometry are part of the identity */
} ramet_snapshot_identity;

/* Whoever does independent jobs: `run` is given n of them and returns when all are done, as ramet_pool_run. Where a crew
 * is NULL this thread does them, in order. */
typedef struct ramet_store_crew {
    uint32_t n_workers;
    void (*run)(void *user, uint32_t n, ramet_job job, void *job_user);
    void *user;
} ramet_store_crew;

/* [used] Writes a file, or standard output for "-", encrypted if there is a context key. It, `options` and `out_info` may
 * be NULL. Memory: the tokens, and a chunk for each worker. E_ARGUMENT (owner or marking of more than 127 bytes, sampler
 * state of more than 64 KiB, a precision for tests only), E_NO_DISK, E_IO, E_NOT_FOUND (no such directory), E_NO_MEMORY; then an old file at `path` is as before and
 * nothing else is left behind. One exception: when the last step fails, the sync of the directory, the new file is in
 * place, whole, but may not survive a power loss. */
ramet_status ramet_store_save(ramet_context *context, const ramet_snapshot_identity *identity,
                              const ramet_snapshot_options *options, const uint8_t *context_key, const char *path,
                              const ramet_store_crew *crew, ramet_snapshot_info *out_info, ramet_error *error);

/* A new context in `cache`, with the file's tokens, state and last logits. *out_sampler is malloc'ed, NULL when the
 * file has no sampler state; out_sampler, out_sampler_bytes and out_info may be NULL. On failure the cache is as before
 * (but for its counts of pages given out and back; no entry of the tree is evicted for a damaged file, unless it changes
 * while it is read). E_CORRUPT, E_AUTHENTICATION, E_UNSUPPORTED,
 * E_MODEL_MISMATCH (weights, tokenizer, shape or KV precision differ), E_NUMERICS_MISMATCH, E_BUDGET, E_WINDOW,
 * E_NOT_FOUND, E_IO, E_NO_MEMORY. */
ramet_status ramet_store_restore(ramet_cache *cache, const ramet_snapshot_identity *identity,
                                 const ramet_snapshot_policy *policy, const char *path, const ramet_store_crew *crew,
                                 ramet_context **out, void **out_sampler, size_t *out_sampler_bytes,
                                 ramet_snapshot_info *out_info, ramet_error *error);

/* Writes what is in one snapshot as another: its rows at `payload`, which is the source's precision or a narrower one
 * (E_ARGUMENT), in the current format, encrypted if there is a context key. All else stays: owner, marking, generation, logits,
 * sampler state. The same bytes as a save with that payload. `to_path` may be "-", or `path` itself. Memory: the tokens, a chunk,
 * and a layer of a tile for each worker. Errors as of verifying the source and of saving. */
ramet_status ramet_store_convert(const char *path, const ramet_snapshot_policy *policy, const char *to_path,
                                 ramet_kv payload, const uint8_t *context_key, const ramet_store_crew *crew,
                                 ramet_snapshot_info *out_info, ramet_error *error);

/* The header alone, checked. */
ramet_status ramet_store_read_info(const char *path, ramet_snapshot_info *out, ramet_error *error);
/* Every byte, checked. */
ramet_status ramet_store_verify(const char *path, const ramet_snapshot_policy *policy, ramet_error *error);
/* *out is malloc'ed; checks the header and the chunks that hold tokens. */
ramet_status ramet_store_read_tokens(const char *path, const ramet_snapshot_policy *policy, int32_t **out,
                                     uint32_t *out_n, ramet_error *error);

#endif
