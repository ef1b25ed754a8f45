/* pair.c - see lockstep.h: a cache and its twin, opened from a seed and closed. */
#include "lockstep/lockstep.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* ---- the setup ---- */

/* With a pager: less than one full context in memory, just one, two, all there is. */
static uint32_t draw_pages(uint64_t *rng, uint32_t pages_each, bool has_pager) {
    uint32_t how = lockstep_below(rng, 4);
    if (!has_pager) how = how < 2 ? 2 : 3;
    return how == 0 ? pages_each / 2 + 2 : how == 1 ? pages_each + 2 : how == 2 ? 2 * pages_each + 5 : 2000;
}

/* Page size and precision take turns; the rest is drawn. */
setup setup_of(uint64_t seed) {
    static const uint32_t sizes[] = {16, 64, 256}, windows[] = {150, 260, 600};
    static const uint32_t long_windows[] = {70 * 16 + 5, 600, 1550}; /* of 16: past the fan-out of a table */
    static const uint32_t tree_rests[] = {0, TWIN_VOCAB * sizeof(float), 40}, states[] = {8, 40, 200};
    static const uint32_t pins[] = {0, 50, 100};
    uint64_t rng = (seed + 1) * UINT64_C(0xd1342543de82ef95);
    lockstep_random(&rng);
    setup s = {.page_tokens = sizes[seed % 3], .precision = (int)(seed / 3 % 4)}; /* RAMET_KV_F32, F16, VQ8, Q8 */
    s.is_long = lockstep_below(&rng, 5) == 0;
    s.n_ctx = (s.is_long ? long_windows : windows)[seed % 3];
    s.has_pager = lockstep_below(&rng, 2);
    s.state_bytes = lockstep_below(&rng, 2) ? states[lockstep_below(&rng, 3)] : 0;
    s.n_pages = draw_pages(&rng, s.n_ctx / s.page_tokens, s.has_pager);
    s.n_rest =
        lockstep_below(&rng, 2) ? 5 : lockstep_below(&rng, 8 * (TWIN_VOCAB * (uint32_t)sizeof(float) + s.state_bytes));
    s.n_tree_pages = lockstep_below(&rng, 2) ? 2 + lockstep_below(&rng, 5) : 1000;
    s.n_tree_rest = tree_rests[lockstep_below(&rng, 3)];
    s.pin_percent = pins[lockstep_below(&rng, 3)];
    s.injects = lockstep_below(&rng, 5) > 0;
    s.is_wild = lockstep_below(&rng, 7) == 0;
    return s;
}

void setup_print(uint64_t seed, FILE *out) {
    setup s = setup_of(seed);
    fprintf(out,
            "pages of %u tokens, KV %s, states of %u bytes, window %u, %u pages and %u bytes%s, of these %u and %u in "
            "the tree, %u %% pinned%s%s\n",
            s.page_tokens, ramet_kv_name((ramet_kv)s.precision), s.state_bytes, s.n_ctx, s.n_pages, s.n_rest,
            s.has_pager ? " in memory, others with the pager" : "", s.n_tree_pages, s.n_tree_rest, s.pin_percent,
            s.injects ? ", things fail" : "", s.is_wild ? ", any token" : "");
}

const char *owner_name(uint32_t owner) {
    static const char *const names[TWIN_OWNERS] = {NULL, "ann", "bob"};
    return names[owner];
}

/* ---- opening ---- */

void pair_open_cache(const pair *p, uint32_t page_tokens, const ramet_pager *pager, ramet_kv_layout *layout,
                     ramet_cache **out) {
    enum { LAYERS = 1, HEADS = 1, HEAD_DIM = 2 };
    require(ramet_kv_layout_init(layout, p->setup.precision, LAYERS, HEADS, HEAD_DIM, page_tokens), "no layout");
    require(layout->row_bytes <= TWIN_MAX_ROW, "a row of %zu bytes", layout->row_bytes);
    uint64_t page_bytes = layout->page_bytes, tree_bytes = p->setup.n_tree_pages * page_bytes + p->setup.n_tree_rest;
    ramet_cache_options options = {
        .page_tokens = page_tokens,
        .page_bytes = page_bytes,
        .state_bytes = p->setup.state_bytes,
        .n_ctx = p->setup.n_ctx,
        .n_vocab = TWIN_VOCAB,
        .budget_bytes = p->setup.n_pages * page_bytes + p->setup.n_rest,
        .tree_budget_bytes = tree_bytes,
        .pin_budget_bytes = tree_bytes * p->setup.pin_percent / 100,
        .pager = pager,
    };
    ramet_error error = {0};
    require(ramet_cache_create(&options, out, &error) == RAMET_OK, "%s", error.message);
}

void pair_open(pair *p, uint64_t seed, const char *directory) {
    *p = (pair){.setup = setup_of(seed), .directory = directory};
    ramet_pager pager = walk_pager_of(&p->pager);
    pair_open_cache(p, p->setup.page_tokens, p->setup.has_pager ? &pager : NULL, &p->layout, &p->cache);
    p->pager.cache = p->cache;
    p->twin = twin_create(ramet_cache_get_options(p->cache));
    p->twin->has_pager = p->setup.has_pager;
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

/* ---- closing ---- */

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
        ramet_context_destroy(&p->contexts[i]);
        twin_close(&p->twin->contexts[i]);
    }
    ramet_tree_clear(p->cache);
    twin_clear(p->twin);
    pair_require_equal(p); /* K7 */
    require(p->pager.kept_bytes == 0, "K7: the pager still keeps %llu bytes", (unsigned long long)p->pager.kept_bytes);
    ramet_cache_destroy(&p->cache);
    for (uint32_t i = 0; i < TWIN_MAX_FILES; i++) {
        char path[256];
        pair_file_path(p, i, path);
        require(remove(path) == 0 || !p->twin->files[i].exists, "%s is gone", path);
    }
    require(count_files(p) == 0, "%u files are left in %s", count_files(p), p->directory);
    page_memory_free(&p->memory);
    twin_destroy(p->twin);
}
