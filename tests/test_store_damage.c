/* test_store_damage.c - case 31: no damaged, cut or hostile file gets in, and a refused one leaves the cache as it was.
 */
#include "test_store_fixture.h"

static const shape small_shape = {RAMET_KV_F16, 1, 1, 8};

/* A cache in use: a context, a fork of it, an entry of the tree; and a sound small file. */
typedef struct scene {
    world w;
    content bystander, saved;
    ramet_context *context, *fork;
    bytes file;
    ramet_engine_stats before;
} scene;

static void open_scene_of_pages(scene *s, uint32_t page_tokens, shape shape_, uint32_t n_tokens,
                                const ramet_snapshot_options *options) {
    open_world(&s->w, shape_, page_tokens, 4096, 512);
    s->bystander = make_content(&s->w.layout, 40);
    s->saved = make_content(&s->w.layout, n_tokens);
    s->context = make_context(&s->w, &s->bystander);
    assert_ok(ramet_context_enter(s->context, error));
    assert_ok(ramet_context_share(s->context, &s->fork, error));
    assert_ok(ramet_tree_retain(s->context, error));
    ramet_context_leave(s->context);
    ramet_context *source = make_context(&s->w, &s->saved);
    assert_ok(save(&s->w, source, options, in_directory("sound.ramet"), NULL, error));
    close_context(&source);
    s->file = read_file(in_directory("sound.ramet"));
    ramet_cache_get_stats(s->w.cache, &s->before);
}

static void open_scene(scene *s, shape shape_, uint32_t n_tokens, const ramet_snapshot_options *options) {
    open_scene_of_pages(s, 16, shape_, n_tokens, options);
}

/* Pages may have been given out, when all of them are back. */
static void assert_untouched(scene *s) {
    ramet_engine_stats after;
    ramet_cache_get_stats(s->w.cache, &after);
    assert_int_equal(after.pages_allocated - s->before.pages_allocated, after.pages_freed - s->before.pages_freed);
    after.pages_allocated = s->before.pages_allocated;
    after.pages_freed = s->before.pages_freed;
    assert_memory_equal(&s->before, &after, sizeof after);
}

static void close_scene(scene *s) {
    assert_untouched(s);
    assert_ok(ramet_cache_check(s->w.cache, error));
    assert_holds(&s->w, s->context, &s->bystander);
    assert_holds(&s->w, s->fork, &s->bystander);
    /* and a sound file still restores, as if nothing had been tried */
    ramet_context *back;
    assert_ok(restore(&s->w, in_directory("sound.ramet"), &back, error));
    assert_holds(&s->w, back, &s->saved);
    close_context(&back);
    close_context(&s->context);
    close_context(&s->fork);
    free_content(&s->bystander);
    free_content(&s->saved);
    free(s->file.data);
    close_world(&s->w);
}

/* Restoring and verifying give the same verdict, which is a refusal; returns it. */
static ramet_status refused(scene *s, const char *path, size_t at) {
    ramet_context *back;
    ramet_error error = {0};
    ramet_status status = restore(&s->w, path, &back, &error);
    if (status == RAMET_OK) fail_msg("a file damaged at byte %zu was restored", at);
    assert_null(back);
    assert_int_equal(error.code, status);
    assert_true(error.message[0] != 0);
    assert_status(status, ramet_store_verify(path, NULL));
    assert_untouched(s);
    return status;
}

static void flip_every_byte(scene *s, size_t from, size_t to) {
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    const char *path = in_directory("flipped.ramet");
    write_file(path, s->file.data, s->file.n);
    int fd = open(path, O_WRONLY);
    for (size_t at = from; at < to; at++) {
        for (size_t m = 0; m < sizeof masks; m++) {
            uint8_t flipped = s->file.data[at] ^ masks[m];
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
            ramet_status status = refused(s, path, at);
            if (at >= 8 && at < 12)
                assert_status(RAMET_E_UNSUPPORTED, status); /* the version */
            else
                assert_status(RAMET_E_CORRUPT, status);
        }
        assert_int_equal(pwrite(fd, &s->file.data[at], 1, (off_t)at), 1);
    }
    close(fd);
    assert_ok(ramet_store_verify(path, error)); /* all put back: it was the flips */
}

static void test_case_31_every_byte_flipped(void **state) {
    (void)state;
    scene s;
    ramet_snapshot_options options = {
        .owner = "o", .marking = "m", .sampler_state = "sampler", .sampler_state_bytes = 7};
    open_scene(&s, small_shape, 5, &options);
    flip_every_byte(&s, 0, s.file.n);
    close_scene(&s);
}

static void test_case_31_cut_at_every_length(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    const char *path = in_directory("cut.ramet");
    for (size_t n = 0; n < s.file.n; n++) {
        write_file(path, s.file.data, n);
        assert_status(RAMET_E_CORRUPT, refused(&s, path, n));
    }
    for (size_t more = 1; more < 40; more++) { /* and bytes after the end, zero or not */
        memset(s.file.data + s.file.n, more % 2 ? 0 : 0x5a, more);
        write_file(path, s.file.data, s.file.n + more);
        assert_status(RAMET_E_CORRUPT, refused(&s, path, s.file.n + more));
    }
    close_scene(&s);
}

static void test_case_31_empty_context_file_damaged(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 0, NULL);
    flip_every_byte(&s, 0, s.file.n);
    close_scene(&s);
}

/* ---- several chunks ---- */

enum { HASH = RAMET_SNAPSHOT_HASH_BYTES, CHUNK = RAMET_SNAPSHOT_CHUNK_BYTES };

static uint32_t get_u32(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static void put_u32(uint8_t *at, uint32_t v) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(v >> (8 * i));
}

/* Puts chunk `from` of `donor`, and its checksum, in the place of chunk `to`; both are whole ones. */
static void put_chunk(bytes *f, size_t to, const bytes *donor, size_t from, size_t n_chunks) {
    memcpy(f->data + to * CHUNK, donor->data + from * CHUNK, CHUNK);
    memcpy(f->data + f->n - (n_chunks - to) * HASH, donor->data + donor->n - (n_chunks - from) * HASH, HASH);
}

static void try_large_file(scene *s) {
    enum { N_CHUNKS = 5 };
    assert_int_equal((s->file.n - N_CHUNKS * HASH - 1) / CHUNK, N_CHUNKS - 1);
    flip_every_byte(s, CHUNK - 2, CHUNK + 2);
    flip_every_byte(s, s->file.n - N_CHUNKS * HASH - 2, s->file.n);
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
    ramet_cache_get_stats(s->w.cache, &s->before); /* the donor's pages were counted */
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

/* ---- hostile files: every checksum is right ---- */

/* Of files of one chunk. */
static void reseal(bytes *f) {
    static uint8_t buffer[HASH + 8 + 65536];
    size_t header = get_u32(f->data + 12);
    if (header < 128 || header > f->n) return;
    ramet_xxh128(f->data, header - HASH, f->data + header - HASH);
    if (f->n <= header + HASH) return;
    size_t n = f->n - header - HASH;
    assert_true(n <= 65536);
    memcpy(buffer, f->data + header, n);
    memcpy(buffer + n, f->data + header - HASH, HASH);
    memset(buffer + n + HASH, 0, 8); /* chunk 0 */
    ramet_xxh128(buffer, HASH + 8 + n, f->data + f->n - HASH);
}

/* Where the value of a field is. */
static size_t find_field(const bytes *f, uint32_t tag) {
    for (size_t at = 112; at < f->n; at += 8 + get_u32(f->data + at + 4))
        if ((get_u32(f->data + at) & 0xffff) == tag) return at + 8;
    fail_msg("no field %x", tag);
    return 0;
}

static bytes copy_of(const bytes *f) {
    bytes c = {malloc(f->n + 4096), f->n};
    memcpy(c.data, f->data, f->n);
    return c;
}

static void expect(scene *s, bytes *f, ramet_status expected) {
    const char *path = in_directory("hostile.ramet");
    reseal(f);
    write_file(path, f->data, f->n);
    assert_status(expected, refused(s, path, 0));
    free(f->data);
    *f = copy_of(&s->file);
}

static void test_case_31_hostile_fields(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    bytes f = copy_of(&s.file);
    size_t header = get_u32(f.data + 12);
    static const struct {
        uint32_t tag, value;
        ramet_status expected;
    } changes[] = {
        {0x8004, 0, RAMET_E_CORRUPT},          {0x8004, 2, RAMET_E_CORRUPT},
        {0x8004, 0xffffffff, RAMET_E_CORRUPT}, {0x8005, 0, RAMET_E_CORRUPT},
        {0x8005, 0x7fffffff, RAMET_E_CORRUPT}, {0x8006, 0, RAMET_E_CORRUPT},
        {0x8006, 0x80000000, RAMET_E_CORRUPT}, {0x8007, 0, RAMET_E_CORRUPT},
        {0x8007, 1u << 31, RAMET_E_CORRUPT},   {0x8008, 4, RAMET_E_UNSUPPORTED},
        {0x8009, 4, RAMET_E_UNSUPPORTED},      {0x8009, RAMET_KV_F32, RAMET_E_CORRUPT},
        {0x800a, 0, RAMET_E_CORRUPT},          {0x800a, 6, RAMET_E_CORRUPT},
        {0x800a, 0xffffffff, RAMET_E_CORRUPT}, {0x800b, 0, RAMET_E_CORRUPT},
        {0x800b, 2, RAMET_E_CORRUPT},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        put_u32(f.data + find_field(&f, changes[i].tag), changes[i].value);
        expect(&s, &f, changes[i].expected);
    }
    /* a billion positions of agreeing fields, in a small file */
    put_u32(f.data + find_field(&f, 0x800a), 1u << 30);
    put_u32(f.data + find_field(&f, 0x800c) + 4, 1);
    put_u32(f.data + find_field(&f, 0x800c), 0);
    put_u32(f.data + find_field(&f, 0x800c) + 36, 8);
    put_u32(f.data + find_field(&f, 0x800c) + 32, 0);
    expect(&s, &f, RAMET_E_CORRUPT);
    /* section lengths whose sum overflows to the right one */
    for (size_t i = 0; i < 5; i++) {
        put_u32(f.data + find_field(&f, 0x800c) + 8 * i + 4, 0x80000000);
        expect(&s, &f, RAMET_E_CORRUPT);
    }
    /* the logits after the last of no tokens */
    put_u32(f.data + find_field(&f, 0x800a), 0);
    put_u32(f.data + find_field(&f, 0x800c), 0);
    put_u32(f.data + find_field(&f, 0x800c) + 32, 0);
    f.n = header + N_VOCAB * sizeof(float) + HASH;
    put_u32(f.data + 24, (uint32_t)f.n);
    expect(&s, &f, RAMET_E_CORRUPT);
    /* tokens outside the vocabulary */
    put_u32(f.data + header, N_VOCAB);
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + header + 16, 0xffffffff);
    expect(&s, &f, RAMET_E_CORRUPT);
    /* preamble */
    put_u32(f.data + 8, 2);
    expect(&s, &f, RAMET_E_UNSUPPORTED);
    put_u32(f.data + 12, 0xffffffff);
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + 24, get_u32(f.data + 24) - 1); /* the sections say the true length, this does not */
    expect(&s, &f, RAMET_E_CORRUPT);
    f.data[find_field(&f, 0x8001) - 6] = 1; /* reserved bytes of a field */
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + 20, 0);
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + 20, (1u << 17) - 1);
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + 20, (1u << 24) + 1);
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + 104, 15);
    expect(&s, &f, RAMET_E_CORRUPT);
    put_u32(f.data + 104, 0xffffffff);
    expect(&s, &f, RAMET_E_CORRUPT);
    for (size_t at = 32; at < 112; at += at == 96 ? 12 : 8) {
        f.data[at] = 1;
        expect(&s, &f, RAMET_E_CORRUPT);
    }
    free(f.data);
    close_scene(&s);
}

/* Without logits no length follows from the vocabulary: it is judged alone. */
static void test_case_31_vocabulary_without_logits(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 0, NULL);
    bytes f = copy_of(&s.file);
    const char *path = in_directory("vocabulary.ramet");
    ramet_snapshot_info info;
    put_u32(f.data + find_field(&f, 0x8007), INT32_MAX);
    reseal(&f);
    write_file(path, f.data, f.n);
    assert_ok(ramet_store_read_info(path, &info, error));
    put_u32(f.data + find_field(&f, 0x8007), (uint32_t)INT32_MAX + 1);
    reseal(&f);
    write_file(path, f.data, f.n);
    assert_status(RAMET_E_CORRUPT, ramet_store_read_info(path, &info, NULL));
    free(f.data);
    close_scene(&s);
}

static void test_encrypted_is_refused_by_name(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    bytes f = copy_of(&s.file);
    const char *path = in_directory("sealed.ramet");
    f.data[16] = 1;
    reseal(&f);
    write_file(path, f.data, f.n);
    ramet_error error;
    assert_status(RAMET_E_UNSUPPORTED, ramet_store_verify(path, &error));
    assert_non_null(strstr(error.message, "encrypted"));
    f.data[16] = 2;
    expect(&s, &f, RAMET_E_UNSUPPORTED);
    free(f.data);
    close_scene(&s);
}

/* Puts a field with `tag` and 3 bytes of value at byte `at` of the header. */
static void insert_field(bytes *f, size_t at, uint32_t tag) {
    static const uint8_t value[3] = {1, 2, 3};
    memmove(f->data + at + 11, f->data + at, f->n - at);
    put_u32(f->data + at, tag);
    put_u32(f->data + at + 4, 3);
    memcpy(f->data + at + 8, value, 3);
    f->n += 11;
    put_u32(f->data + 12, get_u32(f->data + 12) + 11);
    put_u32(f->data + 24, get_u32(f->data + 24) + 11);
    put_u32(f->data + 104, get_u32(f->data + 104) + 1);
}

static void test_unknown_fields(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    bytes f = copy_of(&s.file);
    size_t after_texts = find_field(&f, 0x8001) - 8, end = get_u32(f.data + 12) - HASH;
    const char *path = in_directory("unknown.ramet");
    insert_field(&f, after_texts, 0x0abc); /* not critical: skipped */
    reseal(&f);
    write_file(path, f.data, f.n);
    ramet_context *back;
    assert_ok(restore(&s.w, path, &back, error));
    assert_holds(&s.w, back, &s.saved);
    close_context(&back);
    ramet_cache_get_stats(s.w.cache, &s.before);
    free(f.data);
    f = copy_of(&s.file);
    insert_field(&f, end, 0x8abc); /* critical */
    expect(&s, &f, RAMET_E_UNSUPPORTED);
    insert_field(&f, end, 0x0abc); /* out of order */
    expect(&s, &f, RAMET_E_CORRUPT);
    insert_field(&f, after_texts, 0x0004); /* twice */
    expect(&s, &f, RAMET_E_CORRUPT);
    free(f.data);
    close_scene(&s);
}

/* Random changes under right checksums: any verdict but a crash, and if a file is taken it is a whole context. */
static void test_random_headers_under_right_checksums(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    const char *path = in_directory("random.ramet");
    unsigned taken = 0;
    for (int i = 0; i < 3000; i++) {
        bytes f = copy_of(&s.file);
        size_t header = get_u32(f.data + 12);
        for (uint32_t k = 1 + draw_below(3); k > 0; k--) {
            size_t at = 12 + draw_below((uint32_t)header - 12);
            f.data[at] ^= (uint8_t)(draw_below(2) ? draw_below(256) : 1u << draw_below(8));
        }
        reseal(&f);
        write_file(path, f.data, f.n);
        ramet_context *back;
        ramet_error error;
        if (restore(&s.w, path, &back, &error) == RAMET_OK) {
            assert_holds(&s.w, back, &s.saved);
            close_context(&back);
            ramet_cache_get_stats(s.w.cache, &s.before);
            taken++;
        } else
            assert_untouched(&s);
        free(f.data);
    }
    assert_true(taken > 0); /* changes of names, owner and marking */
    close_scene(&s);
}

static void test_not_a_file(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    const char *fifo = in_directory("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_status(RAMET_E_ARGUMENT, refused(&s, fifo, 0)); /* and it does not wait for a writer */
    assert_status(RAMET_E_ARGUMENT, refused(&s, directory, 0));
    assert_status(RAMET_E_NOT_FOUND, refused(&s, in_directory("missing"), 0));
    ramet_snapshot_info info;
    int32_t *tokens;
    uint32_t n;
    assert_status(RAMET_E_NOT_FOUND, ramet_store_read_info(in_directory("missing"), &info, NULL));
    assert_status(RAMET_E_NOT_FOUND, ramet_store_read_tokens(in_directory("missing"), &tokens, &n, NULL));
    assert_null(tokens);
    close_scene(&s);
}

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
            ramet_engine_stats now;
            ramet_cache_get_stats(s.w.cache, &now);
            assert_int_equal(now.pages_live, s.before.pages_live);
            assert_int_equal(now.contexts, s.before.contexts);
        }
    }
    assert_true(n > 4 && n < 1000); /* some did fail */
    assert_holds(&s.w, back, &s.saved);
    close_context(&back);
    ramet_cache_get_stats(s.w.cache, &s.before);

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
    assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_tree_retain(context, error));
    ramet_context_destroy(&context);
    bytes f = read_file(path);
    ramet_engine_stats before, after;
    ramet_cache_get_stats(w.cache, &before);
    assert_int_equal(before.tree_entries, 1);
    for (size_t at = f.n - 1; at > f.n - 200; at -= 17) {
        f.data[at] ^= 1;
        write_file(path, f.data, f.n);
        assert_status(RAMET_E_CORRUPT, restore(&w, path, &back, NULL));
        f.data[at] ^= 1;
        ramet_cache_get_stats(w.cache, &after);
        assert_memory_equal(&before, &after, sizeof after);
    }
    write_file(path, f.data, f.n);
    assert_ok(restore(&w, path, &back, error));
    assert_holds(&w, back, &c);
    ramet_cache_get_stats(w.cache, &after);
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
        cmocka_unit_test(test_case_31_hostile_fields),
        cmocka_unit_test(test_case_31_vocabulary_without_logits),
        cmocka_unit_test(test_encrypted_is_refused_by_name),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_random_headers_under_right_checksums),
        cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_restore_without_room),
        cmocka_unit_test(test_damage_evicts_nothing),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
