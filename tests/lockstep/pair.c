/* pair.c - see lockstep.h: a cache and its twin, and everything that must be equal. */
#include "lockstep/lockstep.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* ---- the setup ---- */

/* Page size and precision take turns; the rest is drawn. */
setup setup_of(uint64_t seed) {
    static const uint32_t sizes[] = {16, 64, 256}, windows[] = {150, 260, 600};
    static const uint32_t long_windows[] = {70 * 16 + 5, 600, 1550}; /* of 16: past the fan-out of a table */
    static const uint32_t rests[] = {0, TWIN_VOCAB * sizeof(float), 40};
    uint64_t rng = (seed + 1) * UINT64_C(0xd1342543de82ef95);
    lockstep_random(&rng);
    bool is_long = lockstep_below(&rng, 5) == 0, is_tight = lockstep_below(&rng, 2),
         is_tree_tight = lockstep_below(&rng, 2);
    uint32_t size = (uint32_t)(seed % 3), n_ctx = (is_long ? long_windows : windows)[size];
    return (setup){
        .page_tokens = sizes[size],
        .n_ctx = n_ctx,
        .precision = (int)(seed / 3 % 4), /* RAMET_KV_F32, F16, VQ8, Q8 */
        .n_pages = is_tight ? 2 * (n_ctx / sizes[size]) + 5 : 2000,
        .n_tree_pages = is_tree_tight ? 2 + lockstep_below(&rng, 5) : 1000,
        .n_tree_rest = rests[lockstep_below(&rng, 3)],
        .is_long = is_long,
        .injects = lockstep_below(&rng, 5) > 0,
        .is_wild = lockstep_below(&rng, 7) == 0,
    };
}

void setup_print(uint64_t seed, FILE *out) {
    setup s = setup_of(seed);
    fprintf(out, "pages of %u tokens, KV %s, window %u, %u pages, of these %u in the tree%s%s\n", s.page_tokens,
            ramet_kv_name((ramet_kv)s.precision), s.n_ctx, s.n_pages, s.n_tree_pages,
            s.injects ? ", allocations fail" : "", s.is_wild ? ", any token" : "");
}

void pair_open_cache(const pair *p, uint32_t page_tokens, ramet_kv_layout *layout, ramet_cache **out) {
    enum { LAYERS = 1, HEADS = 1, HEAD_DIM = 2 };
    require(ramet_kv_layout_init(layout, p->setup.precision, LAYERS, HEADS, HEAD_DIM, page_tokens), "no layout");
    require(layout->row_bytes <= TWIN_MAX_ROW, "a row of %zu bytes", layout->row_bytes);
    uint64_t page_bytes = layout->page_bytes;
    ramet_cache_options options = {
        .page_tokens = page_tokens,
        .page_bytes = page_bytes,
        .n_ctx = p->setup.n_ctx,
        .n_vocab = TWIN_VOCAB,
        .budget_bytes = p->setup.n_pages * page_bytes + 5,
        .tree_budget_bytes = p->setup.n_tree_pages * page_bytes + p->setup.n_tree_rest,
    };
    ramet_error error = {0};
    require(ramet_cache_create(&options, out, &error) == RAMET_OK, "%s", error.message);
}

void pair_open(pair *p, uint64_t seed, const char *directory) {
    *p = (pair){.setup = setup_of(seed), .directory = directory};
    pair_open_cache(p, p->setup.page_tokens, &p->layout, &p->cache);
    p->memory = page_memory_create(&p->layout, p->setup.n_pages);
    p->twin = twin_create(ramet_cache_get_options(p->cache));
    p->identity = (ramet_snapshot_identity){.model_name = "a model",
                                            .arch = "none",
                                            .weights_sha256 = {1},
                                            .tokenizer_sha256 = {2},
                                            .numerics_id = "1-lockstep",
                                            .n_vocab = TWIN_VOCAB,
                                            .layout = &p->layout};
}

void pair_file_path(const pair *p, uint32_t file, char out[256]) {
    snprintf(out, 256, "%s/file-%u.ramet", p->directory, file);
}

static uint32_t count_files(const pair *p) {
    uint32_t n = 0;
    DIR *d = opendir(p->directory);
    require(d, "cannot list %s", p->directory);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

void pair_close(pair *p) {
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) {
        if (!p->contexts[i]) continue;
        if (p->how[i] == IN_A_FILE) ramet_store_forget_spill(p->contexts[i]);
        ramet_context_destroy(&p->contexts[i]);
        p->twin->contexts[i].is_open = false;
    }
    ramet_tree_clear(p->cache);
    twin_clear(p->twin);
    pair_require_equal(p); /* K7 */
    ramet_cache_destroy(&p->cache);
    for (uint32_t i = 0; i < TWIN_MAX_FILES; i++) {
        char path[256];
        pair_file_path(p, i, path);
        require(remove(path) == 0 || !p->twin->files[i].exists, "%s is gone", path);
    }
    require(count_files(p) == 0, "%u files are left in %s", count_files(p), p->directory);
    page_memory_destroy(&p->memory);
    twin_destroy(p->twin);
}

/* ---- comparing ---- */

/* The rows of a page, exported again when any byte of it is another one than the last time: a page of zeros, to begin
 * with, has rows of zeros. */
static const uint8_t *rows_of(const page_memory *m, const ramet_kv_layout *layout, const ramet_page *page,
                              const uint8_t *data) {
    uint8_t *was = m->pages + page->slot * layout->page_bytes;
    uint8_t *rows = m->rows + page->slot * layout->page_tokens * layout->row_bytes;
    if (memcmp(was, data, layout->page_bytes) != 0) {
        memcpy(was, data, layout->page_bytes);
        ramet_kv_export(layout, data, 0, layout->page_tokens, rows);
    }
    return rows;
}

static const char *compare_rows(ramet_context *context, const ramet_kv_layout *layout, const page_memory *m,
                                const twin_text *text) {
    for (uint32_t pos = 0; pos < text->n; pos += layout->page_tokens) {
        uint32_t n = ramet_min_u32(layout->page_tokens, text->n - pos);
        const ramet_page *page = ramet_table_page(&context->table, pos / layout->page_tokens);
        const uint8_t *rows = rows_of(m, layout, page, ramet_context_page_read(context, pos));
        if (memcmp(rows, text->rows + pos * layout->row_bytes, n * layout->row_bytes) != 0) return "bytes (K4)";
    }
    return NULL;
}

page_memory page_memory_create(const ramet_kv_layout *layout, uint32_t n_pages) {
    page_memory m = {calloc(n_pages, layout->page_bytes), calloc(n_pages, layout->page_tokens * layout->row_bytes)};
    if (!m.pages || !m.rows) abort();
    return m;
}

void page_memory_destroy(page_memory *m) {
    free(m->pages);
    free(m->rows);
}

const char *pair_compare_text(ramet_context *context, const ramet_kv_layout *layout, const page_memory *m,
                              const twin_text *text, bool is_spilled) {
    static int32_t tokens[TWIN_MAX_TOKENS];
    if (ramet_context_length(context) != text->n) return "length";
    ramet_context_read_tokens(context, 0, text->n, tokens);
    if (memcmp(tokens, text->tokens, text->n * sizeof *tokens) != 0) return "tokens";
    if (ramet_context_common_prefix(context, text->tokens, text->n) != text->n) return "common prefix";
    if (!ramet_context_where(context) != !is_spilled) return "where (K9)";
    const float *logits = ramet_context_peek_logits(context);
    if (!logits != (text->row == 0)) return "presence of logits";
    if (logits && memcmp(logits, text->logits, sizeof text->logits) != 0) return "logits";
    return is_spilled ? NULL : compare_rows(context, layout, m, text);
}

/* After twin_count. */
static const char *compare_context(const pair *p, uint32_t i) {
    const twin_context *c = &p->twin->contexts[i];
    if (!p->contexts[i] != !c->is_open) return "whether it is open";
    if (!p->contexts[i]) return NULL;
    const char *difference = pair_compare_text(p->contexts[i], &p->layout, &p->memory, &c->text, c->is_spilled);
    if (difference) return difference;
    uint64_t reachable, exclusive;
    ramet_context_count_pages(p->contexts[i], &reachable, &exclusive);
    if (reachable != c->text.n_pages) return "number of pages";
    if (exclusive != twin_count_exclusive(p->twin, c)) return "number of exclusive pages (K1)";
    return NULL;
}

typedef struct listing {
    const twin *twin;
    uint32_t n;
    bool differs;
} listing;

static void compare_entry(void *user, const int32_t *tokens, uint32_t n) {
    listing *l = user;
    const twin_text *entry = l->n < l->twin->n_entries ? l->twin->entries[l->n] : NULL;
    l->n++;
    l->differs = l->differs || !entry || entry->n != n || memcmp(entry->tokens, tokens, n * sizeof *tokens) != 0;
}

static const char *compare_tree(pair *p) {
    listing l = {.twin = p->twin};
    if (ramet_tree_each(p->cache, compare_entry, &l, NULL) != RAMET_OK) return "no memory";
    return l.differs || l.n != p->twin->n_entries ? "entries or their order (K6)" : NULL;
}

static const char *compare_stats(pair *p) {
    ramet_engine_stats a, b;
    ramet_cache_get_stats(p->cache, &a);
    twin_get_stats(p->twin, &b);
    if (a.pages_allocated - a.pages_freed != a.pages_live) return "allocated - freed = live (K2)";
    if (a.pages_live != b.pages_live) return "live pages";
    if (a.pages_allocated != b.pages_allocated || a.pages_freed != b.pages_freed) return "allocated or freed pages";
    if (a.pages_copied != b.pages_copied) return "copied pages";
    if (a.contexts != b.contexts || a.tree_entries != b.tree_entries) return "contexts or entries";
    if (a.tree_pages != b.tree_pages || a.tree_bytes != b.tree_bytes) return "pages or bytes of the tree (K11)";
    if (a.tree_evictions != b.tree_evictions) return "evictions";
    return NULL;
}

const char *pair_compare(pair *p, uint32_t *out_context) {
    twin_count(p->twin);
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) {
        const char *difference = compare_context(p, i);
        *out_context = i;
        if (difference) return difference;
    }
    const char *difference = compare_stats(p);
    return difference ? difference : compare_tree(p);
}

void pair_require_equal(pair *p) {
    ramet_error error = {0};
    uint32_t i;
    require(ramet_cache_check(p->cache, &error) == RAMET_OK, "%s", error.message);
    const char *difference = pair_compare(p, &i);
    require(!difference, "differs from the twin (context %u): %s", i, difference);
}
