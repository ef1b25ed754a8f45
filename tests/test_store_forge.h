/* test_store_forge.h - files of a known content, what somebody without their key can make of them, and whether a cache
 * has refused one without a trace. */
#ifndef RAMET_TEST_STORE_FORGE_H
#define RAMET_TEST_STORE_FORGE_H

#include "test_store_bytes.h"

enum { CHUNK = RAMET_SNAPSHOT_CHUNK_BYTES };

static const shape one_chunk = {RAMET_KV_F16, 1, 1, 8};
static const shape rows_of_8_kib = {RAMET_KV_F32, 4, 4, 64}; /* 150 tokens: 5 chunks */

static uint8_t context_key[RAMET_KEY_BYTES];
static const ramet_snapshot_policy with_key = {.context_key = context_key};

static inline void draw_key(void) {
    draw_bytes(context_key, sizeof context_key);
}

/* ---- a cache that is offered files ---- */

typedef struct victim {
    world w;
    content saved;
    bytes file; /* sound, made under the policy of the moment */
} victim;

static inline bytes save_to_bytes(const world *w, const content *c, const ramet_snapshot_options *options) {
    const char *path = in_directory("sound.ramet");
    ramet_context *context = make_context(w, c);
    assert_ok(save(w, context, options, path, NULL, error));
    close_context(&context);
    return read_file(path);
}

static inline void open_victim(victim *v, shape s, uint32_t n_tokens, const ramet_snapshot_options *options) {
    open_world(&v->w, s, 16, 4096, 512);
    v->saved = make_content(&v->w.layout, n_tokens);
    v->file = save_to_bytes(&v->w, &v->saved, options);
}

static inline const char *offer(const bytes *f) {
    const char *path = in_directory("offered.ramet");
    write_file(path, f->data, f->n);
    return path;
}

/* The control of every refusal: it is taken when nothing is wrong with it. */
static inline void assert_taken(victim *v, const bytes *f) {
    const char *path = offer(f);
    ramet_context *back;
    assert_ok(ramet_store_verify(path, policy, error));
    assert_ok(restore(&v->w, path, &back, error));
    assert_holds(&v->w, back, &v->saved);
    close_context(&back);
}

static inline void close_victim(victim *v) {
    assert_taken(v, &v->file);
    free_content(&v->saved);
    free(v->file.data);
    close_world(&v->w);
}

/* AT_ONCE: of the header alone, with no memory but for it, and before any page. READING: when a chunk is read; the pages
 * go back. */
typedef enum moment { AT_ONCE, READING } moment;

static inline ramet_status refuse_quietly(victim *v, const char *path, moment when, ramet_error *out) {
    ramet_engine_stats before, after;
    ramet_context *back;
    ramet_cache_get_stats(v->w.cache, &before);
    if (when == AT_ONCE) ramet_alloc_fail_after(2);
    ramet_status status = restore(&v->w, path, &back, out);
    ramet_alloc_fail_after(0);
    assert_null(back);
    ramet_cache_get_stats(v->w.cache, &after);
    if (when == READING) {
        assert_int_equal(after.pages_allocated - before.pages_allocated, after.pages_freed - before.pages_freed);
        after.pages_allocated = before.pages_allocated;
        after.pages_freed = before.pages_freed;
    }
    assert_memory_equal(&before, &after, sizeof after);
    return status;
}

/* Refused by restoring, by verifying, and at once also by whoever wants the tokens alone; each names the file. */
static inline ramet_status refused(victim *v, const bytes *f, moment when) {
    const char *path = offer(f);
    ramet_error said = {0};
    ramet_status status = refuse_quietly(v, path, when, &said);
    assert_int_not_equal(status, RAMET_OK);
    assert_int_equal(said.code, status);
    if (!strstr(said.message, path)) fail_msg("\"%s\" does not name %s", said.message, path);
    assert_status(status, ramet_store_verify(path, policy, &said));
    if (!strstr(said.message, path)) fail_msg("\"%s\" does not name %s", said.message, path);
    if (when == READING) return status;
    int32_t *tokens;
    uint32_t n;
    assert_status(status, ramet_store_read_tokens(path, policy, &tokens, &n, NULL));
    assert_null(tokens);
    return status;
}

static inline void refuse(victim *v, const bytes *f, ramet_status expected, moment when) {
    assert_status(expected, refused(v, f, when));
}

/* ---- forging ---- */

/* A plain file of one chunk as version 1 had it: another version, no generation. */
static inline void make_version_1(bytes *f) {
    enum { FIELD = 8 + 8 };
    size_t at = field_of(f, 0x800d) - 8;
    memmove(f->data + at, f->data + at + FIELD, f->n - at - FIELD);
    f->n -= FIELD;
    poke_u32(f, 8, 1);
    poke_u32(f, 12, peek_u32(f, 12) - FIELD);
    poke_u32(f, 24, peek_u32(f, 24) - FIELD);
    poke_u32(f, 104, peek_u32(f, 104) - 1);
    sum_header(f);
    sum_chunk(f);
}

#endif
