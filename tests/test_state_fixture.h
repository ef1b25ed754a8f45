/* test_state_fixture.h - what the tests of the state room share: a cache, and contexts whose bytes obey a small law.
 *
 * The bytes of a position are a hash of all tokens up to it, as KV data is a function of them. So whatever was forked,
 * cut, matched or evicted on the way, one look at a context tells whether any position is not its own. */
#ifndef RAMET_TEST_STATE_FIXTURE_H
#define RAMET_TEST_STATE_FIXTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nanosleep */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "state/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POSITION_BYTES = 8, N_VOCAB = 4, ROW_BYTES = N_VOCAB * sizeof(float) };

#define assert_fails(wanted, expression)                                                                               \
    do {                                                                                                               \
        ramet_error error_ = {0};                                                                                      \
        ramet_error *const error = &error_;                                                                            \
        ramet_status status_ = (expression);                                                                           \
        if (status_ != (wanted)) fail_msg("%s: %s instead of %s", #expression, ramet_status_name(status_), #wanted);   \
        assert_int_equal(error_.code, (wanted));                                                                       \
        assert_true(strlen(error_.message) > 0);                                                                       \
    } while (0)

static inline uint64_t draw_from(uint64_t *rng) {
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

/* As many pages, and beside them what is less than a page more: a few rows of logits. */
static inline ramet_cache_options options_of(uint32_t page_tokens, uint32_t n_slots, uint32_t n_tree_pages) {
    uint64_t page_bytes = page_tokens * POSITION_BYTES;
    return (ramet_cache_options){.page_tokens = page_tokens,
                                 .page_bytes = page_bytes,
                                 .n_ctx = 1 << 21,
                                 .n_vocab = N_VOCAB,
                                 .budget_bytes = n_slots * page_bytes + page_bytes - ROW_BYTES,
                                 .tree_budget_bytes = n_tree_pages * (page_bytes + ROW_BYTES)};
}

static inline ramet_cache *open_cache_of(const ramet_cache_options *options) {
    ramet_cache *cache;
    assert_ok(ramet_cache_create(options, &cache, error));
    return cache;
}

static inline ramet_cache *open_cache(uint32_t page_tokens, uint32_t n_slots, uint32_t n_tree_pages) {
    ramet_cache_options options = options_of(page_tokens, n_slots, n_tree_pages);
    return open_cache_of(&options);
}

/* ---- contexts: what makes one here also enters it, and uses it until it is closed or left ---- */

static inline void enter_and_use(ramet_context *context) {
    assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_context_use(context, error));
}

static inline ramet_context *open_context(ramet_cache *cache) {
    ramet_context *context;
    assert_ok(ramet_cache_context_create(cache, &context, error));
    enter_and_use(context);
    return context;
}

static inline ramet_context *fork_of(ramet_context *context) {
    ramet_context *fork;
    assert_ok(ramet_context_share(context, &fork, error));
    enter_and_use(fork);
    return fork;
}

static inline void close_contexts(ramet_context **contexts, size_t n) {
    for (size_t i = 0; i < n; i++) ramet_context_destroy(&contexts[i]);
}

static inline uint64_t law(uint64_t before, int32_t token) {
    uint64_t h = (before ^ (uint32_t)token) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* The law's value after the tokens of the context. */
static inline uint64_t law_of(const ramet_context *context, uint32_t n) {
    uint64_t h = 1;
    for (uint32_t pos = 0; pos < n; pos++) {
        int32_t token;
        ramet_context_read_tokens(context, pos, 1, &token);
        h = law(h, token);
    }
    return h;
}

static inline void write_positions(ramet_context *context, uint64_t h, const int32_t *tokens, uint32_t n) {
    uint32_t page_tokens = ramet_cache_get_options(ramet_context_cache(context))->page_tokens;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = ramet_context_length(context) + i;
        h = law(h, tokens[i]);
        memcpy(ramet_context_page_write(context, pos) + pos % page_tokens * POSITION_BYTES, &h, sizeof h);
    }
}

static inline void make_logits(uint64_t h, float *row) {
    for (uint32_t v = 0; v < N_VOCAB; v++) row[v] = (float)(h >> (16 * v) & 0xffff);
}

/* Of any size. Each byte is another one than that of a page there. */
static inline void make_state(uint64_t h, uint8_t *out, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) out[i] = (uint8_t)(~h >> 8 * (i % 8));
}

static inline bool is_state(uint64_t h, const uint8_t *state, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        if (state[i] != (uint8_t)(~h >> 8 * (i % 8))) return false;
    return true;
}

/* What an engine does to extend; the logits and the state, if there is one, are functions of the tokens, too. */
static inline ramet_status try_extend(ramet_context *context, const int32_t *tokens, uint32_t n, ramet_error *error) {
    uint64_t state_bytes = ramet_cache_get_options(ramet_context_cache(context))->state_bytes;
    if (n == 0) return RAMET_OK;
    RAMET_TRY(ramet_context_reserve_tail(context, error));
    RAMET_TRY(ramet_context_writable(context, n, error));
    uint64_t before = law_of(context, ramet_context_length(context)), h = before;
    write_positions(context, before, tokens, n);
    for (uint32_t i = 0; i < n; i++) h = law(h, tokens[i]);
    if (state_bytes > 0) {
        make_state(h, ramet_context_state_writable(context), state_bytes);
        const uint8_t *old = ramet_context_peek_state(context); /* while the new one is written */
        if (old && !is_state(before, old, state_bytes))
            return ramet_fail(error, RAMET_E_INVARIANT, "K10: the old state");
    }
    ramet_context_commit(context, tokens, n);
    if (state_bytes > 0) ramet_context_state_install(context);
    float *row = ramet_context_logits_writable(context);
    if (!row) return ramet_fail(error, RAMET_E_NO_MEMORY, "no row");
    make_logits(h, row);
    return RAMET_OK;
}

static inline void extend(ramet_context *context, const int32_t *tokens, uint32_t n) {
    assert_ok(try_extend(context, tokens, n, error));
}

/* `n` tokens of a text that has a number. */
static inline void extend_with(ramet_context *context, uint32_t n, int32_t text) {
    int32_t *tokens = calloc(n + 1, sizeof *tokens);
    for (uint32_t i = 0; i < n; i++) tokens[i] = text * 1000 + (int32_t)(ramet_context_length(context) + i);
    extend(context, tokens, n);
    free(tokens);
}

/* Whether each position, and the logits and the state if there are any, are what the tokens say. */
static inline bool is_lawful(const ramet_context *context) {
    const ramet_cache_options *options = ramet_cache_get_options(ramet_context_cache(context));
    uint64_t h = 1;
    for (uint32_t pos = 0; pos < ramet_context_length(context); pos++) {
        int32_t token;
        ramet_context_read_tokens(context, pos, 1, &token);
        h = law(h, token);
        const uint8_t *page = ramet_context_page_read(context, pos);
        if (memcmp(page + pos % options->page_tokens * POSITION_BYTES, &h, sizeof h) != 0) return false;
    }
    const float *logits = ramet_context_peek_logits(context);
    const uint8_t *state = ramet_context_peek_state(context);
    float wanted[N_VOCAB];
    make_logits(h, wanted);
    return (!logits || memcmp(logits, wanted, sizeof wanted) == 0) &&
           (!state || is_state(h, state, options->state_bytes));
}

/* Keeps it for everybody. */
static inline ramet_status retain(ramet_context *context, ramet_error *error) {
    return ramet_tree_retain(context, &(ramet_retain){.owner = NULL}, error);
}

static inline ramet_engine_stats stats_of(ramet_cache *cache) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(cache, &stats);
    return stats;
}

static inline void check(ramet_cache *cache) {
    assert_ok(ramet_cache_check(cache, error));
}

#endif
