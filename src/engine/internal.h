/* internal.h - what the files of the engine room share: the model, the engine, and how a public call enters a context. */
#ifndef RAMET_ENGINE_INTERNAL_H
#define RAMET_ENGINE_INTERNAL_H

#include "base/pool.h"
#include "forward/forward.h"
#include "store/spill.h"
#include "text/text.h"

#include <pthread.h>

struct ramet_model { /* immutable after open */
    ramet_gguf *gguf;
    ramet_weights *weights;
    ramet_vocab *vocab;
    char *path, *name;
    uint64_t load_nanoseconds, parse_nanoseconds, vocab_nanoseconds;
    uint8_t tokenizer_sha256[32];
};

struct ramet_engine {
    /* immutable */
    const ramet_model *model; /* NULL: the micro-model of numerics_id.c */
    const ramet_weights *weights;
    ramet_engine_options options; /* defaults filled in */
    ramet_kv_layout layout;
    ramet_kernels kernels;
    char numerics_id[33];
    uint8_t context_key[RAMET_KEY_BYTES]; /* of the options' policy, or random: for what is spilled alone */
    ramet_pool *pool;
    ramet_spill *spill; /* NULL: no spill directory */
    ramet_cache *cache;
    uint64_t rows_bytes;
    /* one forward pass at a time; everything below is used by its holder alone */
    pthread_mutex_t run_lock;
    ramet_forward *forward;
    float *rows;       /* scratch for rows handed to a caller: [RAMET_ROWS][logits stride] */
    ramet_span *spans; /* [chunk_tokens] */
};

enum { RAMET_ROWS = 16 };

/* An engine on weights that need no file, for the micro-model; `precision` is a ramet_kv or RAMET_KV_ONE_BIT. numerics_id is left empty. */
ramet_status ramet_engine_create_on(const ramet_model *model, const ramet_weights *weights,
                                    const ramet_engine_options *options, int precision, ramet_engine **out,
                                    ramet_error *error);

static inline ramet_engine *ramet_engine_of(const ramet_context *context) {
    return ramet_cache_user(ramet_context_cache(context));
}

/* Enters the context and uses it (state.h); on failure it is not entered. Ends with ramet_context_leave. */
ramet_status ramet_engine_use(ramet_context *context, ramet_error *error);
/* The engine's threads, where they are idle, for work on files. */
ramet_store_crew ramet_engine_crew(ramet_engine *e);

#endif
