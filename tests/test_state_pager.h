/* test_state_pager.h - a pager in memory for the tests of the state room: it keeps copies, writes down what it is asked,
 * fails when told, and notices what no cache may ask of it. After test_state_fixture.h.
 *
 * The first misuse is kept, and close_pager wants none: a name written twice, a block that is read or forgotten but not
 * there, two threads at once, a batch of more than 32; while it watches a cache that one thread uses: a block of a
 * context in use written out, more in memory than the budget. */
#ifndef RAMET_TEST_STATE_PAGER_H
#define RAMET_TEST_STATE_PAGER_H

#include "test_state_fixture.h"

#include <time.h>

enum { PAGER_LISTS = 1024, PAGER_BATCH = 32, PAGER_LOG = 4096 };

typedef struct pager_copy pager_copy;
struct pager_copy {
    pager_copy *next;
    uint64_t name, bytes;
    uint8_t data[];
};

/* The names in the order in which they came; the first PAGER_LOG of them. */
typedef struct pager_log {
    uint64_t names[PAGER_LOG];
    uint64_t n;
    uint32_t n_calls;
} pager_log;

typedef struct test_pager {
    pthread_mutex_t lock;
    pager_copy *lists[PAGER_LISTS];
    uint64_t n_kept, kept_bytes;
    pager_log written, read;
    atomic_int n_inside;
    _Atomic(const char *) misuse;
    const ramet_cache *watched; /* NULL: none */
    /* What is to go wrong. */
    ramet_status write_fails; /* from the write after the next `writes_before` on; RAMET_OK: never */
    uint32_t writes_before;
    ramet_status read_fails; /* of the block with this name */
    uint64_t unreadable, n_asked;
    uint32_t lose_each, refuse_each; /* every so many blocks one is not read, for good or this time; 0: never */
    uint32_t slow_each, slow_us;     /* every so many blocks it sleeps; 0: never */
} test_pager;

static inline void pager_misused(test_pager *p, const char *how) {
    const char *none = NULL;
    atomic_compare_exchange_strong(&p->misuse, &none, how);
}

static inline pager_copy **pager_find(test_pager *p, uint64_t name) {
    pager_copy **place = &p->lists[name % PAGER_LISTS];
    while (*place && (*place)->name != name) place = &(*place)->next;
    return place;
}

static inline void pager_log_add(pager_log *log, uint64_t name) {
    if (log->n < PAGER_LOG) log->names[log->n] = name;
    log->n++;
}

/* Whether a context in use reaches the block that lies there. */
static inline bool pager_sees_use(const ramet_cache *cache, const uint8_t *data) {
    for (uint32_t i = 0; i < cache->contexts.n_touched; i++) {
        const ramet_context *context = &cache->contexts.slots[i];
        for (uint32_t k = 0; context->cache && context->is_used && k < ramet_context_n_blocks(context); k++) {
            const ramet_block *block = ramet_context_block(context, k);
            if (block && block->slot != RAMET_NO_SLOT && ramet_block_data(cache, block) == data) return true;
        }
    }
    return false;
}

static inline void pager_enter(test_pager *p, uint32_t n) {
    if (atomic_fetch_add(&p->n_inside, 1) != 0) pager_misused(p, "two threads at once");
    if (n == 0 || n > PAGER_BATCH) pager_misused(p, "a batch of none or of more than 32");
    if (p->watched && ramet_memory_bytes(p->watched) > p->watched->options.budget_bytes)
        pager_misused(p, "more in memory than the budget");
    for (uint32_t i = 0; i < n; i++)
        if (p->slow_each > 0 && (p->written.n + p->read.n + i) % p->slow_each == p->slow_each - 1)
            nanosleep(&(struct timespec){.tv_nsec = p->slow_us * 1000L}, NULL);
}

static inline void pager_leave(test_pager *p) {
    atomic_fetch_sub(&p->n_inside, 1);
}

static inline void pager_keep(test_pager *p, const ramet_pager_item *item) {
    pager_copy **place = pager_find(p, item->name), *copy;
    if (*place || item->name == 0) {
        pager_misused(p, "a name is written twice, or is 0");
        return;
    }
    if (p->watched && pager_sees_use(p->watched, item->data)) pager_misused(p, "a block in use is written out");
    copy = malloc(sizeof *copy + item->bytes);
    copy->next = NULL;
    copy->name = item->name;
    copy->bytes = item->bytes;
    memcpy(copy->data, item->data, item->bytes);
    *place = copy;
    p->n_kept++;
    p->kept_bytes += item->bytes;
    pager_log_add(&p->written, item->name);
}

static inline ramet_status pager_write(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    test_pager *p = user;
    pager_enter(p, n);
    p->written.n_calls++;
    ramet_status status = RAMET_OK;
    if (p->write_fails != RAMET_OK && p->writes_before == 0)
        status = ramet_fail(error, p->write_fails, "the disk of the test is full");
    else if (p->writes_before > 0)
        p->writes_before--;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; status == RAMET_OK && i < n; i++) pager_keep(p, &items[i]);
    pthread_mutex_unlock(&p->lock);
    pager_leave(p);
    return status;
}

static inline ramet_status pager_failure(test_pager *p, uint64_t name) {
    uint64_t n = ++p->n_asked;
    if (p->unreadable == name) return p->read_fails;
    if (p->lose_each > 0 && n % p->lose_each == 0) return RAMET_E_CORRUPT;
    return p->refuse_each > 0 && n % p->refuse_each == 0 ? RAMET_E_NO_MEMORY : RAMET_OK;
}

static inline ramet_status pager_fetch(test_pager *p, ramet_pager_item *item, ramet_error *error) {
    pager_copy *copy = *pager_find(p, item->name);
    if (!copy || copy->bytes != item->bytes) {
        pager_misused(p, "a block is read that is not there");
        return ramet_fail(error, RAMET_E_NOT_FOUND, "no block of this name");
    }
    ramet_status failure = pager_failure(p, item->name);
    if (failure != RAMET_OK) {
        memset(item->data, 0xee, item->bytes); /* what a failed read may leave there */
        return ramet_fail(error, failure, "the test does not read block %llu", (unsigned long long)item->name);
    }
    memcpy(item->data, copy->data, item->bytes);
    pager_log_add(&p->read, item->name);
    return RAMET_OK;
}

static inline ramet_status pager_read(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    test_pager *p = user;
    pager_enter(p, n);
    p->read.n_calls++;
    ramet_status first = RAMET_OK;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < n; i++) {
        ramet_error own;
        items[i].status = pager_fetch(p, &items[i], &own);
        if (items[i].status == RAMET_OK || first != RAMET_OK) continue;
        first = items[i].status;
        if (error) *error = own;
    }
    pthread_mutex_unlock(&p->lock);
    pager_leave(p);
    return first;
}

static inline void pager_forget(void *user, uint64_t name) {
    test_pager *p = user;
    pthread_mutex_lock(&p->lock);
    pager_copy **place = pager_find(p, name), *copy = *place;
    if (copy) {
        *place = copy->next;
        p->n_kept--;
        p->kept_bytes -= copy->bytes;
        free(copy);
    } else {
        pager_misused(p, "a block is forgotten that is not there");
    }
    pthread_mutex_unlock(&p->lock);
}

static inline ramet_pager pager_of(test_pager *p) {
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    return (ramet_pager){.write = pager_write, .read = pager_read, .forget = pager_forget, .user = p};
}

/* A cache with this pager, watched, which one thread uses. */
static inline ramet_cache *open_paged_cache(test_pager *p, ramet_cache_options options) {
    ramet_pager pager = pager_of(p);
    options.pager = &pager;
    ramet_cache *cache = open_cache_of(&options);
    p->watched = cache;
    return cache;
}

static inline void assert_no_misuse(test_pager *p) {
    const char *misuse = atomic_load(&p->misuse);
    if (misuse) fail_msg("the pager: %s", misuse);
}

/* Everything is closed. */
static inline void close_paged_cache(test_pager *p, ramet_cache **cache) {
    ramet_tree_clear(*cache);
    check(*cache);
    ramet_cache_destroy(cache);
    assert_no_misuse(p);
    assert_int_equal(p->n_kept, 0);
    pthread_mutex_destroy(&p->lock);
}

/* A context of n tokens of a text, left. */
static inline ramet_context *leave_context(ramet_cache *cache, uint32_t n, int32_t text) {
    ramet_context *context = open_context(cache);
    extend_with(context, n, text);
    ramet_context_leave(context);
    return context;
}

static inline ramet_status try_spill(ramet_context *context, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_write_out(context, error);
    ramet_context_leave(context);
    return status;
}

static inline void spill(ramet_context *context) {
    assert_ok(try_spill(context, error));
}

/* Uses a context that was left and looks at all of it. */
static inline void assert_lawful(ramet_context *context) {
    enter_and_use(context);
    assert_false(ramet_context_is_spilled(context));
    assert_true(is_lawful(context));
    ramet_context_leave(context);
}

static inline void close_left(ramet_context **context) {
    if (!*context) return;
    assert_ok(ramet_context_enter(*context, error));
    ramet_context_destroy(context);
}

/* ---- small caches, and contexts that are left ---- */

enum { PAGE_BYTES = 16 * POSITION_BYTES, STATE_BYTES = 40 };

static inline ramet_cache *open_small(test_pager *pager, uint32_t n_pages) {
    return open_paged_cache(pager, options_of(16, n_pages, 1000));
}

/* With a state for each, and so many bytes beside the pages for tails. */
static inline ramet_cache *open_with_states(test_pager *pager, uint32_t n_pages, uint32_t tails_bytes) {
    ramet_cache_options options = options_of(16, n_pages, 1000);
    options.state_bytes = STATE_BYTES;
    options.budget_bytes = n_pages * PAGE_BYTES + tails_bytes;
    return open_paged_cache(pager, options);
}

/* A fork of a context that was left, left. */
static inline ramet_context *left_fork_of(ramet_context *context) {
    ramet_context *fork;
    assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_context_share(context, &fork, error));
    ramet_context_leave(context);
    return fork;
}

static inline bool is_out(const ramet_block *block) {
    return block->slot == RAMET_NO_SLOT;
}

static inline ramet_block *page_of(const ramet_context *context, uint32_t i) {
    return ramet_table_page(&context->table, i);
}

static inline uint32_t count_out(const ramet_context *context) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < ramet_context_n_blocks(context); i++) {
        const ramet_block *block = ramet_context_block(context, i);
        n += block && is_out(block);
    }
    return n;
}

static inline void close_all(ramet_context **contexts, size_t n) {
    for (size_t i = 0; i < n; i++) close_left(&contexts[i]);
}

#endif
