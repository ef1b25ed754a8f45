/* room.c - memory within its budget: entries of the tree go, or the coldest idle blocks are written out and come back.
 *
 *   idle    coldest ── ... ── warmest        in memory, nobody uses them; a block whose last user leaves is the warmest
 *   out     take from the coldest on ──> moving ──> the pager writes ──> slot free, name kept
 *                                              └──> somebody came meanwhile: it stays, the copy is forgotten
 *   back    slot taken ──> moving ──> the pager reads ──> in memory, the copy is forgotten
 *
 * Blocks move with the cache's lock let go and the pager's lock held: one batch is on its way at a time. Who needs a moving
 * block, or room, waits for the pager's lock, which is held until all of a context is back; everybody else goes on. Room
 * is always made before a block is.
 *
 * Owns K11 for memory, and which blocks go. Refuses to know what they are, and where they go. */
#include "base/clock.h"
#include "state/internal.h"

enum { BATCH = 32 };

uint64_t ramet_memory_bytes(const ramet_cache *cache) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < RAMET_KINDS; kind++) bytes += cache->blocks[kind].slab.n_out * cache->blocks[kind].bytes;
    return bytes;
}

static uint64_t room_left(const ramet_cache *cache) {
    return cache->options.budget_bytes - ramet_memory_bytes(cache);
}

static bool has_headers(const ramet_cache *cache, ramet_need need) {
    const ramet_blocks *blocks = &cache->blocks[need.kind];
    return need.n <= blocks->n_headers - blocks->n_live - blocks->n_doomed;
}

uint64_t ramet_used_bytes(const ramet_cache *cache) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < RAMET_KINDS; kind++) bytes += cache->blocks[kind].n_used * cache->blocks[kind].bytes;
    return bytes;
}

/* Both in memory and, with what contexts at work wait for, within the budget. */
bool ramet_room_fits(const ramet_cache *cache, ramet_need need) {
    uint64_t bytes = need.n * cache->blocks[need.kind].bytes;
    return bytes <= room_left(cache) && bytes <= cache->options.budget_bytes - ramet_used_bytes(cache) &&
           has_headers(cache, need);
}

static ramet_status all_in_use(const ramet_cache *cache, uint64_t bytes, ramet_error *error) {
    unsigned long long budget = cache->options.budget_bytes, used = ramet_used_bytes(cache);
    if (bytes > budget)
        return ramet_fail(error, RAMET_E_BUDGET,
                          "one context needs %llu bytes in memory, and the memory budget is %llu: raise it "
                          "(--ctx-mem-budget)",
                          (unsigned long long)bytes, budget);
    return ramet_fail(error, RAMET_E_BUDGET,
                      "%llu bytes more are needed, and of the memory budget's %llu contexts at work, and logits that "
                      "were looked at, hold %llu: use fewer at a time, or raise the budget (--ctx-mem-budget)",
                      (unsigned long long)bytes, budget, used);
}

ramet_status ramet_room_check_use(const ramet_cache *cache, uint64_t bytes, ramet_error *error) {
    return bytes <= cache->options.budget_bytes - ramet_used_bytes(cache) ? RAMET_OK : all_in_use(cache, bytes, error);
}

/* ---- on their way ---- */

typedef struct batch {
    ramet_block *blocks[BATCH];
    ramet_pager_item items[BATCH];
    uint32_t n;
    uint64_t bytes;
} batch;

static void add(ramet_cache *cache, batch *b, ramet_block *block) {
    block->is_moving = true;
    b->items[b->n] = (ramet_pager_item){
        .name = block->name, .data = ramet_block_data(cache, block), .bytes = cache->blocks[block->kind].bytes};
    b->blocks[b->n++] = block;
    b->bytes += cache->blocks[block->kind].bytes;
}

/* Copies that are worth nothing any more. Lock held, but not all the time. */
static void forget(ramet_cache *cache, const uint64_t *names, uint32_t n) {
    if (n == 0) return;
    pthread_mutex_unlock(&cache->lock);
    for (uint32_t i = 0; i < n; i++) cache->pager.forget(cache->pager.user, names[i]);
    ramet_cache_lock(cache);
}

/* The pager's work, without the lock. */
static ramet_status move(ramet_cache *cache,
                         ramet_status (*call)(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error),
                         batch *b, uint64_t *nanoseconds, ramet_error *error) {
    pthread_mutex_unlock(&cache->lock);
    uint64_t start = ramet_now_nanoseconds();
    ramet_status status = call(cache->pager.user, b->items, b->n, error);
    uint64_t took = ramet_now_nanoseconds() - start;
    ramet_cache_lock(cache);
    *nanoseconds += took;
    return status;
}

/* ---- out ---- */

static void take_out(ramet_cache *cache, batch *b, ramet_block *block) {
    ramet_idle_remove(cache, block);
    add(cache, b, block);
    b->items[b->n - 1].name = ++cache->last_name;
}

/* A block whose copy is written, or not. True: the copy is not needed. */
static bool settle_out(ramet_cache *cache, ramet_block *block, uint64_t name, bool is_written) {
    block->is_moving = false;
    bool goes = is_written && block->n_users == 0;
    if (goes) {
        ramet_block_give_slot(cache, block);
        block->name = name;
        cache->paged.on_disk_bytes += cache->blocks[block->kind].bytes;
    } else if (block->n_users == 0) {
        ramet_idle_add(cache, block, true);
    }
    if (block->counts.refcount == 0) ramet_block_free(cache, block);
    return is_written && !goes;
}

/* Both locks held, the cache's not all the time. */
static ramet_status write_out(ramet_cache *cache, batch *b, ramet_error *error) {
    ramet_status status = move(cache, cache->pager.write, b, &cache->paged.write_nanoseconds, error);
    if (status == RAMET_OK) {
        cache->paged.n_written += b->n;
        cache->paged.written_bytes += b->bytes;
    }
    uint64_t unwanted[BATCH];
    uint32_t n_unwanted = 0;
    for (uint32_t i = b->n; i-- > 0;) /* backwards: what stays becomes the coldest again, in its old order */
        if (settle_out(cache, b->blocks[i], b->items[i].name, status == RAMET_OK))
            unwanted[n_unwanted++] = b->items[i].name;
    forget(cache, unwanted, n_unwanted);
    return status;
}

/* Of blocks that entries of the tree alone keep in memory, pinned ones excepted. */
static uint64_t evictable_bytes(const ramet_cache *cache) {
    uint64_t bytes = 0;
    for (const ramet_block *block = cache->idle.coldest; block; block = block->warmer)
        if (block->counts.holds[RAMET_BY_CONTEXTS] == 0) bytes += cache->blocks[block->kind].bytes;
    return bytes;
}

/* Whether entries alone keep something on the disk. */
static bool has_evictable_on_disk(const ramet_cache *cache) {
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        for (uint32_t id = 0; id < cache->blocks[kind].n_touched; id++) {
            const ramet_block *block = ramet_blocks_at(&cache->blocks[kind], id);
            if (block->counts.refcount > 0 && block->name && block->counts.holds[RAMET_BY_CONTEXTS] == 0) return true;
        }
    return false;
}

/* Lock held, but not all the time. */
static void forget_doomed(ramet_cache *cache) {
    ramet_cache_unlock(cache);
    ramet_cache_lock(cache);
}

/* Both locks held, the cache's not all the time. Nothing can be written: entries go, which are a cache of what can be run
 * again, if that helps: it gives memory, or disk for another try. */
static ramet_status evict_instead(ramet_cache *cache, uint64_t bytes, uint64_t batch_bytes, ramet_status status) {
    if (bytes <= room_left(cache) + evictable_bytes(cache)) {
        while (bytes > room_left(cache) && ramet_tree_evict(cache)) continue;
        return bytes <= room_left(cache) ? RAMET_OK : status;
    }
    if (status != RAMET_E_NO_DISK || !has_evictable_on_disk(cache)) return status;
    uint64_t before = cache->paged.on_disk_bytes;
    while (before - cache->paged.on_disk_bytes < batch_bytes && ramet_tree_evict(cache)) continue;
    bool has_gone = cache->paged.on_disk_bytes < before;
    forget_doomed(cache);
    return has_gone ? RAMET_OK : status;
}

/* Both locks held, the cache's not all the time. One batch of what is missing, or entries instead; then look again: what
 * is needed may be less by then. */
static ramet_status make_some_room(ramet_cache *cache, uint64_t bytes, ramet_error *error) {
    batch b = {.n = 0};
    if (bytes <= room_left(cache)) return RAMET_OK;
    uint64_t missing = bytes - room_left(cache);
    while (b.n < BATCH && b.bytes < missing && cache->idle.coldest) take_out(cache, &b, cache->idle.coldest);
    if (b.n == 0) return all_in_use(cache, bytes, error);
    ramet_status status = write_out(cache, &b, error);
    return status == RAMET_OK ? RAMET_OK : evict_instead(cache, bytes, b.bytes, status);
}

/* Lock held, but not all the time. */
static void take_pager(ramet_cache *cache) {
    pthread_mutex_unlock(&cache->lock);
    pthread_mutex_lock(&cache->pager_lock);
    ramet_cache_lock(cache);
}

ramet_status ramet_room_clear(ramet_context *context, ramet_error *error) {
    ramet_cache *cache = context->cache;
    ramet_status status = RAMET_OK;
    take_pager(cache);
    for (uint32_t i = 0; i < ramet_context_n_blocks(context) && status == RAMET_OK;) {
        batch b = {.n = 0};
        for (; i < ramet_context_n_blocks(context) && b.n < BATCH; i++) {
            ramet_block *block = ramet_context_block(context, i);
            if (block && block->slot != RAMET_NO_SLOT && block->n_users == 0) take_out(cache, &b, block);
        }
        if (b.n > 0) status = write_out(cache, &b, error);
    }
    pthread_mutex_unlock(&cache->pager_lock);
    return status;
}

/* ---- making room ---- */

/* Without a pager. Nothing is evicted when evicting all of them would not help. */
static ramet_status evict_one(ramet_cache *cache, ramet_need need, ramet_error *error) {
    uint64_t held = 0, bytes = cache->blocks[need.kind].bytes, budget = cache->options.budget_bytes;
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        held += cache->blocks[kind].n_held[RAMET_BY_CONTEXTS] * cache->blocks[kind].bytes;
    uint64_t left = held < budget ? budget - held : 0;
    if (need.n_without_tree * bytes <= left && ramet_tree_evict(cache)) return RAMET_OK;
    return ramet_fail(
        error, RAMET_E_BUDGET,
        "%u blocks of %llu bytes are needed, and of the memory budget's %llu bytes open contexts and pinned "
        "prefixes hold all but %llu: close a context, give a spill directory (--ctx-spill-dir), or raise "
        "the budget (--ctx-mem-budget)",
        need.n_without_tree, (unsigned long long)bytes, (unsigned long long)budget, (unsigned long long)left);
}

ramet_status ramet_room_make(ramet_cache *cache, ramet_need need, ramet_error *error) {
    if (!ramet_has_pager(cache)) return evict_one(cache, need, error);
    uint64_t bytes = need.n * cache->blocks[need.kind].bytes;
    if (!has_headers(cache, need)) {
        if (!ramet_tree_evict(cache))
            return ramet_fail(error, RAMET_E_BUDGET, "%u blocks are kept, and no more can be: close a context",
                              cache->blocks[need.kind].n_live);
        forget_doomed(cache);
        return RAMET_OK;
    }
    RAMET_TRY(ramet_room_check_use(cache, bytes, error));
    take_pager(cache);
    ramet_status status = make_some_room(cache, bytes, error);
    pthread_mutex_unlock(&cache->pager_lock);
    return status;
}

/* ---- back ---- */

/* A block that was read, or not. True: the copy is not needed. */
static bool settle_back(ramet_cache *cache, ramet_block *block, ramet_status status) {
    block->is_moving = false;
    if (status == RAMET_OK) {
        block->name = 0;
        cache->paged.on_disk_bytes -= cache->blocks[block->kind].bytes;
        cache->paged.n_read++;
        cache->paged.read_bytes += cache->blocks[block->kind].bytes;
        return true;
    }
    ramet_block_give_slot(cache, block);
    if (status != RAMET_E_NO_MEMORY && status != RAMET_E_BUDGET) {
        block->lost = (uint8_t)status;
        cache->paged.blocks_lost++;
    }
    return false;
}

/* Both locks held, the cache's not all the time. */
static ramet_status read_back(ramet_cache *cache, batch *b, ramet_error *error) {
    ramet_status status = move(cache, cache->pager.read, b, &cache->paged.read_nanoseconds, error);
    uint64_t unwanted[BATCH];
    uint32_t n_unwanted = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        RAMET_ASSERT(status != RAMET_OK || b->items[i].status == RAMET_OK, "a pager has hidden a failure");
        if (settle_back(cache, b->blocks[i], b->items[i].status)) unwanted[n_unwanted++] = b->items[i].name;
    }
    forget(cache, unwanted, n_unwanted);
    return status;
}

/* The next blocks that are not in memory, from *next on: up to a batch, *bytes of them. */
static uint32_t find_missing(const ramet_context *context, uint32_t *next, ramet_block *out[BATCH], uint64_t *bytes) {
    uint32_t n = 0;
    *bytes = 0;
    for (; *next < ramet_context_n_blocks(context) && n < BATCH; ++*next) {
        ramet_block *block = ramet_context_block(context, *next);
        if (!block || block->slot != RAMET_NO_SLOT) continue;
        out[n++] = block;
        *bytes += context->cache->blocks[block->kind].bytes;
    }
    return n;
}

static ramet_status fetch_batch(ramet_cache *cache, ramet_block *const *missing, uint32_t n, uint64_t bytes,
                                ramet_error *error) {
    batch b = {.n = 0};
    while (bytes > room_left(cache)) RAMET_TRY(make_some_room(cache, bytes, error));
    for (uint32_t i = 0; i < n; i++) {
        ramet_block_take_slot(cache, missing[i]);
        add(cache, &b, missing[i]);
    }
    return read_back(cache, &b, error);
}

ramet_status ramet_room_fetch(ramet_context *context, ramet_error *error) {
    ramet_cache *cache = context->cache;
    take_pager(cache); /* what was on its way has arrived */
    ramet_status status = RAMET_OK;
    if (ramet_context_lost_block(context) != RAMET_OK) /* somebody else has found out */
        status = ramet_fail(error, ramet_context_lost_block(context), "a part of the context could not be read back");
    for (uint32_t next = 0; status == RAMET_OK && next < ramet_context_n_blocks(context);) {
        ramet_block *missing[BATCH];
        uint64_t bytes;
        uint32_t n = find_missing(context, &next, missing, &bytes);
        if (n > 0) status = fetch_batch(cache, missing, n, bytes, error);
    }
    pthread_mutex_unlock(&cache->pager_lock);
    return status;
}
