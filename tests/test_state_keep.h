/* test_state_keep.h - what the tests of the prefix tree share: keeping, matching, touching in a line each, and the entries
 * as a text. After test_state_fixture.h. */
#ifndef RAMET_TEST_STATE_KEEP_H
#define RAMET_TEST_STATE_KEEP_H

#include "test_state_fixture.h"

/* The context that shares the match is used until it is closed. */
static inline uint32_t match_as(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n,
                                ramet_context **out) {
    uint32_t matched;
    assert_ok(ramet_tree_match(cache, owner, tokens, n, out, &matched, error));
    assert_int_equal(ramet_context_length(*out), matched);
    enter_and_use(*out);
    assert_true(is_lawful(*out));
    return matched;
}

static inline uint32_t match(ramet_cache *cache, const int32_t *tokens, uint32_t n, ramet_context **out) {
    return match_as(cache, NULL, tokens, n, out);
}

/* Matches and closes again: for what it does to the order in which entries go. */
static inline uint32_t touch_as(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n) {
    ramet_context *context;
    uint32_t matched = match_as(cache, owner, tokens, n, &context);
    ramet_context_destroy(&context);
    return matched;
}

static inline uint32_t touch(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    return touch_as(cache, NULL, tokens, n);
}

/* Without a tail. */
static inline ramet_context *open_mute(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    ramet_context *context = open_context(cache);
    assert_ok(ramet_context_writable(context, n, error));
    write_positions(context, 1, tokens, n);
    ramet_context_commit(context, tokens, n);
    return context;
}

static inline void keep_context(ramet_context *context, const ramet_retain *how) {
    ramet_cache *cache = ramet_context_cache(context);
    assert_ok(ramet_tree_retain(context, how, error));
    ramet_context_destroy(&context);
    check(cache);
}

static inline ramet_context *open_with(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    ramet_context *context = open_context(cache);
    extend(context, tokens, n);
    return context;
}

static inline void keep_as(ramet_cache *cache, const ramet_retain *how, const int32_t *tokens, uint32_t n) {
    keep_context(open_with(cache, tokens, n), how);
}

static inline void keep(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    keep_as(cache, NULL, tokens, n);
}

static inline void keep_mute(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    keep_context(open_mute(cache, tokens, n), NULL);
}

/* `n` tokens (256 at most) that begin with `first` and are nobody else's; borrowed for a while. */
static inline const int32_t *text(int32_t first, uint32_t n) {
    static int32_t tokens[64][256];
    static unsigned turn;
    int32_t *out = tokens[turn++ % 64];
    for (uint32_t i = 0; i < n; i++) out[i] = first * 10000 + (int32_t)i;
    out[0] = first;
    return out;
}

/* The entries in the order in which they would go, as "owner:tokens" each: "1 2 3, bob:4"; pinned ones with a "!", and of
 * long ones the first token and the length, as "7..48". */
typedef struct listing {
    char text[2000];
    size_t n;
} listing;

static inline void say(listing *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    l->n += (size_t)vsnprintf(l->text + l->n, sizeof l->text - l->n, format, arguments);
    va_end(arguments);
    assert_true(l->n < sizeof l->text);
}

static inline void list_entry(void *user, const ramet_retain *how, const int32_t *tokens, uint32_t n) {
    listing *l = user;
    say(l, "%s%s%s%s", l->n > 0 ? ", " : "", how->is_pinned ? "!" : "", how->owner ? how->owner : "",
        how->owner ? ":" : "");
    if (n > 5)
        say(l, "%d..%u", tokens[0], n);
    else
        for (uint32_t i = 0; i < n; i++) say(l, "%s%d", i > 0 ? " " : "", tokens[i]);
}

static inline void assert_entries_at(ramet_cache *cache, const char *wanted, int line) {
    listing l = {.n = 0};
    assert_ok(ramet_tree_each(cache, list_entry, &l, error));
    if (strcmp(l.text, wanted) != 0) fail_msg("line %d: the entries are \"%s\", not \"%s\"", line, l.text, wanted);
    check(cache);
}
#define assert_entries(cache, wanted) assert_entries_at(cache, wanted, __LINE__)

/* How many tokens the entry has that was used last. */
static inline uint32_t length_of_newest(const ramet_cache *cache) {
    const ramet_entry *newest = NULL;
    for (size_t i = 0; i < cache->tree.n_heap; i++)
        if (!newest || cache->tree.heap[i]->last_use > newest->last_use) newest = cache->tree.heap[i];
    return newest->length;
}

static inline void evict(ramet_cache *cache) {
    ramet_cache_lock(cache);
    assert_true(ramet_tree_evict(cache));
    ramet_cache_unlock(cache);
}

#endif
