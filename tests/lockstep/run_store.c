/* run_store.c - see lockstep.h: the operations that give pages away and take them back, and those on files. */
#include "lockstep/run.h"

#include <stdlib.h>
#include <string.h>

/* ---- spilling ---- */

void op_drop(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    if (BOTH(ramet_context_drop(p->contexts[o->context], "/nowhere/at/all", &error),
             twin_drop(p->twin, &p->twin->contexts[o->context])))
        p->how[o->context] = DROPPED;
}

/* Of one that was dropped, with the twin's rows; some of them are undone at once. */
void op_refill(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    uint32_t i = o->context;
    twin_context *c = &p->twin->contexts[i];
    ramet_spilled was = {0};
    if (!BOTH(ramet_context_refill(p->contexts[i], o->noise & 1 ? &was : NULL, &error), twin_refill(p->twin, c)))
        return;
    p->how[i] = RESIDENT;
    static const uint8_t zeros[256 * TWIN_MAX_ROW];
    static uint8_t rows[256 * TWIN_MAX_ROW];
    for (uint32_t pos = 0; pos < c->text.n; pos += p->layout.page_tokens) {
        uint32_t n = ramet_min_u32(p->layout.page_tokens, c->text.n - pos);
        ramet_kv_export(&p->layout, ramet_context_page_read(p->contexts[i], pos), 0, n, rows);
        require(memcmp(rows, zeros, n * p->layout.row_bytes) == 0, "a refilled page is not zero at %u", pos);
    }
    if (o->noise % 4 == 3) { /* the reading failed */
        ramet_context_undo_refill(p->contexts[i], &was);
        twin_undo_refill(p->twin, c);
        p->how[i] = DROPPED;
    } else {
        pair_put_rows(p, i, 0, c->text.n);
    }
    ramet_spilled_free(&was);
}

/* A call that had pages and gave them back has counted them, and perhaps evicted for them. */
static void catch_up(pair *p, bool may_evict) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(p->cache, &stats);
    while (may_evict && p->twin->n_entries > 0 && p->twin->n_evictions < stats.tree_evictions)
        twin_evict_oldest(p->twin);
    require(stats.pages_allocated < TWIN_MAX_PAGE_IDENTITIES, "too many pages in one walk");
    p->twin->last_page = (uint32_t)stats.pages_allocated;
}

void op_spill(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[o->context];
    bool is_resident = !c->is_spilled; /* or there is nothing to do */
    if (BOTH(ramet_store_spill(p->contexts[o->context], &p->identity, NULL, p->directory, NULL, &error),
             is_resident ? twin_drop(p->twin, c) : RAMET_OK) &&
        is_resident)
        p->how[o->context] = IN_A_FILE;
}

void op_read_back(pair *p, const op *o) {
    ramet_error error = {0};
    uint32_t i = o->context;
    ramet_alloc_fail_after(o->fail_after);
    ramet_status status = ramet_store_unspill(p->contexts[i], &p->identity, NULL, NULL, &error);
    if (op_lacks_memory(o, status)) {
        catch_up(p, true);
        return;
    }
    ramet_status should = p->how[i] == RESIDENT  ? RAMET_OK
                          : p->how[i] == DROPPED ? RAMET_E_NOT_FOUND
                                                 : twin_refill(p->twin, &p->twin->contexts[i]);
    if (op_agrees(o, status, &error, should)) p->how[i] = RESIDENT;
}

/* ---- files ---- */

enum { SAMPLER_BYTES = 32 };

static uint32_t draw_sampler(uint32_t noise, uint8_t out[SAMPLER_BYTES]) {
    memset(out, (int)(noise >> 8 & 255), SAMPLER_BYTES);
    return noise % SAMPLER_BYTES;
}

static ramet_status save(const pair *p, ramet_context *context, const ramet_kv_layout *layout, uint32_t noise,
                         const char *path, ramet_error *error) {
    uint8_t sampler[SAMPLER_BYTES];
    ramet_snapshot_identity identity = p->identity;
    identity.layout = layout;
    ramet_snapshot_options options = {.owner = noise & 1 ? "somebody" : NULL,
                                      .sampler_state = sampler,
                                      .sampler_state_bytes = draw_sampler(noise, sampler),
                                      .skip_sync = noise & 2};
    return ramet_store_save(context, &identity, &options, NULL, path, NULL, NULL, error);
}

void op_snapshot(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    char path[256];
    pair_file_path(p, o->other, path);
    if (!BOTH(save(p, p->contexts[o->context], &p->layout, o->noise, path, &error), RAMET_OK)) return;
    p->twin->files[o->other] = (twin_file){.exists = true, .text = p->twin->contexts[o->context].text};
    p->file_noise[o->other] = o->noise;
}

void op_restore(pair *p, const op *o) {
    ramet_error error = {0};
    char path[256];
    uint8_t expected[SAMPLER_BYTES];
    void *sampler;
    size_t sampler_bytes;
    ramet_context **out = &p->contexts[o->context];
    pair_file_path(p, o->other, path);
    ramet_alloc_fail_after(o->fail_after);
    ramet_status status =
        ramet_store_restore(p->cache, &p->identity, NULL, path, NULL, out, &sampler, &sampler_bytes, NULL, &error);
    if (op_lacks_memory(o, status)) {
        catch_up(p, true);
        return;
    }
    if (!op_agrees(o, status, &error, twin_restore(p->twin, &p->twin->files[o->other], &p->twin->contexts[o->context])))
        return;
    uint32_t n = draw_sampler(p->file_noise[o->other], expected);
    require(sampler_bytes == n && (n == 0 || memcmp(sampler, expected, n) == 0), "another sampler state");
    free(sampler);
}

static uint8_t *read_file(const char *path, size_t *out_n) {
    FILE *f = fopen(path, "rb");
    require(f, "cannot open %s", path);
    static uint8_t bytes[2][1 << 17];
    static unsigned turn;
    uint8_t *into = bytes[turn++ % 2];
    *out_n = fread(into, 1, sizeof bytes[0], f);
    fclose(f);
    return into;
}

/* K8: through a cache of another page size, and the file that it makes is the same. */
void op_carry(pair *p, const op *o) {
    ramet_error error = {0};
    uint32_t page_tokens = p->layout.page_tokens == 256 ? 16 : 4 * p->layout.page_tokens;
    ramet_kv_layout layout;
    ramet_snapshot_identity identity = p->identity;
    ramet_cache *cache;
    ramet_context *context;
    char path[256], again[256];
    pair_file_path(p, o->other, path);
    snprintf(again, sizeof again, "%s/again.ramet", p->directory);
    pair_open_cache(p, page_tokens, &layout, &cache);
    identity.layout = &layout;
    ramet_status status = ramet_store_restore(cache, &identity, NULL, path, NULL, &context, NULL, NULL, NULL, &error);
    if (status != RAMET_E_BUDGET) {
        require(status == RAMET_OK, "carry: %s", error.message);
        page_memory memory = page_memory_create(&layout, p->setup.n_pages);
        const char *difference = pair_compare_text(context, &layout, &memory, &p->twin->files[o->other].text, false);
        page_memory_destroy(&memory);
        require(!difference, "carried to pages of %u: %s", page_tokens, difference);
        status = save(p, context, &layout, p->file_noise[o->other], again, &error);
        require(status == RAMET_OK, "carry: %s", error.message);
        size_t n, n_again;
        const uint8_t *was = read_file(path, &n), *is = read_file(again, &n_again);
        require(n == n_again && memcmp(was, is, n) == 0, "K8: pages of %u make another file", page_tokens);
        remove(again);
        ramet_context_destroy(&context);
    }
    ramet_cache_destroy(&cache);
}

static void flip(const char *path, size_t at, uint8_t bit) {
    FILE *f = fopen(path, "r+b");
    require(f && fseek(f, (long)at, SEEK_SET) == 0, "cannot open %s", path);
    int byte = fgetc(f);
    fseek(f, (long)at, SEEK_SET);
    fputc(byte ^ bit, f);
    fclose(f);
}

/* Which bit of the file; often one of its header. */
static void draw_bit(const op *o, const char *path, size_t *out_at, uint8_t *out_bit) {
    size_t n;
    read_file(path, &n);
    *out_at = o->a % 3 ? o->a / 3 % n : o->a / 3 % ramet_min_u32(512, (uint32_t)n);
    *out_bit = (uint8_t)(1u << (o->noise & 7));
}

/* A file of which a bit is another one is refused. Pages may have been out for it, but no entry has gone. */
static void require_refusal(pair *p, ramet_status status, const ramet_error *error, size_t at) {
    require(status == RAMET_E_CORRUPT || status == RAMET_E_UNSUPPORTED || status == RAMET_E_BUDGET,
            "byte %zu is another one: %s %s", at, ramet_status_name(status), error->message);
    lockstep_now->n_refused++;
    catch_up(p, false);
}

void op_damage(pair *p, const op *o) {
    char path[256];
    size_t at;
    uint8_t bit;
    ramet_error error = {0};
    ramet_context *context;
    pair_file_path(p, o->other, path);
    draw_bit(o, path, &at, &bit);
    flip(path, at, bit);
    ramet_status status =
        ramet_store_restore(p->cache, &p->identity, NULL, path, NULL, &context, NULL, NULL, NULL, &error);
    flip(path, at, bit);
    require_refusal(p, status, &error, at);
    require(!context, "a context of a damaged file");
}

void op_lose(pair *p, const op *o) {
    char path[256];
    size_t at;
    uint8_t bit;
    ramet_error error = {0};
    snprintf(path, sizeof path, "%s", ramet_context_where(p->contexts[o->context]));
    draw_bit(o, path, &at, &bit);
    flip(path, at, bit);
    ramet_status status = ramet_store_unspill(p->contexts[o->context], &p->identity, NULL, NULL, &error);
    flip(path, at, bit);
    require_refusal(p, status, &error, at);
    require(status == RAMET_E_BUDGET || strstr(error.message, "lost"), "lost, and it says only: %s", error.message);
}
