/* test_store_scene.h - a cache in use, a sound small file, and whether a refused file has left all of it as it was. */
#ifndef RAMET_TEST_STORE_SCENE_H
#define RAMET_TEST_STORE_SCENE_H

#include "test_store_fixture.h"

static const shape small_shape = {RAMET_KV_F16, 1, 1, 8};

/* A cache in use: a context, a fork of it, an entry of the tree; and a sound small file. */
typedef struct scene {
    world w;
    content bystander, saved;
    ramet_context *context, *fork;
    bytes file;
    bytes before; /* all that the cache holds: state_of */
} scene;

static inline void put(bytes *b, const void *data, size_t n) {
    b->data = realloc(b->data, b->n + n);
    assert_non_null(b->data);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void put_context(bytes *b, const world *w, ramet_context *context) {
    enter(context);
    uint32_t n = ramet_context_length(context);
    int32_t *tokens = calloc(n, sizeof *tokens);
    ramet_context_read_tokens(context, 0, n, tokens);
    put(b, tokens, n * sizeof *tokens);
    free(tokens);
    for (uint32_t pos = 0; pos < n; pos += w->layout.page_tokens) {
        const uint8_t *page = ramet_context_page_read(context, pos);
        put(b, &page, sizeof page); /* it is where it was */
        put(b, page, w->layout.page_bytes);
    }
    put(b, ramet_context_peek_logits(context), N_VOCAB * sizeof(float));
    ramet_context_leave(context);
}

static inline void put_entry(void *state, const ramet_retain *how, const int32_t *tokens, uint32_t n) {
    put(state, &how->is_pinned, sizeof how->is_pinned);
    put(state, how->owner ? how->owner : "", how->owner ? strlen(how->owner) : 0);
    put(state, &n, sizeof n);
    put(state, tokens, n * sizeof *tokens);
}

/* Counts, every byte of the contexts and where it lies, and the tree's entries in the order in which they would go. Pages may have been
 * given out meanwhile, when all of them are back. */
static inline bytes state_of(scene *s) {
    bytes b = {0};
    ramet_engine_stats stats;
    ramet_cache_get_stats(s->w.cache, &stats);
    assert_int_equal(stats.pages_allocated - stats.pages_freed, stats.pages_live);
    stats.pages_allocated = stats.pages_freed = 0;
    put(&b, &stats, sizeof stats);
    put_context(&b, &s->w, s->context);
    put_context(&b, &s->w, s->fork);
    assert_ok(ramet_tree_each(s->w.cache, put_entry, &b, error));
    return b;
}

/* What there is now is what should be there from now on. */
static inline void remember_state(scene *s) {
    free(s->before.data);
    s->before = state_of(s);
}

static inline void open_scene_of_pages(scene *s, uint32_t page_tokens, shape shape_, uint32_t n_tokens,
                                       const ramet_snapshot_options *options) {
    open_world(&s->w, shape_, page_tokens, 4096, 512);
    s->bystander = make_content(&s->w.layout, 40);
    s->saved = make_content(&s->w.layout, n_tokens);
    s->context = make_context(&s->w, &s->bystander);
    assert_ok(ramet_context_enter(s->context, error));
    assert_ok(ramet_context_share(s->context, &s->fork, error));
    ramet_context_leave(s->context);
    retain(s->context);
    ramet_context *source = make_context(&s->w, &s->saved);
    assert_ok(save(&s->w, source, options, in_directory("sound.ramet"), NULL, error));
    close_context(&source);
    s->file = read_file(in_directory("sound.ramet"));
    s->before = state_of(s);
}

static inline void open_scene(scene *s, shape shape_, uint32_t n_tokens, const ramet_snapshot_options *options) {
    open_scene_of_pages(s, 16, shape_, n_tokens, options);
}

static inline void assert_untouched(scene *s) {
    bytes after = state_of(s);
    assert_int_equal(after.n, s->before.n);
    assert_memory_equal(after.data, s->before.data, after.n);
    free(after.data);
}

static inline void close_scene(scene *s) {
    assert_untouched(s);
    assert_ok(ramet_cache_check(s->w.cache, error));
    assert_holds(&s->w, s->context, &s->bystander);
    assert_holds(&s->w, s->fork, &s->bystander);
    /* and a sound file still restores, as if nothing had been tried */
    ramet_context *back;
    assert_ok(restore(&s->w, in_directory("sound.ramet"), &back, error));
    assert_holds(&s->w, back, &s->saved);
    close_context(&back);
    close_context(&s->context);
    close_context(&s->fork);
    free_content(&s->bystander);
    free_content(&s->saved);
    free(s->file.data);
    free(s->before.data);
    close_world(&s->w);
}

static size_t n_refused;

/* Restoring is a refusal that touches nothing; returns which. */
static inline ramet_status restore_refused(scene *s, const char *path, size_t at) {
    ramet_context *back;
    ramet_error error = {0};
    ramet_status status = restore(&s->w, path, &back, &error);
    if (status == RAMET_OK) fail_msg("a file damaged at byte %zu was restored", at);
    assert_null(back);
    assert_int_equal(error.code, status);
    assert_true(error.message[0] != 0);
    assert_untouched(s);
    n_refused++;
    return status;
}

/* So is verifying, with the same verdict. */
static inline ramet_status refused(scene *s, const char *path, size_t at) {
    ramet_status status = restore_refused(s, path, at);
    assert_status(status, ramet_store_verify(path, NULL, NULL));
    return status;
}

#endif
