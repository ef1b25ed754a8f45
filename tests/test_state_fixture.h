/* test_state_fixture.h - what the tests of the state room share: a cache, and contexts whose bytes obey a small law.
 *
 * The bytes of a position are a hash of all tokens up to it, as KV data is a function of them. So whatever was forked,
 * cut, matched or evicted on the way, one look at a context tells whether any position is not its own. */
#ifndef RAMET_TEST_STATE_FIXTURE_H
#define RAMET_TEST_STATE_FIXTURE_H

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

enum { POSITION_BYTES = 8, N_VOCAB = 4 };

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

static inline ramet_cache *open_cache(uint32_t page_tokens, uint32_t n_slots, uint32_t n_tree_pages) {
    ramet_cache *cache;
    uint64_t page_bytes = page_tokens * POSITION_BYTES;
    ramet_cache_options options = {.page_tokens = page_tokens,
                                   .page_bytes = page_bytes,
                                   .n_ctx = 1 << 21,
                                   .n_vocab = N_VOCAB,
                                   .budget_bytes = n_slots * page_bytes,
                                   .tree_budget_bytes = n_tree_pages * (page_bytes + N_VOCAB * sizeof(float))};
    assert_ok(ramet_cache_create(&options, &cache, error));
    return cache;
}

static inline ramet_context *open_context(ramet_cache *cache) {
    ramet_context *context;
    assert_ok(ramet_cache_context_create(cache, &context, error));
    return context;
}

static inline ramet_context *fork_of(ramet_context *context) {
    ramet_context *fork;
    assert_ok(ramet_context_share(context, &fork, error));
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

/* What an engine does to extend; the logits too are a function of the tokens. */
static inline ramet_status try_extend(ramet_context *context, const int32_t *tokens, uint32_t n, ramet_error *error) {
    RAMET_TRY(ramet_context_writable(context, n, error));
    write_positions(context, law_of(context, ramet_context_length(context)), tokens, n);
    ramet_context_commit(context, tokens, n);
    float *row = ramet_context_logits_writable(context);
    if (!row) return ramet_fail(error, RAMET_E_NO_MEMORY, "no row");
    uint64_t h = law_of(context, ramet_context_length(context));
    for (uint32_t v = 0; v < N_VOCAB; v++) row[v] = (float)(h >> (16 * v) & 0xffff);
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

/* Whether each position, and the logits if there are any, are what the tokens say. */
static inline bool is_lawful(const ramet_context *context) {
    uint32_t page_tokens = ramet_cache_get_options(ramet_context_cache(context))->page_tokens;
    uint64_t h = 1;
    for (uint32_t pos = 0; pos < ramet_context_length(context); pos++) {
        int32_t token;
        ramet_context_read_tokens(context, pos, 1, &token);
        h = law(h, token);
        const uint8_t *page = ramet_context_page_read(context, pos);
        if (memcmp(page + pos % page_tokens * POSITION_BYTES, &h, sizeof h) != 0) return false;
    }
    const float *logits = ramet_context_peek_logits(context);
    for (uint32_t v = 0; logits && v < N_VOCAB; v++)
        if (logits[v] != (float)(h >> (16 * v) & 0xffff)) return false;
    return true;
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
