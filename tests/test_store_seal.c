/* test_store_seal.c - encrypted snapshots: what is saved is what comes back to whoever has the key, and nobody else
 * reads a byte of it; no damaged, cut or longer file gets in. */
#include "test_store_forge.h"

static const shape shapes[] = {
    {RAMET_KV_F32, 2, 2, 16}, {RAMET_KV_F16, 1, 3, 40}, {RAMET_KV_VQ8, 2, 1, 64}, {RAMET_KV_Q8, 1, 2, 48}};
static const uint32_t page_sizes[] = {16, 64, 256};
enum { N_PAGE_SIZES = 3 };

/* ---- what comes back ---- */

static void assert_encrypted(const char *path, const ramet_snapshot_info *saved) {
    ramet_snapshot_info info;
    assert_ok(ramet_store_read_info(path, &info, error)); /* without a key */
    assert_true(info.encrypted);
    assert_int_equal(info.format_version, 2);
    assert_memory_equal(&info, saved, sizeof info);
}

static void assert_tokens(const char *path, const content *c) {
    int32_t *tokens;
    uint32_t n;
    assert_ok(ramet_store_read_tokens(path, policy, &tokens, &n, error));
    assert_int_equal(n, c->n);
    assert_memory_equal(tokens, c->tokens, n * sizeof *tokens);
    free(tokens);
}

/* Saves from every page size, restores into every page size. */
static void round_trip(shape s, uint32_t n) {
    world w[N_PAGE_SIZES];
    for (int i = 0; i < N_PAGE_SIZES; i++) open_world(&w[i], s, page_sizes[i], 1024, 64);
    content c = make_content(&w[0].layout, n);
    for (int from = 0; from < N_PAGE_SIZES; from++) {
        const char *path = in_directory("sealed.ramet");
        ramet_context *context = make_context(&w[from], &c), *back;
        ramet_snapshot_info saved;
        assert_ok(save(&w[from], context, NULL, path, &saved, error));
        close_context(&context);
        assert_encrypted(path, &saved);
        assert_ok(ramet_store_verify(path, policy, error));
        assert_tokens(path, &c);
        for (int to = 0; to < N_PAGE_SIZES; to++) {
            assert_ok(restore(&w[to], path, &back, error));
            assert_holds(&w[to], back, &c);
            close_context(&back);
        }
    }
    free_content(&c);
    for (int i = 0; i < N_PAGE_SIZES; i++) close_world(&w[i]);
}

static void round_trips(void) {
    static const uint32_t lengths[] = {0, 1, 63, 64, 65, 130};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) round_trip(shapes[s], lengths[i]);
    round_trip(rows_of_8_kib, 150);
}

static void test_comes_back(void **state) {
    (void)state;
    policy = &with_key;
    round_trips();
    start_crew(4);
    round_trips();
    stop_crew();
}

static void test_options_come_back(void **state) {
    (void)state;
    policy = &with_key;
    victim v;
    ramet_snapshot_options options = {.owner = "alice",
                                      .marking = "internal",
                                      .sampler_state = "dice",
                                      .sampler_state_bytes = 4,
                                      .generation = UINT64_C(0x123456789abcdef0)};
    open_victim(&v, one_chunk, 5, &options);
    void *sampler;
    size_t n;
    ramet_snapshot_info info;
    ramet_context *back;
    assert_ok(
        ramet_store_restore(v.w.cache, &v.w.identity, policy, offer(&v.file), crew, &back, &sampler, &n, &info, error));
    assert_int_equal(n, 4);
    assert_memory_equal(sampler, "dice", 4);
    assert_string_equal(info.owner, "alice");
    assert_string_equal(info.marking, "internal");
    assert_int_equal(info.generation, options.generation);
    free(sampler);
    close_context(&back);
    close_victim(&v);
}

/* ---- what others see ---- */

static bool has_bytes(const bytes *f, const void *needle, size_t n) {
    return memmem(f->data, f->n, needle, n) != NULL;
}

/* No row, no logits and no tokens can be seen, where the plain file of the same length shows all of them. */
static void test_nothing_shows(void **state) {
    (void)state;
    victim v;
    policy = NULL;
    open_victim(&v, rows_of_8_kib, 150, NULL);
    bytes plain = v.file;
    policy = &with_key;
    bytes sealed = save_to_bytes(&v.w, &v.saved, NULL);
    assert_int_equal(plain.n, sealed.n);
    for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
        const bytes *f = is_sealed ? &sealed : &plain;
        assert_int_equal(has_bytes(f, v.saved.tokens, 64), !is_sealed);
        assert_int_equal(has_bytes(f, v.saved.logits, sizeof v.saved.logits), !is_sealed);
    }
    size_t n_equal = 0;
    for (size_t at = header_of(&plain); at < plain.n; at++) n_equal += plain.data[at] == sealed.data[at];
    assert_in_range(n_equal, plain.n / 300, plain.n / 220); /* one byte in 256, as chance has it */
    policy = NULL;
    free(sealed.data);
    close_victim(&v);
}

/* Each file has its own salt, and so its own key: nothing of a body shows that it was saved before. */
static void test_no_two_files_are_equal(void **state) {
    (void)state;
    for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
        policy = is_sealed ? &with_key : NULL;
        victim v;
        open_victim(&v, one_chunk, 5, NULL);
        bytes again = save_to_bytes(&v.w, &v.saved, NULL);
        assert_int_equal(again.n, v.file.n);
        size_t body = header_of(&again);
        assert_int_equal(memcmp(again.data, v.file.data, again.n) != 0, is_sealed);
        assert_int_equal(memcmp(again.data + 32, v.file.data + 32, 32) != 0, is_sealed);
        assert_int_equal(memcmp(again.data + 64, v.file.data + 64, 32) != 0, is_sealed);
        assert_int_equal(memcmp(again.data + body, v.file.data + body, again.n - body - HASH) != 0, is_sealed);
        assert_taken(&v, &again);
        free(again.data);
        close_victim(&v);
    }
}

/* ---- keys ---- */

static void refuse_other_keys(uint32_t n_tokens) {
    policy = &with_key;
    victim v;
    open_victim(&v, one_chunk, n_tokens, NULL);
    uint8_t other_key[RAMET_KEY_BYTES];
    const ramet_snapshot_policy other = {.context_key = other_key}, none = {0};
    policy = &none;
    refuse(&v, &v.file, RAMET_E_AUTHENTICATION, AT_ONCE);
    policy = NULL;
    refuse(&v, &v.file, RAMET_E_AUTHENTICATION, AT_ONCE);
    policy = &other;
    for (size_t bit = 0; bit < 8 * sizeof other_key; bit++) {
        memcpy(other_key, context_key, sizeof other_key);
        other_key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refuse(&v, &v.file, RAMET_E_AUTHENTICATION, AT_ONCE);
    }
    memcpy(other_key, context_key, sizeof other_key);
    close_victim(&v); /* put back, it is the key */
}

static void test_no_key_and_other_keys(void **state) {
    (void)state;
    refuse_other_keys(5);
    refuse_other_keys(0); /* no body: the header alone tells */
}

static void test_large_file_of_another_key(void **state) {
    (void)state;
    policy = &with_key;
    victim v;
    open_victim(&v, rows_of_8_kib, 150, NULL);
    const uint8_t other_key[RAMET_KEY_BYTES] = {1};
    const ramet_snapshot_policy other = {.context_key = other_key};
    policy = &other;
    refuse(&v, &v.file, RAMET_E_AUTHENTICATION, AT_ONCE);
    policy = &with_key;
    close_victim(&v);
}

/* ---- damage ---- */

static void flip_every_byte(uint32_t n_tokens) {
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    policy = &with_key;
    victim v;
    ramet_snapshot_options options = {
        .owner = "o", .marking = "m", .sampler_state = "sampler", .sampler_state_bytes = 7, .generation = 3};
    open_victim(&v, one_chunk, n_tokens, &options);
    size_t n = 0, header = header_of(&v.file);
    for (size_t at = 0; at < v.file.n; at++)
        for (size_t m = 0; m < sizeof masks; m++, n++) {
            bool is_version = at >= 8 && at < 12, is_body = at >= header;
            v.file.data[at] ^= masks[m];
            refuse(&v, &v.file,
                   is_version ? RAMET_E_UNSUPPORTED
                   : is_body  ? RAMET_E_AUTHENTICATION
                              : RAMET_E_CORRUPT,
                   is_body ? READING : AT_ONCE);
            v.file.data[at] ^= masks[m];
        }
    print_message("%zu changes of one byte in a file of %zu: all refused\n", n, v.file.n);
    close_victim(&v);
}

static void test_case_31_every_byte_flipped(void **state) {
    (void)state;
    flip_every_byte(5);
    flip_every_byte(0);
}

static void test_case_31_cut_at_every_length(void **state) {
    (void)state;
    policy = &with_key;
    victim v;
    open_victim(&v, one_chunk, 5, NULL);
    bytes f = copy_bytes(&v.file);
    for (f.n = 0; f.n < v.file.n; f.n++) refuse(&v, &f, RAMET_E_CORRUPT, AT_ONCE);
    for (size_t more = 1; more < 40; more++) { /* and bytes after the end, zero or not */
        memset(f.data + v.file.n, more % 2 ? 0 : 0x5a, more);
        f.n = v.file.n + more;
        refuse(&v, &f, RAMET_E_CORRUPT, AT_ONCE);
    }
    free(f.data);
    close_victim(&v);
}

/* Where no page of the cache is free, a file is read before an entry of the tree goes for it. */
static void test_damage_evicts_nothing(void **state) {
    (void)state;
    policy = &with_key;
    world w;
    open_world(&w, one_chunk, 16, 4096, 4);
    content c = make_content(&w.layout, 40), kept = make_content(&w.layout, 30);
    bytes f = save_to_bytes(&w, &c, NULL);
    ramet_context *context = make_context(&w, &kept), *back;
    retain(context);
    close_context(&context);
    ramet_engine_stats before = stats_of(&w), after;
    f.data[f.n - 100] ^= 1;
    assert_status(RAMET_E_AUTHENTICATION, restore(&w, offer(&f), &back, NULL));
    after = stats_of(&w);
    assert_memory_equal(&before, &after, sizeof after);
    f.data[f.n - 100] ^= 1;
    assert_ok(restore(&w, offer(&f), &back, error));
    assert_holds(&w, back, &c);
    close_context(&back);
    free(f.data);
    free_content(&c);
    free_content(&kept);
    close_world(&w);
}

/* ---- spilled ---- */

/* Appends every file below `at`; the path of the last one that is not empty. */
static void collect(const char *at, bytes *all, char last[300]) {
    DIR *d = opendir(at);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[300];
        struct stat st;
        snprintf(path, sizeof path, "%s/%.100s", at, e->d_name);
        if (e->d_name[0] == '.' || stat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) {
            collect(path, all, last);
            continue;
        }
        bytes f = read_file(path);
        all->data = realloc(all->data, all->n + f.n + 1);
        memcpy(all->data + all->n, f.data, f.n);
        all->n += f.n;
        if (f.n > 0) memcpy(last, path, sizeof path);
        free(f.data);
    }
    closedir(d);
}

/* What is on the disk while a context is written out shows nothing of it, and is not believed when a bit of it differs. */
static void test_spilled_is_encrypted(void **state) {
    (void)state;
    policy = NULL;
    world w;
    char disk[160]; /* nothing else is there */
    snprintf(disk, sizeof disk, "%s", in_directory("disk"));
    assert_int_equal(mkdir(disk, 0700), 0);
    open_spilling_world(&w, shapes[1], 16, 512, 64, disk);
    content c = make_content(&w.layout, 40);
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        ramet_context *context = make_context(&w, &c);
        char path[300];
        bytes all = {0};
        enter(context);
        bytes page = {.data = malloc(w.layout.page_bytes), .n = w.layout.page_bytes};
        memcpy(page.data, ramet_context_page_read(context, 0), page.n);
        ramet_context_leave(context);
        assert_ok(ramet_context_enter(context, error));
        assert_ok(ramet_context_write_out(context, error));
        ramet_context_leave(context);
        collect(disk, &all, path);
        assert_true(all.n >= 3 * page.n + sizeof c.logits);
        for (size_t at = 0; at + 16 <= page.n; at += 16) assert_null(memmem(all.data, all.n, page.data + at, 16));
        for (size_t at = 0; at + 4 <= 40; at += 4) assert_null(memmem(all.data, all.n, c.tokens + at, 16));
        assert_null(memmem(all.data, all.n, c.logits, 16));
        free(all.data);
        free(page.data);
        if (is_damaged) {
            bytes f = read_file(path);
            f.data[f.n / 2] ^= 1;
            write_file(path, f.data, f.n);
            free(f.data);
            assert_status(RAMET_E_AUTHENTICATION, try_enter(context, NULL));
            assert_int_equal(ramet_context_length(context), 0);
        } else {
            assert_holds(&w, context, &c);
        }
        close_context(&context);
    }
    free_content(&c);
    close_world(&w);
    assert_int_equal(rmdir(disk), 0);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    draw_key();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_options_come_back),
        cmocka_unit_test(test_nothing_shows),
        cmocka_unit_test(test_no_two_files_are_equal),
        cmocka_unit_test(test_no_key_and_other_keys),
        cmocka_unit_test(test_large_file_of_another_key),
        cmocka_unit_test(test_case_31_every_byte_flipped),
        cmocka_unit_test(test_case_31_cut_at_every_length),
        cmocka_unit_test(test_damage_evicts_nothing),
        cmocka_unit_test(test_spilled_is_encrypted),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
