/* forward.h - the layer loop: tokens in, KV into the contexts' pages, hidden rows and logits out. Prefill, decode and batches
 * of several contexts are the same code: a run is a list of spans, and no row's arithmetic looks at another row but through
 * the pages that its own context holds.
 *
 * Owns the scratch memory, the rope tables and how work is split over threads: over rows, heads and the fixed parts of 1,024
 * positions, never over the order of a sum. Refuses to know files, sampling and who the contexts belong to. */
#ifndef RAMET_FORWARD_FORWARD_H
#define RAMET_FORWARD_FORWARD_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "state/state.h"

enum {
    RAMET_SEGMENT = 64, /* positions of one softmax segment, aligned to absolute position */
    RAMET_PART = 1024,  /* positions of one independent part; parts are merged in ascending order */
};

typedef struct ramet_forward ramet_forward;

/* All arguments stay alive as long as the forward. max_tokens: most tokens of one run. */
ramet_status ramet_forward_create(const ramet_weights *weights, const ramet_kernels *kernels,
                                  const ramet_kv_layout *layout, uint32_t n_ctx, uint32_t max_tokens, ramet_pool *pool,
                                  ramet_forward **out, ramet_error *error);
void ramet_forward_destroy(ramet_forward **forward);
uint64_t ramet_forward_scratch_bytes(const ramet_forward *forward);

/* n tokens for positions [pos, pos + n) of a context that was made writable there and is not yet committed. */
typedef struct ramet_span {
    ramet_context *context;
    const int32_t *tokens;
    uint32_t n, pos;
} ramet_span;

/* Runs all layers over the spans, at most max_tokens together; each context occurs once. Cannot fail, allocates nothing. */
void ramet_forward_run(ramet_forward *forward, const ramet_span *spans, uint32_t n_spans);
/* Logits of hidden rows [row, row + n) of the last run (rows count through the spans in order). out is [n][stride], stride is at least
 * n_vocab rounded up to 16 and so many floats of each row are written. */
void ramet_forward_logits(ramet_forward *forward, uint32_t row, uint32_t n, float *out, size_t stride);
/* n_vocab rounded up to a whole number of panels. */
uint32_t ramet_forward_logits_stride(const ramet_forward *forward);

#endif
