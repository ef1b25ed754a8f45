/* test_state_slab.c - what a trim gives back: the memory of free slots, up to a live neighbour and not a byte further.
 * The system hands memory that was given back out as zeros, so a look at the bytes tells. */
#include "test_state_fixture.h"

#include <unistd.h>

enum { SLOTS = 9, MAX_BYTES = 1 << 14 };

static ramet_slab open_slab(size_t page_bytes) {
    ramet_slab slab;
    ramet_cache_options options = {
        .page_tokens = 16, .page_bytes = page_bytes, .budget_bytes = (uint64_t)SLOTS * page_bytes};
    assert_ok(ramet_slab_init(&slab, &options, error));
    return slab;
}

/* What ramet_page_create and ramet_page_release do for a slot. */
static ramet_page *take(ramet_slab *slab, size_t page_bytes) {
    ramet_page *page = ramet_slab_take(slab);
    page->counts.refcount = 1;
    memset(ramet_slab_data(slab, page), (int)page->slot + 1, page_bytes);
    return page;
}

static void give(ramet_slab *slab, ramet_page *page) {
    page->counts.refcount = 0;
    ramet_slab_give(slab, page);
}

/* Bytes of the slot that are still there. */
static size_t count_kept(const ramet_slab *slab, const ramet_page *page, size_t page_bytes) {
    const uint8_t *data = ramet_slab_data(slab, page);
    size_t n = 0;
    for (size_t i = 0; i < page_bytes; i++) n += data[i] == page->slot + 1;
    return n;
}

/* Live: the slots in `live`. A border between a free and a live slot may keep less than one page of the system. */
static void trim_keeps(size_t page_bytes, uint32_t live) {
    size_t unit = (size_t)sysconf(_SC_PAGESIZE);
    ramet_slab slab = open_slab(page_bytes);
    ramet_page *pages[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++) pages[i] = take(&slab, page_bytes);
    for (uint32_t i = 0; i < SLOTS; i++)
        if (!(live >> i & 1)) give(&slab, pages[i]);
    for (uint32_t i = 0; i < SLOTS; i++) /* negative control: what was freed is there until the trim */
        assert_int_equal(count_kept(&slab, pages[i], page_bytes), page_bytes);
    ramet_slab_trim(&slab, 0);
    for (uint32_t i = 0; i < SLOTS; i++) {
        size_t kept = count_kept(&slab, pages[i], page_bytes);
        uint32_t n_borders = (i > 0 ? live >> (i - 1) & 1 : 0) + (i + 1 < SLOTS ? live >> (i + 1) & 1 : 0);
        if (live >> i & 1)
            assert_int_equal(kept, page_bytes);
        else
            assert_true(kept <= n_borders * (unit - 1));
    }
    ramet_slab_fini(&slab);
}

static void a_trim_takes_free_slots_alone(void **state) {
    (void)state;
    for (uint32_t live = 0; live < 1u << SLOTS; live++) {
        trim_keeps(MAX_BYTES, live);
        trim_keeps(MAX_BYTES / 2 + 64 * 5, live); /* slots do not begin where pages of the system do */
    }
}

static void a_slot_is_trimmed_again_after_it_was_out(void **state) {
    (void)state;
    ramet_slab slab = open_slab(MAX_BYTES);
    ramet_page *first = take(&slab, MAX_BYTES), *second = take(&slab, MAX_BYTES);
    give(&slab, first);
    ramet_slab_trim(&slab, 0);
    assert_int_equal(count_kept(&slab, first, MAX_BYTES), 0);
    assert_ptr_equal(take(&slab, MAX_BYTES), first);
    give(&slab, first);
    ramet_slab_trim(&slab, 0);
    assert_int_equal(count_kept(&slab, first, MAX_BYTES), 0);
    assert_int_equal(count_kept(&slab, second, MAX_BYTES), MAX_BYTES);
    ramet_slab_fini(&slab);
}

static void what_was_freed_before_stays(void **state) {
    (void)state;
    ramet_slab slab = open_slab(MAX_BYTES);
    ramet_page *early = take(&slab, MAX_BYTES), *late = take(&slab, MAX_BYTES);
    give(&slab, early);
    uint64_t since = slab.n_freed;
    give(&slab, late);
    ramet_slab_trim(&slab, since);
    assert_int_equal(count_kept(&slab, early, MAX_BYTES), MAX_BYTES);
    assert_int_equal(count_kept(&slab, late, MAX_BYTES), 0);
    ramet_slab_trim(&slab, 0);
    assert_int_equal(count_kept(&slab, early, MAX_BYTES), 0);
    ramet_slab_fini(&slab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trim_takes_free_slots_alone),
        cmocka_unit_test(a_slot_is_trimmed_again_after_it_was_out),
        cmocka_unit_test(what_was_freed_before_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
