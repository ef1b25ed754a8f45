/* tail.c - what a context has after its last token: the row of logits, and the recurrent state.
 *
 *   step      reserve ──> spare          the old tail can still be read
 *             commit  ──> tail dropped   ours alone: it is the spare one for next time
 *             install ──> tail = spare   from here on it is never written (K10)
 *
 * Owns K10: a tail block is of as many tokens as its context or entry has, and is not written once it is shared. A fork
 * and an entry share it; nothing copies it. Refuses to know what its bytes mean. */
#include "state/internal.h"

/* Takes the context's use of the block along. Lock held. */
static void drop_used(ramet_context *context, ramet_block **place) {
    if (context->is_used) ramet_block_unuse(context->cache, *place);
    ramet_block_drop(context->cache, place, RAMET_BY_CONTEXTS);
}

void ramet_context_release_held(ramet_context *context) {
    if (!context->holds_logits) return;
    context->holds_logits = false;
    ramet_block_unuse(context->cache, context->tail[RAMET_TAIL_OF(RAMET_LOGITS)]);
}

void ramet_context_forget_tail(ramet_context *context, ramet_kind kind, bool keep_spare) {
    ramet_block **tail = &context->tail[RAMET_TAIL_OF(kind)], **spare = &context->spare[RAMET_TAIL_OF(kind)];
    if (!*tail) return;
    if (kind == RAMET_LOGITS) ramet_context_release_held(context);
    bool is_ours = (*tail)->counts.refcount == 1;
    if (keep_spare && is_ours && !*spare) {
        *spare = *tail;
        *tail = NULL;
    } else {
        drop_used(context, tail);
    }
}

void ramet_context_forget_spares(ramet_context *context) {
    for (int i = 0; i < RAMET_TAILS; i++)
        if (context->spare[i]) drop_used(context, &context->spare[i]);
}

/* Lock held. A state is always written beside the old one; a row of logits after it is dropped, if nobody else has it:
 * as things are, or as they would be without the prefix tree. */
static bool needs_spare(const ramet_context *context, ramet_kind kind, ramet_view view) {
    const ramet_block *tail = context->tail[RAMET_TAIL_OF(kind)];
    if (context->cache->blocks[kind].bytes == 0 || context->spare[RAMET_TAIL_OF(kind)]) return false;
    if (kind == RAMET_STATE || !tail) return true;
    return (view == RAMET_AS_IS ? tail->counts.refcount : tail->counts.holds[RAMET_BY_CONTEXTS]) > 1;
}

/* Lock held; room was made. */
static void take_spare(ramet_context *context, ramet_kind kind) {
    ramet_block *block = ramet_block_create(context->cache, kind);
    ramet_block_use(context->cache, block);
    context->spare[RAMET_TAIL_OF(kind)] = block;
}

/* Lock held, but perhaps not all the time. */
static ramet_status reserve(ramet_context *context, ramet_kind kind, ramet_error *error) {
    while (needs_spare(context, kind, RAMET_AS_IS)) {
        ramet_need need = {.kind = kind, .n = 1, .n_without_tree = needs_spare(context, kind, RAMET_WITHOUT_TREE)};
        if (ramet_room_fits(context->cache, need))
            take_spare(context, kind);
        else
            RAMET_TRY(ramet_room_make(context->cache, need, error));
    }
    return RAMET_OK;
}

ramet_status ramet_context_reserve_tail(ramet_context *context, ramet_error *error) {
    ramet_cache *cache = context->cache;
    ramet_status status = ramet_context_check_alive(context, error);
    RAMET_TRY(status);
    RAMET_ASSERT(context->is_used, "a tail is reserved by a context that is not in use");
    ramet_cache_lock(cache);
    for (int i = 0; i < RAMET_TAILS && status == RAMET_OK; i++) status = reserve(context, RAMET_KIND_OF(i), error);
    ramet_cache_unlock(cache);
    return status;
}

/* Lock held. */
static uint8_t *install(ramet_context *context, ramet_kind kind) {
    ramet_block **tail = &context->tail[RAMET_TAIL_OF(kind)], **spare = &context->spare[RAMET_TAIL_OF(kind)];
    ramet_context_forget_tail(context, kind, true);
    if (!*spare && ramet_room_fits(context->cache, (ramet_need){.kind = kind, .n = 1})) take_spare(context, kind);
    *tail = *spare;
    *spare = NULL;
    if (!*tail) return NULL;
    (*tail)->n_tokens = context->length;
    return ramet_block_data(context->cache, *tail);
}

float *ramet_context_logits_writable(ramet_context *context) {
    ramet_cache *cache = context->cache;
    RAMET_ASSERT(context->is_used, "logits are written by a context that is not in use");
    if (cache->blocks[RAMET_LOGITS].bytes == 0) return NULL;
    ramet_cache_lock(cache);
    uint8_t *row = install(context, RAMET_LOGITS);
    ramet_cache_unlock(cache);
    return (float *)(void *)row;
}

uint8_t *ramet_context_state_writable(ramet_context *context) {
    const ramet_block *spare = context->spare[RAMET_TAIL_OF(RAMET_STATE)];
    RAMET_ASSERT(spare, "a state is written that was not reserved");
    return ramet_block_data(context->cache, spare);
}

void ramet_context_state_install(ramet_context *context) {
    RAMET_ASSERT(context->spare[RAMET_TAIL_OF(RAMET_STATE)], "a state is installed that was not reserved");
    ramet_cache_lock(context->cache);
    /* One that is still there is of the same tokens: it goes, not becoming the spare that is about to be installed. */
    ramet_context_forget_tail(context, RAMET_STATE, false);
    install(context, RAMET_STATE);
    ramet_cache_unlock(context->cache);
}

static const uint8_t *peek(const ramet_context *context, ramet_kind kind) {
    const ramet_block *block = context->tail[RAMET_TAIL_OF(kind)];
    return block ? ramet_block_data(context->cache, block) : NULL;
}

const float *ramet_context_peek_logits(const ramet_context *context) {
    return (const float *)(const void *)peek(context, RAMET_LOGITS);
}
const uint8_t *ramet_context_peek_state(const ramet_context *context) {
    return peek(context, RAMET_STATE);
}
bool ramet_context_has_logits(const ramet_context *context) {
    return context->tail[RAMET_TAIL_OF(RAMET_LOGITS)] != NULL;
}
bool ramet_context_has_state(const ramet_context *context) {
    return context->tail[RAMET_TAIL_OF(RAMET_STATE)] != NULL;
}

const float *ramet_context_hold_logits(ramet_context *context) {
    ramet_block *row = context->tail[RAMET_TAIL_OF(RAMET_LOGITS)];
    if (row && !context->holds_logits) {
        ramet_cache_lock(context->cache);
        ramet_block_use(context->cache, row);
        context->holds_logits = true;
        ramet_cache_unlock(context->cache);
    }
    return ramet_context_peek_logits(context);
}
