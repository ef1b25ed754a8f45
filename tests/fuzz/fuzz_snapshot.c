/* fuzz_snapshot.c - snapshot files: their header, every byte, their tokens, and into a small cache with a full prefix
 * tree, one for each KV precision. What every reader must agree on:
 *
 *   info refuses     => so do verify, tokens and restore
 *   verify refuses   => so does restore, and the cache is as it was, its entry included
 *   restore takes it => the context has the file's tokens, and saving it writes the same body
 *
 * Files that a mutation alone breaks are stopped by the first checksum, so half of the mutations renew the checksums. */
#include "test_store_fixture.h" /* first: it says what of the system it needs */

#include "fuzz.h"
#include "snapshot_mutate.h"
#include "snapshot_seal.h"

enum { PAGE_TOKENS = 16, MOST_TOKENS = 128, N_PAGES = 10, ENTRY_TOKENS = 40, N_PRECISIONS = 4 };

static const shape shapes[N_PRECISIONS] = {
    {RAMET_KV_F32, 1, 1, 4}, {RAMET_KV_F16, 2, 1, 4}, {RAMET_KV_VQ8, 1, 2, 33}, {RAMET_KV_Q8, 1, 1, 40}};
static const uint32_t page_tokens[N_PRECISIONS] = {16, 64, 16, 64};
static const ramet_snapshot_policy lenient = {.context_key = snapshot_fuzz_key, .allow_legacy = true};
static world worlds[N_PRECISIONS];
static content entries[N_PRECISIONS];

static void leave(void) {
    remove_directory(NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    rng_state = 1;
    if (make_directory(NULL) != 0) return 1;
    atexit(leave);
    for (int i = 0; i < N_PRECISIONS; i++) {
        open_world(&worlds[i], shapes[i], page_tokens[i], MOST_TOKENS, N_PAGES * PAGE_TOKENS / page_tokens[i]);
        entries[i] = make_content(&worlds[i].layout, ENTRY_TOKENS);
    }
    return 0;
}

/* An entry that a restore may have to evict. */
static void fill_tree(int precision) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(worlds[precision].cache, &stats);
    if (stats.tree_entries > 0) return;
    ramet_context *context = make_context(&worlds[precision], &entries[precision]);
    retain(context);
    close_context(&context);
}

static void check_as_before(const world *w, const ramet_engine_stats *before) {
    ramet_engine_stats now;
    ramet_error error;
    ramet_cache_get_stats(w->cache, &now);
    FUZZ_CHECK(now.pages_live == before->pages_live && now.contexts == before->contexts &&
                   now.tree_entries == before->tree_entries && now.tree_evictions == before->tree_evictions,
               "%llu pages, %llu contexts, %llu entries", (unsigned long long)now.pages_live,
               (unsigned long long)now.contexts, (unsigned long long)now.tree_entries);
    FUZZ_CHECK(ramet_cache_check(w->cache, &error) == RAMET_OK, "%s", error.message);
}

/* Sampler state is the caller's: it is given back and comes again. What was encrypted is compared as what it hides. */
static void check_saved_again(const world *w, ramet_context *context, const uint8_t *data, size_t n_bytes,
                              const void *sampler, size_t sampler_bytes) {
    ramet_snapshot_options options = {
        .sampler_state = sampler, .sampler_state_bytes = sampler_bytes, .skip_sync = true};
    ramet_error error;
    const char *path = in_directory("again.ramet");
    FUZZ_CHECK(save(w, context, &options, path, NULL, &error) == RAMET_OK, "%s", error.message);
    bytes again = read_file(path);
    if (fuzz_control) again.data[fuzz_load(again.data + SNAPSHOT_HEADER_BYTES_OFF, 4)] ^= 1;
    uint8_t *plain = malloc(n_bytes);
    if (!plain) abort();
    memcpy(plain, data, n_bytes);
    snapshot_open(plain, n_bytes);
    snapshot_body ours = snapshot_body_of(again.data, again.n), theirs = snapshot_body_of(plain, SIZE_MAX);
    FUZZ_CHECK(ours.bytes == theirs.bytes && memcmp(ours.data, theirs.data, ours.bytes) == 0,
               "saved again it has another body of %zu bytes", ours.bytes);
    free(again.data);
    free(plain);
}

static void check_restored(const world *w, ramet_context *context, const int32_t *tokens, uint32_t n_tokens) {
    int32_t *held = malloc((n_tokens + 1) * sizeof *held);
    if (!held) abort();
    FUZZ_CHECK(ramet_context_length(context) == n_tokens, "%u tokens of %u", ramet_context_length(context), n_tokens);
    assert_ok(ramet_context_enter(context, error));
    ramet_context_read_tokens(context, 0, n_tokens, held);
    ramet_context_leave(context);
    FUZZ_CHECK(memcmp(held, tokens, n_tokens * sizeof *held) == 0, "other tokens");
    free(held);
    ramet_error error;
    FUZZ_CHECK(ramet_cache_check(w->cache, &error) == RAMET_OK, "%s", error.message);
}

static void fuzz_restore(const char *path, const uint8_t *data, size_t n_bytes, int precision, bool is_sound,
                         const int32_t *tokens, uint32_t n_tokens) {
    const world *w = &worlds[precision];
    ramet_engine_stats before;
    ramet_error error = {0};
    ramet_context *context;
    void *sampler;
    size_t sampler_bytes;
    fill_tree(precision);
    ramet_cache_get_stats(w->cache, &before);
    ramet_status status = ramet_store_restore(w->cache, &w->identity, &lenient, path, NULL, &context, &sampler,
                                              &sampler_bytes, NULL, &error);
    if (status != RAMET_OK) {
        fuzz_check_refusal(status, &error, context);
        FUZZ_CHECK(!sampler, "sampler state of a refused file");
        if (!is_sound) check_as_before(w, &before);
        return;
    }
    FUZZ_CHECK(is_sound, "restored, though verify refuses it");
    check_restored(w, context, tokens, n_tokens);
    check_saved_again(w, context, data, n_bytes, sampler, sampler_bytes);
    close_context(&context);
    free(sampler);
    fuzz_was_taken = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    ramet_error error = {0};
    ramet_snapshot_info info;
    int32_t *tokens;
    uint32_t n_tokens;
    const char *path = fuzz_file(data, n_bytes);
    ramet_status has_info = ramet_store_read_info(path, &info, &error);
    if (has_info != RAMET_OK) fuzz_check_refusal(has_info, &error, NULL);
    ramet_status is_sound = ramet_store_verify(path, &lenient, &error);
    if (is_sound != RAMET_OK) fuzz_check_refusal(is_sound, &error, NULL);
    ramet_status has_tokens = ramet_store_read_tokens(path, &lenient, &tokens, &n_tokens, &error);
    if (has_tokens != RAMET_OK) fuzz_check_refusal(has_tokens, &error, tokens);
    FUZZ_CHECK(has_info == RAMET_OK || (is_sound != RAMET_OK && has_tokens != RAMET_OK), "a file without a header");
    FUZZ_CHECK(is_sound != RAMET_OK || has_tokens == RAMET_OK, "sound, and its tokens cannot be read");
    for (uint32_t i = 0; i < n_tokens; i++)
        FUZZ_CHECK(tokens[i] >= 0 && (uint32_t)tokens[i] < info.n_vocab, "token %d", (int)tokens[i]);
    int precision = has_info == RAMET_OK ? (int)info.kv : RAMET_KV_F32;
    fuzz_restore(path, data, n_bytes, precision, is_sound == RAMET_OK, tokens, n_tokens);
    free(tokens);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n_bytes, size_t most, unsigned seed) {
    return snapshot_mutate(data, n_bytes, most, seed);
}
