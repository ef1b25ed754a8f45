/* run_store.c - see lockstep.h: the operations on files. A state is in no file: what comes back has none. */
#include "lockstep/run.h"

#include <stdlib.h>
#include <string.h>

/* A call that had pages and gave them back has counted them, and perhaps evicted for them. */
static void catch_up(pair *p, bool may_evict) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(p->cache, &stats);
    while (may_evict && p->twin->n_evictions < stats.tree_evictions && twin_evict(p->twin)) {
    }
    p->twin->n_pages_allocated = stats.pages_allocated;
}

/* ---- files ---- */

enum { SAMPLER_BYTES = 32 };

static const uint8_t key[RAMET_KEY_BYTES] = "a key for half of all snapshots";
static const ramet_snapshot_policy policy = {.context_key = key};

static bool is_encrypted(uint32_t noise) {
    return noise & 4;
}

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
    return ramet_store_save(context, &identity, &options, is_encrypted(noise) ? key : NULL, path, NULL, NULL, error);
}

void op_snapshot(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    char path[256];
    pair_file_path(p, o->other, path);
    if (!BOTH(save(p, p->contexts[o->context], &p->layout, o->noise, path, &error), RAMET_OK)) return;
    p->twin->files[o->other] = (twin_file){.exists = true, .text = p->twin->contexts[o->context].text};
    p->twin->files[o->other].text.tail[TWIN_STATE] = 0;
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
    pair_begin_room(p);
    ramet_status status =
        ramet_store_restore(p->cache, &p->identity, &policy, path, NULL, out, &sampler, &sampler_bytes, NULL, &error);
    pair_end_room(p);
    if (op_lacks_memory(o, status) || op_lacks_disk(p, o, status, UINT64_MAX)) {
        catch_up(p, !p->setup.has_pager);
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
    pair_open_cache(p, page_tokens, NULL, &layout, &cache);
    identity.layout = &layout;
    ramet_status status =
        ramet_store_restore(cache, &identity, &policy, path, NULL, &context, NULL, NULL, NULL, &error);
    if (status != RAMET_E_BUDGET) {
        require(status == RAMET_OK, "carry: %s", error.message);
        page_memory memory = {.round = 1};
        const char *difference = pair_compare_text(context, &layout, &memory, NULL, &p->twin->files[o->other].text);
        page_memory_free(&memory);
        require(!difference, "carried to pages of %u: %s", page_tokens, difference);
        require(ramet_context_enter(context, NULL) == RAMET_OK && ramet_context_use(context, NULL) == RAMET_OK,
                "carry: nobody else is there");
        status = save(p, context, &layout, p->file_noise[o->other], again, &error);
        require(status == RAMET_OK, "carry: %s", error.message);
        size_t n, n_again;
        const uint8_t *was = read_file(path, &n), *is = read_file(again, &n_again);
        bool has_salt = is_encrypted(p->file_noise[o->other]); /* of its own each time */
        require(n == n_again && (has_salt || memcmp(was, is, n) == 0), "K8: pages of %u make another file",
                page_tokens);
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
    require(status == RAMET_E_CORRUPT || status == RAMET_E_UNSUPPORTED || status == RAMET_E_AUTHENTICATION ||
                status == RAMET_E_BUDGET,
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
        ramet_store_restore(p->cache, &p->identity, &policy, path, NULL, &context, NULL, NULL, NULL, &error);
    flip(path, at, bit);
    require_refusal(p, status, &error, at);
    require(!context, "a context of a damaged file");
}
