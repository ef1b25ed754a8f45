/* pager.c - see pager.h. */
#include "lockstep/lockstep.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

static pager_copy **find(walk_pager *p, uint64_t name) {
    pager_copy **place = &p->lists[name % WALK_PAGER_LISTS];
    while (*place && (*place)->name != name) place = &(*place)->next;
    return place;
}

const uint8_t *walk_pager_peek(const walk_pager *p, uint64_t name) {
    const pager_copy *copy = p->lists[name % WALK_PAGER_LISTS];
    while (copy && copy->name != name) copy = copy->next;
    require(copy, "K9: block %llu is said to be written out and is not there", (unsigned long long)name);
    return copy->data;
}

static void keep(walk_pager *p, const ramet_pager_item *item) {
    pager_copy **place = find(p, item->name), *copy = malloc(sizeof *copy + item->bytes);
    require(!*place && item->name > 0, "K9: block %llu is written twice", (unsigned long long)item->name);
    if (!copy) abort();
    *copy = (pager_copy){.name = item->name, .bytes = item->bytes};
    memcpy(copy->data, item->data, item->bytes);
    *place = copy;
    p->kept_bytes += item->bytes;
    p->n_written++;
}

/* ---- what may be asked ---- */

/* The block that lies there. */
static const ramet_block *block_at(const ramet_cache *cache, const uint8_t *data) {
    for (int kind = 0; kind < RAMET_KINDS; kind++) {
        const ramet_slab *slab = &cache->blocks[kind].slab;
        uintptr_t off = (uintptr_t)data - (uintptr_t)slab->data;
        if (!slab->data || off >= slab->n_slots * slab->stride) continue;
        return ramet_blocks_at(&cache->blocks[kind], slab->slots[off / slab->stride].block);
    }
    lockstep_fail("K9: something that is no block is written out");
}

static void require_sense(const walk_pager *p, const ramet_pager_item *items, uint32_t n, bool is_write) {
    require(p->may_move, "blocks move where nothing has to");
    require(n > 0 && n <= WALK_PAGER_BATCH, "a batch of %u", n);
    require(ramet_memory_bytes(p->cache) <= p->cache->options.budget_bytes, "K11: %llu bytes in memory on the way",
            (unsigned long long)ramet_memory_bytes(p->cache));
    for (uint32_t i = 0; i < n; i++) {
        const ramet_block *block = block_at(p->cache, items[i].data);
        require(items[i].bytes == p->cache->blocks[block->kind].bytes, "a block of %llu bytes",
                (unsigned long long)items[i].bytes);
        require(!is_write || block->n_users == 0, "K9: a block in use is written out");
    }
}

/* ---- the pager ---- */

static ramet_status write_all(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    walk_pager *p = user;
    require_sense(p, items, n, true);
    if (p->fault == WRITES_FAIL && p->n_before-- == 0) {
        p->n_before = 0;
        p->has_write_failed = true;
        return ramet_fail(error, RAMET_E_NO_DISK, "the disk of the walk is full");
    }
    for (uint32_t i = 0; i < n; i++) keep(p, &items[i]);
    return RAMET_OK;
}

static ramet_status lose(walk_pager *p, pager_copy *copy) {
    copy->is_lost = true;
    require(p->n_lost < WALK_PAGER_BATCH, "more blocks are read after one was lost");
    p->lost[p->n_lost++] = (pager_loss){copy->name, p->lose_with};
    return p->lose_with;
}

/* RAMET_OK: it goes well. */
static ramet_status go_wrong(walk_pager *p, pager_copy *copy) {
    if (p->fault < A_READ_FAILS || p->n_before-- > 0) return RAMET_OK;
    if (p->fault == A_READ_LOSES) return lose(p, copy);
    bool loses = p->fault == READS_LOSE;
    p->n_before = p->fault == A_READ_FAILS ? UINT32_MAX : 0;
    if (p->fault == FIRST_FAILS_REST_LOSE) p->fault = READS_LOSE;
    if (loses) return lose(p, copy);
    p->has_read_failed = true;
    return RAMET_E_NO_MEMORY;
}

static ramet_status read_one(walk_pager *p, const ramet_pager_item *item) {
    pager_copy *copy = *find(p, item->name);
    require(copy && copy->bytes == item->bytes, "K9: block %llu is read and is not there",
            (unsigned long long)item->name);
    require(!copy->is_lost, "K9: a lost block is read again");
    ramet_status status = go_wrong(p, copy);
    if (status == RAMET_OK) {
        memcpy(item->data, copy->data, item->bytes);
        p->n_read++;
    } else {
        memset(item->data, 0xee, item->bytes); /* what a failed read may leave there */
    }
    return status;
}

static ramet_status read_all(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    walk_pager *p = user;
    ramet_status first = RAMET_OK;
    require_sense(p, items, n, false);
    for (uint32_t i = 0; i < n; i++) {
        items[i].status = read_one(p, &items[i]);
        if (first == RAMET_OK) first = items[i].status;
    }
    return first == RAMET_OK ? RAMET_OK : ramet_fail(error, first, "the walk's pager does not read that");
}

static void forget(void *user, uint64_t name) {
    walk_pager *p = user;
    pager_copy **place = find(p, name), *copy = *place;
    require(copy, "K9: block %llu is forgotten and is not there", (unsigned long long)name);
    *place = copy->next;
    p->kept_bytes -= copy->bytes;
    free(copy);
}

ramet_pager walk_pager_of(walk_pager *p) {
    return (ramet_pager){.write = write_all, .read = read_all, .forget = forget, .user = p};
}

/* ---- faults ---- */

uint32_t walk_pager_draw(uint64_t *rng) {
    uint32_t n_before = lockstep_below(rng, 2) ? 0 : lockstep_below(rng, 12);
    uint32_t kind = lockstep_below(rng, 2) ? WRITES_FAIL : 1 + lockstep_below(rng, N_FAULTS - 1);
    return kind + N_FAULTS * n_before;
}

void walk_pager_begin(walk_pager *p, uint32_t fault, uint32_t noise) {
    static const ramet_status losses[] = {RAMET_E_CORRUPT, RAMET_E_IO, RAMET_E_NOT_FOUND};
    p->fault = fault % N_FAULTS;
    p->n_before = fault / N_FAULTS;
    p->lose_with = losses[noise / 8 % 3];
    p->has_write_failed = p->has_read_failed = p->may_move = false;
    p->n_lost = 0;
}

void walk_pager_end(walk_pager *p) {
    p->fault = NO_FAULT;
    p->may_move = false;
}
