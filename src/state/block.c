/* block.c - blocks: pages, rows of logits, recurrent states; who points at them, who holds them, who uses them.
 *
 *   header  [ counts | slot or name | tokens ]     stays where it is; a free one waits in a list
 *   memory  a slot of the kind's slab, while the block is in memory
 *
 * Owns K1's and K11's counts of blocks, K2 (allocated - freed = live) and the list of idle blocks. Refuses to know what
 * a block means, and who decides what goes out (room.c). */
#include "state/internal.h"

#include <string.h>

/* Headers outnumber slots where blocks can be written out: addresses, no memory. */
enum { HEADERS_PER_SLOT = 256 };

static uint64_t bytes_of(const ramet_cache_options *o, ramet_kind kind) {
    return kind == RAMET_PAGE ? o->page_bytes : kind == RAMET_LOGITS ? o->n_vocab * sizeof(float) : o->state_bytes;
}

const char *ramet_kind_name(ramet_kind kind) {
    static const char *const names[RAMET_KINDS] = {"page", "row of logits", "state"};
    return names[kind];
}

ramet_status ramet_blocks_init(ramet_blocks *blocks, const ramet_cache_options *o, ramet_kind kind,
                               ramet_error *error) {
    uint64_t bytes = bytes_of(o, kind), n_slots = bytes > 0 ? o->budget_bytes / bytes : 0, n_headers, total;
    *blocks = (ramet_blocks){.bytes = bytes};
    if (bytes > 0 && n_slots == 0)
        return ramet_fail(
            error, RAMET_E_BUDGET,
            "the memory budget of %llu bytes is less than one %s (%llu bytes): raise it (--ctx-mem-budget)",
            (unsigned long long)o->budget_bytes, ramet_kind_name(kind), (unsigned long long)bytes);
    if (n_slots == 0) return ramet_slab_init(&blocks->slab, 0, bytes, error);
    size_t n_tokens = kind == RAMET_PAGE ? o->page_tokens : 0;
    blocks->header_stride = (sizeof(ramet_block) + n_tokens * sizeof(int32_t) + 63) & ~(size_t)63;
    if (!ramet_mul_u64(n_slots, o->pager ? HEADERS_PER_SLOT : 1, &n_headers) || n_headers > UINT32_MAX / 2)
        n_headers = UINT32_MAX / 2;
    RAMET_TRY(ramet_slab_init(&blocks->slab, n_slots, bytes, error));
    blocks->slab.is_tight = o->pager != NULL;
    if (ramet_mul_u64(n_headers, blocks->header_stride, &total) && total <= SIZE_MAX)
        blocks->headers = ramet_reserve((size_t)total);
    blocks->n_headers = (uint32_t)n_headers;
    if (blocks->headers) return RAMET_OK;
    ramet_blocks_fini(blocks);
    return ramet_fail(error, RAMET_E_NO_MEMORY,
                      "cannot reserve addresses for the memory budget of %llu bytes: lower it",
                      (unsigned long long)o->budget_bytes);
}

void ramet_blocks_fini(ramet_blocks *blocks) {
    if (blocks->headers) ramet_unmap(blocks->headers, blocks->n_headers * blocks->header_stride);
    ramet_slab_fini(&blocks->slab);
    *blocks = (ramet_blocks){0};
}

ramet_block *ramet_blocks_at(const ramet_blocks *blocks, uint32_t id) {
    return (ramet_block *)(void *)(blocks->headers + id * blocks->header_stride);
}

bool ramet_blocks_know(const ramet_blocks *blocks, const ramet_block *block) {
    uintptr_t off = (uintptr_t)block - (uintptr_t)blocks->headers;
    return blocks->headers && off % blocks->header_stride == 0 && off / blocks->header_stride < blocks->n_touched;
}

uint8_t *ramet_block_data(const ramet_cache *cache, const ramet_block *block) {
    RAMET_ASSERT(block->slot != RAMET_NO_SLOT, "K9: the bytes of block %u are wanted, which is written out", block->id);
    return ramet_slab_data(&cache->blocks[block->kind].slab, block->slot);
}

/* ---- in memory and idle ---- */

void ramet_idle_add(ramet_cache *cache, ramet_block *block, bool is_coldest) {
    ramet_idle *idle = &cache->idle;
    if (!ramet_has_pager(cache)) return;
    block->colder = is_coldest ? NULL : idle->warmest;
    block->warmer = is_coldest ? idle->coldest : NULL;
    *(block->colder ? &block->colder->warmer : &idle->coldest) = block;
    *(block->warmer ? &block->warmer->colder : &idle->warmest) = block;
}

void ramet_idle_remove(ramet_cache *cache, ramet_block *block) {
    ramet_idle *idle = &cache->idle;
    if (!ramet_has_pager(cache)) return;
    *(block->colder ? &block->colder->warmer : &idle->coldest) = block->warmer;
    *(block->warmer ? &block->warmer->colder : &idle->warmest) = block->colder;
}

static bool is_idle(const ramet_block *block) {
    return block->slot != RAMET_NO_SLOT && block->n_users == 0 && !block->is_moving;
}

void ramet_block_use(ramet_cache *cache, ramet_block *block) {
    if (!ramet_has_pager(cache) || !block) return;
    if (is_idle(block)) ramet_idle_remove(cache, block);
    if (block->n_users++ == 0) cache->blocks[block->kind].n_used++;
}

void ramet_block_unuse(ramet_cache *cache, ramet_block *block) {
    if (!ramet_has_pager(cache) || !block) return;
    RAMET_ASSERT(block->n_users > 0, "K9: block %u is let go by a user that it does not have", block->id);
    if (--block->n_users > 0) return;
    cache->blocks[block->kind].n_used--;
    if (is_idle(block)) ramet_idle_add(cache, block, false);
}

static uint64_t warm_bytes(const ramet_cache *cache) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < RAMET_KINDS; kind++) bytes += cache->blocks[kind].slab.n_warm * cache->blocks[kind].bytes;
    return bytes;
}

/* Memory that another kind has spare goes back first: what is warm never exceeds the budget. */
static void keep_within_budget(ramet_cache *cache, const ramet_blocks *blocks) {
    for (int kind = 0; kind < RAMET_KINDS; kind++) {
        if (warm_bytes(cache) + blocks->bytes <= cache->options.budget_bytes) return;
        if (&cache->blocks[kind] != blocks) ramet_slab_trim(&cache->blocks[kind].slab, 0);
    }
}

void ramet_block_take_slot(ramet_cache *cache, ramet_block *block) {
    ramet_blocks *blocks = &cache->blocks[block->kind];
    if (ramet_slab_is_cold(&blocks->slab)) keep_within_budget(cache, blocks);
    block->slot = ramet_slab_take(&blocks->slab, block->id);
}

void ramet_block_give_slot(ramet_cache *cache, ramet_block *block) {
    ramet_slab_give(&cache->blocks[block->kind].slab, block->slot);
    block->slot = RAMET_NO_SLOT;
}

/* ---- life ---- */

ramet_block *ramet_block_create(ramet_cache *cache, ramet_kind kind) {
    ramet_blocks *blocks = &cache->blocks[kind];
    ramet_block *block = blocks->free;
    if (block) {
        blocks->free = block->colder;
    } else {
        RAMET_ASSERT(blocks->n_touched < blocks->n_headers, "K2: header %u asked for without room", blocks->n_touched);
        block = ramet_blocks_at(blocks, blocks->n_touched);
        block->id = blocks->n_touched++;
        block->kind = (uint8_t)kind;
    }
    block->counts = (ramet_counts){.refcount = 1, .holds[RAMET_BY_CONTEXTS] = 1};
    block->n_tokens = 0;
    blocks->n_live++;
    blocks->n_allocated++;
    blocks->n_held[RAMET_BY_CONTEXTS]++;
    ramet_block_take_slot(cache, block);
    ramet_idle_add(cache, block, false);
    return block;
}

ramet_block *ramet_block_copy(ramet_cache *cache, const ramet_block *source) {
    ramet_block *block = ramet_block_create(cache, (ramet_kind)source->kind);
    memcpy(block->tokens, source->tokens, cache->options.page_tokens * sizeof block->tokens[0]);
    memcpy(ramet_block_data(cache, block), ramet_block_data(cache, source), (size_t)cache->options.page_bytes);
    cache->blocks[source->kind].n_copied++;
    return block;
}

/* What the pager has of it is forgotten after the lock is let go; only then its header can be another block's. */
void ramet_block_free(ramet_cache *cache, ramet_block *block) {
    ramet_blocks *blocks = &cache->blocks[block->kind];
    if (is_idle(block)) ramet_idle_remove(cache, block);
    if (block->slot != RAMET_NO_SLOT) ramet_block_give_slot(cache, block);
    blocks->n_live--;
    blocks->n_freed++;
    block->lost = RAMET_OK;
    if (block->name) cache->paged.on_disk_bytes -= blocks->bytes;
    block->colder = block->name ? cache->doomed : blocks->free;
    *(block->name ? &cache->doomed : &blocks->free) = block;
    blocks->n_doomed += block->name != 0;
}

void ramet_blocks_forget(ramet_cache *cache, ramet_block *doomed) {
    for (ramet_block *block = doomed; block; block = block->colder) cache->pager.forget(cache->pager.user, block->name);
    ramet_cache_lock(cache);
    for (ramet_block *block = doomed, *next; block; block = next) {
        ramet_blocks *blocks = &cache->blocks[block->kind];
        next = block->colder;
        block->name = 0;
        block->colder = blocks->free;
        blocks->free = block;
        blocks->n_doomed--;
    }
    pthread_mutex_unlock(&cache->lock);
}

void ramet_block_retain(ramet_block *block) {
    RAMET_ASSERT(block->counts.refcount > 0, "K2: block %u is retained but free", block->id);
    block->counts.refcount++;
}

void ramet_block_release(ramet_cache *cache, ramet_block *block) {
    RAMET_ASSERT(block->counts.refcount > 0, "K2: block %u is released but free", block->id);
    if (--block->counts.refcount > 0) return;
    RAMET_ASSERT(block->counts.holds[RAMET_BY_CONTEXTS] + block->counts.holds[RAMET_BY_TREE] + block->n_users == 0,
                 "K1: block %u is freed but held by %u and %u and used by %u", block->id,
                 block->counts.holds[RAMET_BY_CONTEXTS], block->counts.holds[RAMET_BY_TREE], block->n_users);
    if (!block->is_moving) ramet_block_free(cache, block); /* else room.c does, when it has arrived */
}

void ramet_block_hold(ramet_cache *cache, ramet_block *block, ramet_holder holder) {
    if (block->counts.holds[holder]++ == 0) cache->blocks[block->kind].n_held[holder]++;
}

void ramet_block_unhold(ramet_cache *cache, ramet_block *block, ramet_holder holder) {
    RAMET_ASSERT(block->counts.holds[holder] > 0, "K11: block %u is let go by a holder that has none", block->id);
    if (--block->counts.holds[holder] == 0) cache->blocks[block->kind].n_held[holder]--;
}

ramet_block *ramet_block_share(ramet_cache *cache, ramet_block *block, ramet_holder holder) {
    if (!block) return NULL;
    ramet_block_retain(block);
    ramet_block_hold(cache, block, holder);
    return block;
}

void ramet_block_drop(ramet_cache *cache, ramet_block **place, ramet_holder holder) {
    ramet_block *block = *place;
    *place = NULL;
    if (!block) return;
    ramet_block_unhold(cache, block, holder);
    ramet_block_release(cache, block);
}
