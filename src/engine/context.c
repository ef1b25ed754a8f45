/* context.c - contexts as the library's users see them. Every call enters the context (the busy word), does its work through the state
 * room, and leaves. Running tokens is one loop for prefill, decode and batches: make the positions writable, then run after run of
 * at most chunk_tokens, each committed as it ends. */
#include "base/memory.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

ramet_status ramet_context_create(ramet_engine *engine, ramet_context **out, ramet_error *error) {
    return ramet_cache_context_create(engine->cache, out, error);
}

ramet_status ramet_engine_use(ramet_context *context, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_use(context, error);
    if (status != RAMET_OK) ramet_context_leave(context);
    return status;
}

ramet_status ramet_context_close(ramet_context **handle, ramet_error *error) {
    if (!*handle) return RAMET_OK;
    RAMET_TRY(ramet_context_enter(*handle, error));
    ramet_context_destroy(handle);
    return RAMET_OK;
}

ramet_status ramet_context_fork(ramet_context *context, ramet_context **out, ramet_error *error) {
    *out = NULL;
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_share(context, out, error);
    ramet_context_leave(context);
    return status;
}

/* ---- running tokens ---- */

struct progress { /* of one item of a batch */
    uint32_t start, done;
};

enum { FEW_ITEMS = 64 }; /* a batch of so many allocates nothing */

struct rows_wanted { /* only with a single item */
    uint32_t from_pos;
    ramet_rows_fn on_rows;
    void *user;
};

static ramet_status check_tokens(const ramet_engine *e, const ramet_batch_item *item, ramet_error *error) {
    uint32_t length = ramet_context_length(item->context), n_vocab = e->weights->hparams.n_vocab;
    if (item->n > e->options.n_ctx || length + item->n > e->options.n_ctx)
        return ramet_fail(error, RAMET_E_WINDOW, "%llu tokens do not fit the context window of %u (-c)",
                          (unsigned long long)(length + (uint64_t)item->n), e->options.n_ctx);
    for (size_t i = 0; i < item->n; i++)
        if (item->tokens[i] < 0 || (uint32_t)item->tokens[i] >= n_vocab)
            return ramet_fail(error, RAMET_E_ARGUMENT, "token id %d is outside the vocabulary of %u", item->tokens[i],
                              n_vocab);
    return RAMET_OK;
}

/* Everything that can fail, before anything happens: what is left behind on failure is memory set aside, nothing else. */
static ramet_status prepare(const ramet_engine *e, const ramet_batch_item *items, size_t n_items,
                            struct progress *progress, ramet_error *error) {
    for (size_t i = 0; i < n_items; i++)
        progress[i] = (struct progress){.start = ramet_context_length(items[i].context)};
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].n == 0) continue;
        RAMET_TRY(check_tokens(e, &items[i], error));
        RAMET_TRY(ramet_context_writable(items[i].context, (uint32_t)items[i].n, error));
        RAMET_TRY(ramet_context_reserve_tail(items[i].context, error));
    }
    return RAMET_OK;
}

/* The spans of the next run: as many tokens of each item in turn as fit. */
static uint32_t next_spans(ramet_engine *e, const ramet_batch_item *items, size_t n_items,
                           const struct progress *progress) {
    uint32_t n_spans = 0, room = e->options.chunk_tokens;
    for (size_t i = 0; i < n_items && room > 0; i++) {
        uint32_t left = (uint32_t)items[i].n - progress[i].done;
        if (left == 0) continue;
        uint32_t take = left < room ? left : room;
        e->spans[n_spans++] = (ramet_span){.context = items[i].context,
                                           .tokens = items[i].tokens + progress[i].done,
                                           .n = take,
                                           .pos = progress[i].start + progress[i].done};
        room -= take;
    }
    return n_spans;
}

/* Hands the rows of the run's only span to the caller. */
static void hand_out_rows(ramet_engine *e, const struct rows_wanted *wanted, const ramet_span *span) {
    uint32_t stride = ramet_forward_logits_stride(e->forward), n_vocab = e->weights->hparams.n_vocab;
    uint32_t first = wanted->from_pos > span->pos ? wanted->from_pos - span->pos : 0;
    for (; first < span->n; first += RAMET_ROWS) {
        uint32_t n = span->n - first < RAMET_ROWS ? span->n - first : RAMET_ROWS;
        ramet_forward_logits(e->forward, first, n, e->rows, stride);
        for (uint32_t i = 1; i < n && stride != n_vocab; i++) /* padding closed up: the caller gets [n][n_vocab] */
            memmove(e->rows + (size_t)i * n_vocab, e->rows + (size_t)i * stride, n_vocab * sizeof *e->rows);
        wanted->on_rows(wanted->user, span->pos + first, n, e->rows, n_vocab);
    }
}

/* Contexts that wait for the logits of rows [first, first + n): multiplied together, so that the output matrix, often the
 * largest of all, is read once for all branches of a batch. */
struct waiting {
    uint32_t first, n;
    float *logits[RAMET_ROWS];
};

static void serve(ramet_engine *e, struct waiting *w) {
    uint32_t stride = ramet_forward_logits_stride(e->forward);
    if (w->n > 0) ramet_forward_logits(e->forward, w->first, w->n, w->n == 1 ? w->logits[0] : e->rows, stride);
    for (uint32_t i = 0; i < w->n && w->n > 1; i++)
        memcpy(w->logits[i], e->rows + (size_t)i * stride, stride * sizeof *e->rows);
    w->n = 0;
}

static void queue_up(ramet_engine *e, struct waiting *w, uint32_t row, float *logits) {
    RAMET_ASSERT(logits, "a reserved row of logits is gone");
    if (w->n == RAMET_ROWS || row != w->first + w->n) serve(e, w);
    if (w->n == 0) w->first = row;
    w->logits[w->n++] = logits;
}

/* After a run: commits every span, and gives the contexts that are through their last logits. */
static void finish_run(ramet_engine *e, const ramet_batch_item *items, size_t n_items, struct progress *progress,
                       uint32_t n_spans) {
    struct waiting waiting = {0};
    uint32_t row = 0, s = 0;
    for (size_t i = 0; i < n_items && s < n_spans; i++) {
        if (e->spans[s].context != items[i].context) continue;
        const ramet_span *span = &e->spans[s++];
        ramet_context_commit(span->context, span->tokens, span->n);
        progress[i].done += span->n;
        row += span->n;
        if (progress[i].done == items[i].n)
            queue_up(e, &waiting, row - 1, ramet_context_logits_writable(span->context));
    }
    serve(e, &waiting);
}

/* All items, entered by the caller. The lock is taken run by run, so that a long prompt does not keep others waiting. */
static ramet_status run_items(ramet_engine *e, const ramet_batch_item *items, size_t n_items, struct progress *progress,
                              const struct rows_wanted *wanted, ramet_error *error) {
    ramet_status status = prepare(e, items, n_items, progress, error);
    if (status != RAMET_OK) { /* pages made ready ahead go back where that is possible */
        for (size_t i = 0; i < n_items; i++) ramet_context_cut(items[i].context, progress[i].start, NULL);
        return status;
    }
    for (uint32_t n_spans = 1; n_spans > 0;) {
        pthread_mutex_lock(&e->run_lock);
        n_spans = next_spans(e, items, n_items, progress);
        if (n_spans > 0) {
            ramet_forward_run(e->forward, e->spans, n_spans);
            if (wanted) hand_out_rows(e, wanted, &e->spans[0]);
            finish_run(e, items, n_items, progress, n_spans);
        }
        pthread_mutex_unlock(&e->run_lock);
    }
    return RAMET_OK;
}

static ramet_status extend(ramet_context *context, const int32_t *tokens, size_t n, const struct rows_wanted *wanted,
                           ramet_error *error) {
    RAMET_TRY(ramet_engine_use(context, error));
    ramet_batch_item item = {.context = context, .tokens = tokens, .n = n};
    struct progress progress;
    ramet_status status = run_items(ramet_engine_of(context), &item, 1, &progress, wanted, error);
    ramet_context_leave(context);
    return status;
}

ramet_status ramet_context_extend(ramet_context *context, const int32_t *tokens, size_t n, ramet_error *error) {
    return extend(context, tokens, n, NULL, error);
}

ramet_status ramet_context_extend_rows(ramet_context *context, const int32_t *tokens, size_t n, uint32_t from_pos,
                                       ramet_rows_fn on_rows, void *user, ramet_error *error) {
    struct rows_wanted wanted = {.from_pos = from_pos, .on_rows = on_rows, .user = user};
    return extend(context, tokens, n, &wanted, error);
}

ramet_status ramet_batch_extend(const ramet_batch_item *items, size_t n_items, ramet_error *error) {
    if (n_items == 0) return RAMET_OK;
    struct progress few[FEW_ITEMS], *more = n_items > FEW_ITEMS ? ramet_alloc(n_items, sizeof *more) : NULL;
    struct progress *progress = n_items > FEW_ITEMS ? more : few;
    if (!progress) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a batch of %zu", n_items);
    ramet_engine *e = NULL; /* asked of contexts that are entered: a closed one has none */
    ramet_status status = RAMET_OK;
    size_t entered = 0;
    while (entered < n_items && status == RAMET_OK) {
        status = ramet_engine_use(items[entered].context, error);
        if (status != RAMET_OK) break;
        ramet_engine *its = ramet_engine_of(items[entered++].context);
        if (!e) e = its;
        if (its != e) status = ramet_fail(error, RAMET_E_ARGUMENT, "contexts of different engines in one batch");
    }
    if (status == RAMET_OK) status = run_items(e, items, n_items, progress, NULL, error);
    while (entered-- > 0) ramet_context_leave(items[entered].context);
    free(more);
    return status;
}

/* ---- the rest ---- */

/* No context is longer. */
static uint32_t clip(size_t n_tokens) {
    return (uint32_t)(n_tokens < UINT32_MAX ? n_tokens : UINT32_MAX);
}

ramet_status ramet_context_truncate(ramet_context *context, uint32_t n, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    uint32_t length = ramet_context_length(context);
    ramet_status status = n <= length
                              ? ramet_context_cut(context, n, error)
                              : ramet_fail(error, RAMET_E_ARGUMENT, "cannot truncate %u tokens to %u", length, n);
    ramet_context_leave(context);
    return status;
}

ramet_status ramet_context_sync(ramet_context *context, const int32_t *tokens, size_t n, size_t *out_kept,
                                ramet_error *error) {
    *out_kept = 0;
    RAMET_TRY(ramet_context_enter(context, error));
    uint32_t length = ramet_context_length(context);
    uint32_t kept = ramet_context_common_prefix(context, tokens, clip(n));
    /* The logits after the last token are part of what is asked for: without them, that token runs again. */
    if (kept == n && kept > 0 && (length > kept || !ramet_context_has_logits(context))) kept--;
    ramet_batch_item item = {.context = context, .tokens = tokens + kept, .n = n - kept};
    ramet_status status = ramet_context_cut(context, kept, error);
    if (status == RAMET_OK) status = ramet_context_use(context, error); /* not before: what is cut is not read back */
    struct progress progress;
    if (status == RAMET_OK) status = run_items(ramet_engine_of(context), &item, 1, &progress, NULL, error);
    ramet_context_leave(context);
    if (status == RAMET_OK) *out_kept = kept;
    return status;
}

ramet_status ramet_context_tokens(ramet_context *context, uint32_t from, uint32_t n, int32_t *out, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    uint32_t length = ramet_context_length(context);
    ramet_status status = RAMET_OK;
    if (from > length || n > length - from)
        status = ramet_fail(error, RAMET_E_ARGUMENT, "tokens %u to %u of a context of %u", from, from + n, length);
    else
        ramet_context_read_tokens(context, from, n, out);
    ramet_context_leave(context);
    return status;
}

ramet_status ramet_context_logits(ramet_context *context, const float **out, ramet_error *error) {
    *out = NULL;
    RAMET_TRY(ramet_engine_use(context, error));
    *out = ramet_context_hold_logits(context);
    ramet_context_leave(context);
    if (!*out) return ramet_fail(error, RAMET_E_NOT_FOUND, "the context has no logits: extend it first");
    return RAMET_OK;
}

ramet_status ramet_context_pages(ramet_context *context, uint64_t *out_reachable, uint64_t *out_exclusive,
                                 ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_context_count_pages(context, out_reachable, out_exclusive);
    ramet_context_leave(context);
    return RAMET_OK;
}

ramet_status ramet_context_spill(ramet_context *context, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_write_out(context, error);
    ramet_context_leave(context);
    return status;
}

/* ---- prefixes ---- */

ramet_status ramet_prefix_retain(ramet_context *context, const ramet_prefix_options *options, ramet_error *error) {
    ramet_retain how = options ? (ramet_retain){.owner = options->owner, .is_pinned = options->pin} : (ramet_retain){0};
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_tree_retain(context, &how, error);
    ramet_context_leave(context);
    return status;
}

ramet_status ramet_prefix_unpin(ramet_engine *engine, const char *owner, const int32_t *tokens, size_t n,
                                ramet_error *error) {
    return ramet_tree_unpin(engine->cache, owner, tokens, clip(n), error);
}

ramet_status ramet_prefix_match(ramet_engine *engine, const char *owner, const int32_t *tokens, size_t n,
                                ramet_context **out, size_t *out_matched, ramet_error *error) {
    uint32_t matched = 0;
    *out_matched = 0;
    RAMET_TRY(ramet_tree_match(engine->cache, owner, tokens, clip(n), out, &matched, error));
    *out_matched = matched;
    return RAMET_OK;
}
