/* test_state_slab.c - what a trim gives back: the memory of free slots, up to a live neighbour and not a byte further.
 * The system hands memory that was given back out as zeros, so a look at the bytes tells. */
#include "test_state_fixture.h"

#include <unistd.h>

enum { SLOTS = 9, MAX_BYTES = 1 << 14 };

static ramet_slab open_slab(size_t bytes) {
    ramet_slab slab;
    assert_ok(ramet_slab_init(&slab, SLOTS, bytes, error));
    return slab;
}

/* Its bytes say which it is. */
static uint32_t take(ramet_slab *slab, size_t bytes) {
    uint32_t slot = ramet_slab_take(slab, 77);
    memset(ramet_slab_data(slab, slot), (int)slot + 1, bytes);
    return slot;
}

/* Bytes of the slot that are still there. */
static size_t count_kept(const ramet_slab *slab, uint32_t slot, size_t bytes) {
    const uint8_t *data = ramet_slab_data(slab, slot);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += data[i] == slot + 1;
    return n;
}

/* Live: the slots in `live`. A border between a free and a live slot may keep less than one page of the system. */
static void trim_keeps(size_t bytes, uint32_t live) {
    size_t unit = (size_t)sysconf(_SC_PAGESIZE);
    ramet_slab slab = open_slab(bytes);
    uint32_t n_live = 0;
    for (uint32_t i = 0; i < SLOTS; i++) assert_int_equal(take(&slab, bytes), i);
    for (uint32_t i = 0; i < SLOTS; i++) {
        n_live += live >> i & 1;
        if (!(live >> i & 1)) ramet_slab_give(&slab, i);
    }
    for (uint32_t i = 0; i < SLOTS; i++) /* negative control: what was freed is there until the trim */
        assert_int_equal(count_kept(&slab, i, bytes), bytes);
    assert_int_equal(slab.n_warm, SLOTS);
    ramet_slab_trim(&slab, 0);
    assert_int_equal(slab.n_warm, n_live);
    for (uint32_t i = 0; i < SLOTS; i++) {
        size_t kept = count_kept(&slab, i, bytes);
        uint32_t n_borders = (i > 0 ? live >> (i - 1) & 1 : 0) + (i + 1 < SLOTS ? live >> (i + 1) & 1 : 0);
        if (live >> i & 1)
            assert_int_equal(kept, bytes);
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
    uint32_t first = take(&slab, MAX_BYTES), second = take(&slab, MAX_BYTES);
    for (int i = 0; i < 2; i++) {
        ramet_slab_give(&slab, first);
        ramet_slab_trim(&slab, 0);
        assert_int_equal(count_kept(&slab, first, MAX_BYTES), 0);
        assert_true(ramet_slab_is_cold(&slab)); /* the next one costs memory */
        assert_int_equal(take(&slab, MAX_BYTES), first);
    }
    assert_int_equal(count_kept(&slab, second, MAX_BYTES), MAX_BYTES);
    ramet_slab_fini(&slab);
}

static void what_was_freed_before_stays(void **state) {
    (void)state;
    ramet_slab slab = open_slab(MAX_BYTES);
    uint32_t early = take(&slab, MAX_BYTES), late = take(&slab, MAX_BYTES);
    ramet_slab_give(&slab, early);
    uint64_t since = slab.n_given;
    ramet_slab_give(&slab, late);
    ramet_slab_trim(&slab, since);
    assert_int_equal(count_kept(&slab, early, MAX_BYTES), MAX_BYTES);
    assert_int_equal(count_kept(&slab, late, MAX_BYTES), 0);
    assert_int_equal(slab.n_warm, 1);
    ramet_slab_fini(&slab);
}

/* A slot that has its memory goes out first, then one that had, then one that never did: no more is taken than needed. */
static void what_costs_nothing_goes_out_first(void **state) {
    (void)state;
    ramet_slab slab = open_slab(MAX_BYTES);
    uint32_t slots[4];
    for (uint32_t i = 0; i < 4; i++) slots[i] = take(&slab, MAX_BYTES);
    ramet_slab_give(&slab, slots[3]);
    ramet_slab_trim(&slab, 0);
    ramet_slab_give(&slab, slots[0]);
    ramet_slab_give(&slab, slots[1]);
    assert_int_equal(slab.n_warm, 3);
    assert_int_equal(ramet_slab_take(&slab, 1), slots[1]); /* the last one that was freed */
    assert_int_equal(ramet_slab_take(&slab, 1), slots[0]);
    assert_int_equal(slab.n_warm, 3);
    assert_int_equal(ramet_slab_take(&slab, 1), slots[3]);
    assert_int_equal(slab.n_touched, 4);
    assert_int_equal(ramet_slab_take(&slab, 1), 4);
    assert_int_equal(slab.n_warm, 5);
    ramet_slab_fini(&slab);
}

static void a_slab_of_nothing(void **state) {
    (void)state;
    ramet_slab slab;
    assert_ok(ramet_slab_init(&slab, 0, 0, error));
    ramet_slab_trim(&slab, 0);
    ramet_slab_fini(&slab);
    assert_fails(RAMET_E_NO_MEMORY, ramet_slab_init(&slab, 1u << 31, UINT64_MAX - 100, error)); /* no size may wrap */
    assert_fails(RAMET_E_NO_MEMORY, ramet_slab_init(&slab, UINT64_MAX, UINT64_MAX, error));
}

/* All kinds together stay within the budget also where each has been at its most. */
static void kinds_give_back_for_each_other(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 64, 0);
    options.state_bytes = 1024;
    ramet_cache *cache = open_cache_of(&options);
    ramet_context *long_one = open_context(cache), *short_ones[4] = {0};
    extend_with(long_one, 50 * 16, 1);
    ramet_context_destroy(&long_one);
    for (size_t i = 0; i < 4; i++) {
        short_ones[i] = open_context(cache);
        extend_with(short_ones[i], 16, 2);
    }
    uint64_t warm_bytes = 0;
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        warm_bytes += cache->blocks[kind].slab.n_warm * cache->blocks[kind].bytes;
    assert_true(warm_bytes <= options.budget_bytes);
    for (size_t i = 0; i < 4; i++) assert_true(is_lawful(short_ones[i]));
    check(cache);
    close_contexts(short_ones, 4);
    ramet_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trim_takes_free_slots_alone),
        cmocka_unit_test(a_slot_is_trimmed_again_after_it_was_out),
        cmocka_unit_test(what_was_freed_before_stays),
        cmocka_unit_test(what_costs_nothing_goes_out_first),
        cmocka_unit_test(a_slab_of_nothing),
        cmocka_unit_test(kinds_give_back_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
