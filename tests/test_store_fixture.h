/* test_store_fixture.h - what the tests of the store room share: a cache, contexts of known random content, files to
 * break. The content is the reference: tokens, exported rows and logits, kept beside the context that is made from
 * them. */
#ifndef RAMET_TEST_STORE_FIXTURE_H
#define RAMET_TEST_STORE_FIXTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp, pwrite, popen */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/pool.h"
#include "store/header.h"
#include "store/snapshot.h"
#include "store/spill.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_VOCAB = 37 };

static uint64_t rng_state;

static inline uint64_t draw(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state * 0x2545f4914f6cdd1dull;
}

static inline uint32_t draw_below(uint32_t n) {
    return (uint32_t)((draw() >> 32) % n);
}

static inline void draw_bytes(void *out, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] = (uint8_t)(draw() >> 56);
}

static inline void seed_from(int argc, char **argv) {
    const char *text = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240607;
    printf("seed %llu; replay: %s %llu\n", (unsigned long long)seed, argv[0], (unsigned long long)seed);
    rng_state = seed * 2 + 1;
}

#define assert_status(expected, actual) assert_string_equal(ramet_status_name(expected), ramet_status_name(actual))

/* ---- a cache for one shape ---- */

typedef struct shape {
    int precision;
    uint32_t n_layers, n_kv_heads, head_dim;
} shape;

typedef struct world {
    ramet_kv_layout layout;
    ramet_snapshot_identity identity;
    ramet_spill *spill; /* NULL: nothing is spilled */
    ramet_cache *cache;
} world;

/* `spill_directory` may be NULL. Beside its pages the cache has room for less than a page more: a few rows of logits. */
static inline void open_spilling_world(world *w, shape s, uint32_t page_tokens, uint32_t n_ctx, uint32_t n_pages,
                                       const char *spill_directory) {
    static const uint8_t spill_key[RAMET_KEY_BYTES] = {3, 1, 4};
    memset(w, 0, sizeof *w);
    assert_true(ramet_kv_layout_init(&w->layout, s.precision, s.n_layers, s.n_kv_heads, s.head_dim, page_tokens));
    w->identity = (ramet_snapshot_identity){.model_name = "tiny model",
                                            .arch = "llama",
                                            .numerics_id = "1-0123456789abcdef01234567890abc",
                                            .n_vocab = N_VOCAB,
                                            .layout = &w->layout};
    for (int i = 0; i < 32; i++) {
        w->identity.weights_sha256[i] = (uint8_t)(i * 7 + 1);
        w->identity.tokenizer_sha256[i] = (uint8_t)(i * 11 + 3);
    }
    if (spill_directory) assert_ok(ramet_spill_create(spill_directory, spill_key, NULL, &w->spill, error));
    ramet_pager pager = w->spill ? ramet_spill_pager(w->spill) : (ramet_pager){0};
    ramet_cache_options options = {.page_tokens = page_tokens,
                                   .page_bytes = w->layout.page_bytes,
                                   .n_ctx = n_ctx,
                                   .n_vocab = N_VOCAB,
                                   .budget_bytes = (uint64_t)(n_pages + 1) * w->layout.page_bytes - 1,
                                   .tree_budget_bytes = (uint64_t)n_pages * w->layout.page_bytes,
                                   .pager = w->spill ? &pager : NULL};
    assert_ok(ramet_cache_create(&options, &w->cache, error));
}

static inline void open_world(world *w, shape s, uint32_t page_tokens, uint32_t n_ctx, uint32_t n_pages) {
    open_spilling_world(w, s, page_tokens, n_ctx, n_pages, NULL);
}

static inline void close_world(world *w) {
    assert_ok(ramet_cache_check(w->cache, error));
    ramet_cache_destroy(&w->cache);
    ramet_spill_destroy(&w->spill);
}

static inline ramet_status try_enter(ramet_context *context, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_use(context, error);
    if (status != RAMET_OK) ramet_context_leave(context);
    return status;
}

/* And uses it, until it is left. */
static inline void enter(ramet_context *context) {
    assert_ok(try_enter(context, error));
}

/* Keeps it for everybody; it is left. */
static inline void retain(ramet_context *context) {
    assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_tree_retain(context, NULL, error));
    ramet_context_leave(context);
}

static inline ramet_engine_stats stats_of(const world *w) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(w->cache, &stats);
    return stats;
}

/* ---- content: what a context should hold ---- */

typedef struct content {
    uint32_t n;
    size_t row_bytes;
    int32_t *tokens;
    uint8_t *rows;
    float logits[N_VOCAB];
} content;

static inline content make_content(const ramet_kv_layout *layout, uint32_t n) {
    content c = {.n = n, .row_bytes = layout->row_bytes};
    c.tokens = calloc(n + 1, sizeof *c.tokens);
    c.rows = calloc(n + 1, c.row_bytes);
    for (uint32_t i = 0; i < n; i++) c.tokens[i] = (int32_t)draw_below(N_VOCAB);
    draw_bytes(c.rows, n * c.row_bytes);
    draw_bytes(c.logits, sizeof c.logits); /* any bits, NaN included: they are only moved */
    return c;
}

static inline void free_content(content *c) {
    free(c->tokens);
    free(c->rows);
}

/* [used] Puts positions [length, end) of the content into the context. */
static inline void extend(const world *w, ramet_context *context, const content *c, uint32_t end) {
    uint32_t pos = ramet_context_length(context), page_tokens = w->layout.page_tokens;
    if (pos == end) return;
    if (end == c->n) assert_ok(ramet_context_reserve_tail(context, error));
    assert_ok(ramet_context_writable(context, end - pos, error));
    for (uint32_t p = pos; p < end; p++)
        ramet_kv_import(&w->layout, ramet_context_page_write(context, p), p % page_tokens, 1,
                        c->rows + p * c->row_bytes);
    ramet_context_commit(context, c->tokens + pos, end - pos);
    if (end == c->n) {
        float *row = ramet_context_logits_writable(context);
        assert_non_null(row);
        memcpy(row, c->logits, sizeof c->logits);
    }
}

/* A context of the content, left. */
static inline ramet_context *make_context(const world *w, const content *c) {
    ramet_context *context;
    assert_ok(ramet_cache_context_create(w->cache, &context, error));
    enter(context);
    extend(w, context, c, c->n);
    ramet_context_leave(context);
    return context;
}

static inline void assert_holds(const world *w, ramet_context *context, const content *c) {
    enter(context);
    assert_int_equal(ramet_context_length(context), c->n);
    int32_t *tokens = calloc(c->n + 1, sizeof *tokens);
    ramet_context_read_tokens(context, 0, c->n, tokens);
    assert_memory_equal(tokens, c->tokens, c->n * sizeof *tokens);
    free(tokens);
    uint8_t *row = malloc(c->row_bytes);
    for (uint32_t p = 0; p < c->n; p++) {
        ramet_kv_export(&w->layout, ramet_context_page_read(context, p), p % w->layout.page_tokens, 1, row);
        if (memcmp(row, c->rows + p * c->row_bytes, c->row_bytes) != 0) fail_msg("position %u of %u differs", p, c->n);
    }
    free(row);
    const float *logits = ramet_context_peek_logits(context);
    if (c->n == 0)
        assert_null(logits);
    else {
        assert_non_null(logits);
        assert_memory_equal(logits, c->logits, sizeof c->logits);
    }
    ramet_context_leave(context);
}

static inline void close_context(ramet_context **context) {
    assert_ok(ramet_context_enter(*context, error));
    ramet_context_destroy(context);
}

/* Who saves and restores: this thread, or the threads of a pool (start_crew to stop_crew). */
static const ramet_store_crew *crew;

static inline void run_on_pool(void *user, uint32_t n, ramet_job job, void *job_user) {
    ramet_pool_run(user, n, job, job_user);
}

static inline void start_crew(uint32_t threads) {
    static ramet_store_crew on_pool;
    ramet_pool *pool;
    assert_ok(ramet_pool_create(threads, &pool, error));
    on_pool = (ramet_store_crew){.n_workers = threads, .run = run_on_pool, .user = pool};
    crew = &on_pool;
}

static inline void stop_crew(void) {
    ramet_pool *pool = crew->user;
    ramet_pool_destroy(&pool);
    crew = NULL;
}

/* What files are written and read with; NULL: plain ones. */
static const ramet_snapshot_policy *policy;

/* Save of a context that nobody is inside. */
static inline ramet_status save(const world *w, ramet_context *context, const ramet_snapshot_options *options,
                                const char *path, ramet_snapshot_info *info, ramet_error *error) {
    RAMET_TRY(try_enter(context, error));
    const uint8_t *key = policy ? policy->context_key : NULL;
    ramet_status status = ramet_store_save(context, &w->identity, options, key, path, crew, info, error);
    ramet_context_leave(context);
    return status;
}

static inline ramet_status restore(const world *w, const char *path, ramet_context **out, ramet_error *error) {
    return ramet_store_restore(w->cache, &w->identity, policy, path, crew, out, NULL, NULL, NULL, error);
}

/* ---- files ---- */

static char directory[64];

static inline int make_directory(void **state) {
    (void)state;
    strcpy(directory, "/tmp/ramet-test-store-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static inline uint32_t count_files(void) {
    uint32_t n = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline int remove_directory(void **state) {
    (void)state;
    DIR *d = opendir(directory);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return rmdir(directory);
}

/* Borrowed until the fourth next call. */
static inline const char *in_directory(const char *name) {
    static char paths[4][160];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

static inline bytes read_file(const char *path) {
    bytes b = {0};
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.n + 4096); /* room for tests that append */
    assert_int_equal(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static inline void write_file(const char *path, const uint8_t *data, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT, 0600); /* O_TRUNC would make some file systems flush at each close */
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    assert_int_equal(ftruncate(fd, (off_t)n), 0);
    close(fd);
}

static inline void assert_same_file(const char *a, const char *b) {
    bytes x = read_file(a), y = read_file(b);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.data, y.data, x.n);
    free(x.data);
    free(y.data);
}

#endif
