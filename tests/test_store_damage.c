/* test_store_damage.c - case 31: no damaged or cut file gets in, and a refused one leaves the cache as it was. */
#include "test_store_scene.h"

/* With each of the masks, at each byte of [from, to). */
static void flip_bytes(scene *s, size_t from, size_t to, const uint8_t *masks, size_t n_masks) {
    const char *path = in_directory("flipped.ramet");
    write_file(path, s->file.data, s->file.n);
    int fd = open(path, O_WRONLY);
    n_refused = 0;
    for (size_t at = from; at < to; at++) {
        for (size_t m = 0; m < n_masks; m++) {
            uint8_t flipped = s->file.data[at] ^ masks[m];
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
            ramet_status status = m < 3 ? refused(s, path, at) : restore_refused(s, path, at);
            bool is_version = at >= 8 && at < 12,
                 is_legacy = at == 8 && flipped == 1; /* known, under another checksum */
            if (is_version && !is_legacy)
                assert_status(RAMET_E_UNSUPPORTED, status);
            else
                assert_status(RAMET_E_CORRUPT, status);
        }
        assert_int_equal(pwrite(fd, &s->file.data[at], 1, (off_t)at), 1);
    }
    close(fd);
    assert_int_equal(n_refused, (to - from) * n_masks);
    assert_ok(ramet_store_verify(path, NULL, error)); /* all put back: it was the flips */
}

static void flip_some(scene *s, size_t from, size_t to) {
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    flip_bytes(s, from, to, masks, sizeof masks);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { MASK_STEP = 17 }; /* each try takes many times as long */
#else
enum { MASK_STEP = 1 };
#endif

/* Every other value that each byte could have. */
static void flip_all(scene *s) {
    uint8_t masks[255 / MASK_STEP];
    for (size_t i = 0; i < sizeof masks; i++) masks[i] = (uint8_t)(255 - i * MASK_STEP);
    flip_bytes(s, 0, s->file.n, masks, sizeof masks);
    print_message("%zu changes of one byte in a file of %zu: all refused, state untouched\n", n_refused, s->file.n);
}

static void test_case_31_every_byte_flipped(void **state) {
    (void)state;
    scene s;
    ramet_snapshot_options options = {
        .owner = "o", .marking = "m", .sampler_state = "sampler", .sampler_state_bytes = 7};
    open_scene(&s, small_shape, 5, &options);
    flip_all(&s);
    close_scene(&s);
}

static void test_case_31_cut_at_every_length(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    const char *path = in_directory("cut.ramet");
    n_refused = 0;
    for (size_t n = 0; n < s.file.n; n++) {
        write_file(path, s.file.data, n);
        assert_status(RAMET_E_CORRUPT, refused(&s, path, n));
    }
    for (size_t more = 1; more < 40; more++) { /* and bytes after the end, zero or not */
        memset(s.file.data + s.file.n, more % 2 ? 0 : 0x5a, more);
        write_file(path, s.file.data, s.file.n + more);
        assert_status(RAMET_E_CORRUPT, refused(&s, path, s.file.n + more));
    }
    print_message("%zu files cut or longer than they say: all refused, state untouched\n", n_refused);
    close_scene(&s);
}

static void test_case_31_empty_context_file_damaged(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 0, NULL);
    flip_all(&s);
    close_scene(&s);
}

/* ---- several chunks ---- */

enum { HASH = RAMET_SNAPSHOT_HASH_BYTES, CHUNK = RAMET_SNAPSHOT_CHUNK_BYTES };

/* Puts chunk `from` of `donor`, and its checksum, in the place of chunk `to`; both are whole ones. */
static void put_chunk(bytes *f, size_t to, const bytes *donor, size_t from, size_t n_chunks) {
    memcpy(f->data + to * CHUNK, donor->data + from * CHUNK, CHUNK);
    memcpy(f->data + f->n - (n_chunks - to) * HASH, donor->data + donor->n - (n_chunks - from) * HASH, HASH);
}

/* Bytes and lengths drawn from all over the file. */
static void sample_damage(scene *s) {
    const char *path = in_directory("sampled.ramet");
    for (int i = 0; i < 20; i++) {
        uint8_t mask = (uint8_t)(1 + draw_below(255));
        size_t at = draw_below((uint32_t)s->file.n);
        flip_bytes(s, at, at + 1, &mask, 1);
    }
    write_file(path, s->file.data, s->file.n);
    for (uint32_t n = (uint32_t)s->file.n, i = 0; i < 20; i++) {
        n -= 1 + draw_below(n / 8);
        assert_int_equal(truncate(path, n), 0);
        assert_status(RAMET_E_CORRUPT, refused(s, path, n));
    }
}

static void try_large_file(scene *s) {
    enum { N_CHUNKS = 5 };
    assert_int_equal((s->file.n - N_CHUNKS * HASH - 1) / CHUNK, N_CHUNKS - 1);
    flip_some(s, CHUNK - 2, CHUNK + 2);
    flip_some(s, s->file.n - N_CHUNKS * HASH - 2, s->file.n);
    sample_damage(s);
    const char *path = in_directory("large.ramet");
    write_file(path, s->file.data, 2 * CHUNK); /* the last chunks missing */
    assert_status(RAMET_E_CORRUPT, refused(s, path, 0));
    /* two chunks of positions alone exchanged, each with its own sound checksum: only the number in it can tell */
    bytes swapped = {malloc(s->file.n), s->file.n};
    memcpy(swapped.data, s->file.data, s->file.n);
    put_chunk(&swapped, 1, &s->file, 2, N_CHUNKS);
    put_chunk(&swapped, 2, &s->file, 1, N_CHUNKS);
    write_file(path, swapped.data, swapped.n);
    assert_status(RAMET_E_CORRUPT, refused(s, path, 0));
    put_chunk(&swapped, 1, &s->file, 1, N_CHUNKS);
    put_chunk(&swapped, 2, &s->file, 2, N_CHUNKS);
    assert_memory_equal(swapped.data, s->file.data, s->file.n); /* it was the exchange */
    /* a chunk of another file, in the same place */
    content other = make_content(&s->w.layout, s->saved.n);
    ramet_context *source = make_context(&s->w, &other);
    ramet_snapshot_options options = {.owner = "x"};
    assert_ok(save(&s->w, source, &options, path, NULL, error));
    close_context(&source);
    free_content(&other);
    remember_state(s); /* the donor's pages were counted */
    bytes donor = read_file(path);
    put_chunk(&swapped, 1, &donor, 1, N_CHUNKS);
    write_file(path, swapped.data, swapped.n);
    assert_status(RAMET_E_CORRUPT, refused(s, path, 0));
    free(donor.data);
    free(swapped.data);
}

/* Pages of 64 are read into as they are, others by way of a buffer. */
static void test_case_31_large_file(void **state) {
    (void)state;
    for (uint32_t page_tokens = 16; page_tokens <= 64; page_tokens *= 4) {
        scene s;
        const shape rows_of_8_kib = {RAMET_KV_F32, 4, 4, 64};
        open_scene_of_pages(&s, page_tokens, rows_of_8_kib, 150, NULL);
        try_large_file(&s);
        start_crew(3);
        try_large_file(&s);
        stop_crew();
        close_scene(&s);
    }
}

/* ---- no room ---- */

/* Fails every allocation in turn, and the budget and the window. */
static void test_restore_without_room(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 37, NULL);
    const char *path = in_directory("sound.ramet");
    ramet_context *back;
    ramet_status status = RAMET_E_NO_MEMORY;
    uint64_t n = 1;
    for (; status != RAMET_OK && n < 1000; n++) {
        ramet_alloc_fail_after(n);
        status = restore(&s.w, path, &back, NULL);
        ramet_alloc_fail_after(0);
        if (status != RAMET_OK) {
            assert_status(RAMET_E_NO_MEMORY, status);
            assert_null(back);
            assert_ok(ramet_cache_check(s.w.cache, error));
            assert_untouched(&s);
        }
    }
    assert_true(n > 4 && n < 1000); /* some did fail */
    assert_holds(&s.w, back, &s.saved);
    close_context(&back);
    remember_state(&s);

    world tight;
    open_world(&tight, small_shape, 16, 4096, 2); /* three pages are needed */
    assert_status(RAMET_E_BUDGET, restore(&tight, path, &back, NULL));
    close_world(&tight);
    open_world(&tight, small_shape, 16, 36, 16);
    assert_status(RAMET_E_WINDOW, restore(&tight, path, &back, NULL));
    close_world(&tight);
    close_scene(&s);
}

/* The slab is full: a sound file takes the place of what the tree holds, a damaged one does not. */
static void test_damage_evicts_nothing(void **state) {
    (void)state;
    world w;
    open_world(&w, small_shape, 16, 4096, 4);
    content c = make_content(&w.layout, 40), kept = make_content(&w.layout, 30);
    ramet_context *context = make_context(&w, &c), *back;
    const char *path = in_directory("evicts.ramet");
    assert_ok(save(&w, context, NULL, path, NULL, error));
    close_context(&context);
    context = make_context(&w, &kept);
    retain(context);
    close_context(&context);
    bytes f = read_file(path);
    ramet_engine_stats before, after;
    before = stats_of(&w);
    assert_int_equal(before.tree_entries, 1);
    for (size_t at = f.n - 1; at > f.n - 200; at -= 17) {
        f.data[at] ^= 1;
        write_file(path, f.data, f.n);
        assert_status(RAMET_E_CORRUPT, restore(&w, path, &back, NULL));
        f.data[at] ^= 1;
        after = stats_of(&w);
        assert_memory_equal(&before, &after, sizeof after);
    }
    write_file(path, f.data, f.n);
    assert_ok(restore(&w, path, &back, error));
    assert_holds(&w, back, &c);
    after = stats_of(&w);
    assert_int_equal(after.tree_entries, 0);
    close_context(&back);
    free(f.data);
    free_content(&c);
    free_content(&kept);
    close_world(&w);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_31_every_byte_flipped),
        cmocka_unit_test(test_case_31_cut_at_every_length),
        cmocka_unit_test(test_case_31_empty_context_file_damaged),
        cmocka_unit_test(test_case_31_large_file),
        cmocka_unit_test(test_restore_without_room),
        cmocka_unit_test(test_damage_evicts_nothing),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
