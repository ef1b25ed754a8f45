/* test_store_convert.c - snapshots whose rows are of another precision than the cache's: what is in them is what the cache's
 * own encoder makes, whoever made the file; they come back when that is allowed and not otherwise; and a file that is wrong
 * converts to nothing. */
#include "test_store_forge.h"

enum { N_KV = 4 };
static const char *const kv_names[] = {"f32", "f16", "vq8", "q8"};
static const uint32_t page_sizes[] = {16, 64, 256};
static const ramet_snapshot_policy lossy = {.allow_lossy = true};
static const ramet_snapshot_policy lossy_with_key = {.context_key = context_key, .allow_lossy = true};

/* As in_directory, but it stays. */
static const char *keep(const char *name) {
    static char paths[16][160];
    for (size_t i = 0; i < 16; i++) {
        if (!paths[i][0]) snprintf(paths[i], sizeof paths[i], "%s/%s", directory, name);
        if (strcmp(strrchr(paths[i], '/') + 1, name) == 0) return paths[i];
    }
    fail_msg("no room for %s", name);
    return NULL;
}

/* ---- the twin: rows one by one, in pages of one position ---- */

static ramet_kv_layout row_layout(shape s, int precision) {
    ramet_kv_layout l;
    assert_true(ramet_kv_layout_init(&l, precision, s.n_layers, s.n_kv_heads, s.head_dim, 1));
    return l;
}

/* A row as another precision has it. */
static void recode_row(const ramet_kv_layout *from, const uint8_t *row, const ramet_kv_layout *to, uint8_t *out) {
    size_t n = (size_t)from->n_kv_heads * from->head_dim;
    uint8_t *page = calloc(1, from->page_bytes), *out_page = calloc(1, to->page_bytes);
    float *k = calloc(n, sizeof *k), *v = calloc(n, sizeof *v);
    ramet_kv_import(from, page, 0, 1, row);
    for (uint32_t layer = 0; layer < from->n_layers; layer++) {
        for (uint32_t head = 0; head < from->n_kv_heads; head++) {
            ramet_kv_read_k(from, page, layer, head, 0, 1, k + head * from->head_dim, 1);
            ramet_kv_read_v(from, page, layer, head, 0, 1, v + head * from->head_dim);
        }
        ramet_kv_write(to, out_page, layer, 0, k, v);
    }
    ramet_kv_export(to, out_page, 0, 1, out);
    free(page);
    free(out_page);
    free(k);
    free(v);
}

/* The same tokens and logits, the rows at another precision. */
static content recode(shape s, const content *c, int from, int to) {
    ramet_kv_layout a = row_layout(s, from), b = row_layout(s, to);
    content out = *c;
    out.row_bytes = b.row_bytes;
    out.tokens = calloc(c->n + 1, sizeof *out.tokens);
    out.rows = calloc(c->n + 1, b.row_bytes);
    memcpy(out.tokens, c->tokens, c->n * sizeof *out.tokens);
    for (uint32_t i = 0; i < c->n; i++) recode_row(&a, c->rows + i * a.row_bytes, &b, out.rows + i * b.row_bytes);
    return out;
}

/* Rows of float32 values of many sizes, one block in eight all zero. */
static content make_values(shape s, uint32_t n) {
    ramet_kv_layout l = row_layout(s, RAMET_KV_F32);
    content c = make_content(&l, n);
    for (size_t i = 0; i < n * l.row_bytes / sizeof(float); i++) {
        float value = (float)((int32_t)draw_below(20001) - 10000) / 1000.0f;
        if (i / RAMET_KV_BLOCK % 8 == 3) value = 0;
        if (i / RAMET_KV_BLOCK % 8 == 5) value *= 1e-6f;
        memcpy(c.rows + i * sizeof value, &value, sizeof value);
    }
    return c;
}

/* ---- what is in a file ---- */

static world *open_at(world *w, shape s, int precision, uint32_t page_tokens) {
    s.precision = precision;
    open_world(w, s, page_tokens, 1024, 64);
    return w;
}

/* Saves the content from a cache of its precision. */
static void save_at(shape s, int precision, uint32_t page_tokens, const content *c,
                    const ramet_snapshot_options *options, const char *path, ramet_snapshot_info *info) {
    world w;
    ramet_context *context = make_context(open_at(&w, s, precision, page_tokens), c);
    assert_ok(save(&w, context, options, path, info, error));
    close_context(&context);
    close_world(&w);
}

static void assert_restores(shape s, int precision, uint32_t page_tokens, const char *path, const content *c) {
    world w;
    ramet_context *back;
    assert_ok(restore(open_at(&w, s, precision, page_tokens), path, &back, error));
    assert_holds(&w, back, c);
    close_context(&back);
    close_world(&w);
}

static ramet_status convert(const char *from, const char *to, int payload, const uint8_t *key, ramet_error *error) {
    return ramet_store_convert(from, policy, to, (ramet_kv)payload, key, crew, NULL, error);
}

static void assert_refuses(shape s, int precision, const char *path, ramet_status expected, const char *hint) {
    world w;
    ramet_context *back;
    ramet_error error = {0};
    assert_status(expected, restore(open_at(&w, s, precision, 16), path, &back, &error));
    assert_null(back);
    if (!strstr(error.message, hint) || !strstr(error.message, path)) fail_msg("\"%s\"", error.message);
    close_world(&w);
}

/* A cache of kv, a file of payload: the rows are the twin's, from saving and from converting; it is taken by a cache of either
 * precision, and by none unless it is allowed. */
static void check_pair(shape s, int kv, int payload, uint32_t n, uint32_t page_tokens) {
    content values = make_values(s, n), in_cache = recode(s, &values, RAMET_KV_F32, kv);
    content in_file = recode(s, &in_cache, kv, payload), back = recode(s, &in_file, payload, kv);
    const char *full = keep("full.ramet"), *saved = keep("saved.ramet");
    const char *converted = keep("converted.ramet");
    const ramet_snapshot_options options = {.payload = (ramet_kv)payload,
                                            .owner = "alice",
                                            .marking = "internal",
                                            .generation = 9,
                                            .sampler_state = "dice",
                                            .sampler_state_bytes = 4};
    ramet_snapshot_options plain = options;
    plain.payload = RAMET_KV_F32; /* no narrower than any cache: as it is */
    ramet_snapshot_info info, same;
    save_at(s, kv, page_tokens, &in_cache, &plain, full, NULL);
    save_at(s, kv, page_tokens, &in_cache, &options, saved, &info);
    assert_ok(convert(full, converted, payload, NULL, error));
    assert_same_file(saved, converted);
    assert_ok(ramet_store_read_info(converted, &same, error));
    assert_memory_equal(&info, &same, sizeof info);
    assert_int_equal(info.kv, kv);
    assert_int_equal(info.payload, payload);
    assert_int_equal(info.payload_bytes, n * in_file.row_bytes);
    assert_string_equal(info.owner, "alice");
    assert_int_equal(info.generation, 9);
    assert_ok(ramet_store_verify(converted, NULL, error));
    if (kv != payload) {
        assert_refuses(s, kv, converted, RAMET_E_UNSUPPORTED, "--allow-lossy-payload");
        assert_refuses(s, payload, converted, RAMET_E_MODEL_MISMATCH, kv_names[kv]);
        policy = &lossy;
    }
    for (int i = 0; i < 3; i++) {
        assert_restores(s, kv, page_sizes[i], converted, &back);
        assert_restores(s, payload, page_sizes[i], converted, &in_file);
    }
    for (int other = 0; other < N_KV; other++) /* allowed or not: of these two alone */
        if (other != kv && other != payload) assert_refuses(s, other, converted, RAMET_E_MODEL_MISMATCH, kv_names[kv]);
    policy = NULL;
    content *all[] = {&values, &in_cache, &in_file, &back};
    for (int i = 0; i < 4; i++) free_content(all[i]);
}

static const shape shapes[] = {{.n_layers = 2, .n_kv_heads = 2, .head_dim = 16},
                               {.n_layers = 1, .n_kv_heads = 3, .head_dim = 40},
                               {.n_layers = 3, .n_kv_heads = 1, .head_dim = 64}};

static const shape wide = {.n_layers = 2, .n_kv_heads = 24, .head_dim = 64};

static void check_pairs(void) {
    static const uint32_t lengths[] = {0, 1, 5, 63, 64, 65, 130};
    uint32_t turn = 0;
    for (int kv = 0; kv < N_KV; kv++)
        for (int payload = kv; payload < N_KV; payload++) {
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++, turn++)
                check_pair(shapes[turn % 3], kv, payload, lengths[i], page_sizes[turn / 3 % 3]);
            check_pair(rows_of_8_kib, kv, payload, 150, 16); /* several chunks, layers across their ends */
            check_pair(wide, kv, payload, 70, 64);           /* layers of a tile that are several chunks */
        }
}

static void test_every_pair_of_precisions(void **state) {
    (void)state;
    check_pairs();
    start_crew(4);
    check_pairs();
    stop_crew();
}

/* From float32 the rows are those of a cache of that precision that was given the same values. */
static void test_rows_are_the_cache_s_own(void **state) {
    (void)state;
    const shape s = shapes[1];
    content values = make_values(s, 70);
    const char *path = keep("own.ramet");
    save_at(s, RAMET_KV_F32, 16, &values, NULL, path, NULL);
    for (int payload = 1; payload < N_KV; payload++) {
        content own = recode(s, &values, RAMET_KV_F32, payload);
        const char *small = keep("small.ramet");
        assert_ok(convert(path, small, payload, NULL, error));
        policy = &lossy;
        assert_restores(s, payload, 64, small, &own);
        own.rows[own.row_bytes * 33] ^= 1; /* negative control: and not others */
        world w;
        ramet_context *back;
        assert_ok(restore(open_at(&w, s, payload, 16), small, &back, error));
        enter(back);
        uint8_t row[512];
        assert_true(own.row_bytes <= sizeof row);
        ramet_kv_export(&w.layout, ramet_context_page_read(back, 33), 33 % 16, 1, row);
        assert_memory_not_equal(row, own.rows + own.row_bytes * 33, own.row_bytes);
        ramet_context_leave(back);
        close_context(&back);
        close_world(&w);
        policy = NULL;
        free_content(&own);
    }
    free_content(&values);
}

/* Step by step is not the same as at once, and going back gains nothing. */
static void test_only_to_narrower(void **state) {
    (void)state;
    const shape s = shapes[0];
    content values = make_values(s, 20);
    const char *full = keep("full.ramet"), *small = keep("small.ramet"), *out = keep("out.ramet");
    save_at(s, RAMET_KV_F32, 16, &values, NULL, full, NULL);
    for (int payload = 1; payload < N_KV; payload++) {
        assert_ok(convert(full, small, payload, NULL, error));
        for (int wider = 0; wider < payload; wider++) {
            ramet_error error = {0};
            assert_status(RAMET_E_ARGUMENT, convert(small, out, wider, NULL, &error));
            assert_non_null(strstr(error.message, "would say no more"));
            assert_int_equal(access(out, F_OK), -1);
        }
    }
    assert_status(RAMET_E_ARGUMENT, convert(full, out, 4, NULL, NULL));
    assert_status(RAMET_E_ARGUMENT, convert(full, out, -1, NULL, NULL));
    ramet_snapshot_options options = {.payload = (ramet_kv)5};
    world w;
    ramet_context *context = make_context(open_at(&w, s, RAMET_KV_F32, 16), &values);
    assert_status(RAMET_E_ARGUMENT, save(&w, context, &options, out, NULL, NULL));
    close_context(&context);
    close_world(&w);
    free_content(&values);
}

/* ---- the same rows: another key, another version, the same name ---- */

static void test_encrypted_and_back(void **state) {
    (void)state;
    static uint8_t other_key[RAMET_KEY_BYTES] = {9};
    const ramet_snapshot_policy with_other = {.context_key = other_key};
    content c = make_values(rows_of_8_kib, 150);
    const char *plain = keep("plain.ramet"), *sealed = keep("sealed.ramet");
    const char *again = keep("again.ramet"), *back = keep("back.ramet");
    save_at(rows_of_8_kib, RAMET_KV_F32, 16, &c, NULL, plain, NULL);
    assert_ok(convert(plain, sealed, RAMET_KV_F32, context_key, error));
    assert_status(RAMET_E_AUTHENTICATION, convert(sealed, back, RAMET_KV_F32, NULL, NULL));
    policy = &with_key;
    assert_restores(rows_of_8_kib, RAMET_KV_F32, 64, sealed, &c);
    assert_ok(convert(sealed, again, RAMET_KV_F32, other_key, error));
    assert_status(RAMET_E_AUTHENTICATION, convert(again, back, RAMET_KV_F32, NULL, NULL));
    assert_int_equal(access(back, F_OK), -1);
    policy = &with_other;
    assert_restores(rows_of_8_kib, RAMET_KV_F32, 16, again, &c);
    assert_ok(convert(again, back, RAMET_KV_F32, NULL, error));
    assert_same_file(plain, back);
    policy = &with_key;
    assert_ok(convert(sealed, sealed, RAMET_KV_Q8, context_key, error)); /* over itself */
    content small = recode(rows_of_8_kib, &c, RAMET_KV_F32, RAMET_KV_Q8);
    policy = &lossy_with_key;
    assert_restores(rows_of_8_kib, RAMET_KV_Q8, 256, sealed, &small);
    policy = NULL;
    assert_int_equal(count_files(), 4);
    free_content(&small);
    free_content(&c);
}

static unsigned permissions_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* Nobody may read more than before. */
static void test_permissions(void **state) {
    (void)state;
    content c = make_values(rows_of_8_kib, 20);
    const char *plain = keep("plain.ramet"), *sealed = keep("sealed.ramet"), *back = keep("back.ramet");
    mode_t mask = umask(022);
    save_at(rows_of_8_kib, RAMET_KV_F32, 16, &c, NULL, plain, NULL);
    assert_int_equal(chmod(plain, 0600), 0);
    assert_ok(convert(plain, plain, RAMET_KV_Q8, NULL, error)); /* over itself */
    assert_int_equal(permissions_of(plain), 0600);
    assert_ok(convert(plain, sealed, RAMET_KV_Q8, context_key, error));
    assert_int_equal(permissions_of(sealed), 0644); /* a new one, and it shows nothing */
    policy = &with_key;
    assert_ok(convert(sealed, back, RAMET_KV_Q8, NULL, error));
    assert_int_equal(permissions_of(back), 0600);
    assert_ok(convert(sealed, sealed, RAMET_KV_Q8, context_key, error));
    assert_int_equal(permissions_of(sealed), 0644);
    assert_ok(convert(sealed, sealed, RAMET_KV_Q8, NULL, error));
    assert_int_equal(permissions_of(sealed), 0600);
    policy = NULL;
    umask(mask);
    free_content(&c);
}

static void test_version_1_becomes_current(void **state) {
    (void)state;
    const ramet_snapshot_policy legacy = {.allow_legacy = true};
    victim v;
    open_victim(&v, one_chunk, 5, NULL);
    bytes old = copy_bytes(&v.file);
    make_version_1(&old);
    const char *path = offer(&old), *out = keep("current.ramet");
    assert_status(RAMET_E_UNSUPPORTED, convert(path, out, RAMET_KV_F16, NULL, NULL));
    policy = &legacy;
    assert_ok(convert(path, out, RAMET_KV_F16, NULL, error));
    policy = NULL;
    assert_same_file(out, keep("sound.ramet"));
    free(old.data);
    close_victim(&v);
}

/* ---- what is wrong ---- */

static void remove_if_there(const char *path) {
    if (unlink(path) != 0) assert_int_equal(access(path, F_OK), -1);
}

/* Each byte of a file changed, and each length: it converts to nothing, and is not restored across precisions either. */
static void refuse_damage(bool is_sealed) {
    policy = is_sealed ? &lossy_with_key : &lossy;
    const ramet_snapshot_options options = {.payload = RAMET_KV_VQ8, .sampler_state = "s", .sampler_state_bytes = 1};
    const shape s = {RAMET_KV_F16, 2, 1, 8};
    victim v;
    open_world(&v.w, s, 16, 4096, 512);
    content values = make_values(s, 5);
    v.saved = recode(s, &values, RAMET_KV_F32, RAMET_KV_F16);
    v.file = save_to_bytes(&v.w, &v.saved, &options);
    bytes f = copy_bytes(&v.file);
    const char *out = keep("never.ramet");
    for (size_t at = 0; at < v.file.n; at++) {
        f.data[at] ^= 0x41;
        const char *path = offer(&f);
        ramet_error error = {0};
        if (convert(path, out, RAMET_KV_Q8, NULL, &error) == RAMET_OK) fail_msg("byte %zu", at);
        assert_non_null(strstr(error.message, path));
        refuse_quietly(&v, path, at < header_of(&v.file) ? AT_ONCE : READING, &error);
        f.data[at] ^= 0x41;
    }
    for (f.n = 0; f.n < v.file.n; f.n += 7) assert_int_not_equal(convert(offer(&f), out, RAMET_KV_Q8, NULL, NULL), 0);
    assert_int_equal(access(out, F_OK), -1);
    f.n = v.file.n;
    assert_ok(convert(offer(&f), out, RAMET_KV_Q8, NULL, error)); /* and as it was it does */
    remove_if_there(out);
    assert_int_equal(count_files(), 2); /* "sound" and "offered" */
    free(f.data);
    free(v.file.data);
    free_content(&values);
    free_content(&v.saved);
    close_world(&v.w);
    policy = NULL;
}

static void empty_directory(void) {
    static const char *const names[] = {"full",   "saved", "converted", "own",     "small", "out",     "plain",
                                        "sealed", "again", "back",      "current", "sound", "offered", "never"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.ramet", names[i]);
        remove_if_there(keep(name));
    }
    assert_int_equal(count_files(), 0);
}

static int start_empty(void **state) {
    (void)state;
    empty_directory();
    return 0;
}

static void test_damaged_source(void **state) {
    (void)state;
    refuse_damage(false);
    refuse_damage(true);
}

/* One bit in any of several chunks, with and without a crew: an old file at the place stays as it was. */
static void test_damage_in_a_large_source(void **state) {
    (void)state;
    content c = make_values(rows_of_8_kib, 150);
    const char *full = keep("full.ramet"), *out = keep("out.ramet"), *before = keep("back.ramet");
    save_at(rows_of_8_kib, RAMET_KV_F32, 16, &c, NULL, full, NULL);
    save_at(rows_of_8_kib, RAMET_KV_F32, 16, &c, NULL, out, NULL);
    save_at(rows_of_8_kib, RAMET_KV_F32, 16, &c, NULL, before, NULL);
    bytes f = read_file(full);
    start_crew(3);
    const ramet_store_crew *pool_crew = crew;
    for (size_t at = f.n - 5; at > CHUNK / 3; at -= CHUNK / 3) {
        f.data[at] ^= 1;
        const char *path = offer(&f);
        for (int with_crew = 0; with_crew < 2; with_crew++) {
            crew = with_crew ? pool_crew : NULL;
            for (int payload = 0; payload < N_KV; payload++)
                assert_status(RAMET_E_CORRUPT, convert(path, out, payload, NULL, NULL));
        }
        f.data[at] ^= 1;
    }
    crew = pool_crew;
    stop_crew();
    assert_same_file(out, before);
    assert_int_equal(count_files(), 4);
    free(f.data);
    free_content(&c);
}

static void test_forged_source(void **state) {
    (void)state;
    victim v;
    open_victim(&v, (shape){RAMET_KV_F32, 1, 1, 8}, 5, NULL);
    const char *out = keep("never.ramet");
    bytes f = copy_bytes(&v.file);
    poke_u32(&f, field_of(&f, 0x8008), RAMET_KV_F16); /* float32 rows of a float16 cache */
    sum_header(&f);
    sum_chunk(&f);
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    assert_status(RAMET_E_UNSUPPORTED, convert(offer(&f), out, RAMET_KV_Q8, NULL, NULL));
    free(f.data);
    f = copy_bytes(&v.file);
    poke_u32(&f, header_of(&f) + 8, N_VOCAB); /* a token that there is not */
    sum_chunk(&f);
    assert_status(RAMET_E_CORRUPT, convert(offer(&f), out, RAMET_KV_Q8, NULL, NULL));
    assert_int_equal(access(out, F_OK), -1);
    free(f.data);
    const ramet_snapshot_options options = {.payload = RAMET_KV_Q8};
    f = save_to_bytes(&v.w, &v.saved, &options); /* the same where rows are decoded */
    poke_u32(&f, header_of(&f) + 8, N_VOCAB);
    sum_chunk(&f);
    policy = &lossy;
    refuse(&v, &f, RAMET_E_CORRUPT, READING);
    policy = NULL;
    free(f.data);
    close_victim(&v);
}

/* Headers made to be wrong under right checksums. What is taken all the same says less than it could (no vocabulary is too
 * large for its tokens), and then converts to a sound file. */
static void test_hostile_fields(void **state) {
    (void)state;
    static const uint32_t values[] = {0, 1, 2, 3, 4, 6, 64, 65, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff};
    const ramet_snapshot_options options = {.payload = RAMET_KV_VQ8};
    const char *out = keep("never.ramet");
    size_t n_taken = 0, n_refused = 0;
    policy = &lossy;
    victim v;
    open_victim(&v, (shape){RAMET_KV_F32, 2, 2, 8}, 5, NULL);
    bytes sound = save_to_bytes(&v.w, &v.saved, &options);
    for (uint32_t tag = 0x8004; tag <= 0x800b; tag++)
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            bytes f = copy_bytes(&sound);
            poke_u32(&f, field_of(&f, tag), values[i]);
            sum_header(&f);
            sum_chunk(&f);
            const char *path = offer(&f);
            bool is_converted = convert(path, out, RAMET_KV_Q8, NULL, NULL) == RAMET_OK;
            assert_int_equal(is_converted, ramet_store_verify(path, policy, NULL) == RAMET_OK);
            if (is_converted) assert_ok(ramet_store_verify(out, policy, error));
            ramet_context *back;
            if (restore(&v.w, path, &back, NULL) == RAMET_OK) close_context(&back);
            n_taken += is_converted;
            n_refused += !is_converted;
            free(f.data);
        }
    print_message("%zu headers refused, %zu taken\n", n_refused, n_taken);
    assert_true(n_taken > 0 && n_refused > 60);
    free(sound.data);
    close_victim(&v);
    policy = NULL;
}

/* Whichever allocation fails: nothing is left, and nothing has changed. */
static void test_no_memory(void **state) {
    (void)state;
    const shape s = {RAMET_KV_F32, 2, 2, 16};
    content values = make_values(s, 70), small = recode(s, &values, RAMET_KV_F32, RAMET_KV_Q8);
    content back_as = recode(s, &small, RAMET_KV_Q8, RAMET_KV_F32);
    const char *full = keep("full.ramet"), *out = keep("out.ramet");
    save_at(s, RAMET_KV_F32, 16, &values, NULL, full, NULL);
    uint64_t n = 0;
    ramet_status status = RAMET_E_NO_MEMORY;
    while (status != RAMET_OK) {
        ramet_alloc_fail_after(++n);
        status = convert(full, out, RAMET_KV_Q8, NULL, NULL);
        ramet_alloc_fail_after(0);
        if (status != RAMET_OK) assert_status(RAMET_E_NO_MEMORY, status);
        assert_int_equal(count_files(), status == RAMET_OK ? 2 : 1);
    }
    assert_in_range(n, 8, 200);
    policy = &lossy;
    world w;
    open_world(&w, s, 16, 1024, 64);
    ramet_context *back = NULL;
    for (n = 1, status = RAMET_E_NO_MEMORY; status != RAMET_OK; n++) {
        ramet_alloc_fail_after(n);
        status = restore(&w, out, &back, NULL);
        ramet_alloc_fail_after(0);
        if (status != RAMET_OK) assert_status(RAMET_E_NO_MEMORY, status);
    }
    assert_holds(&w, back, &back_as);
    close_context(&back);
    close_world(&w);
    policy = NULL;
    free_content(&values);
    free_content(&small);
    free_content(&back_as);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    draw_key();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_of_precisions),
        cmocka_unit_test(test_rows_are_the_cache_s_own),
        cmocka_unit_test(test_only_to_narrower),
        cmocka_unit_test_setup(test_encrypted_and_back, start_empty),
        cmocka_unit_test_setup(test_permissions, start_empty),
        cmocka_unit_test(test_version_1_becomes_current),
        cmocka_unit_test_setup(test_damaged_source, start_empty),
        cmocka_unit_test_setup(test_damage_in_a_large_source, start_empty),
        cmocka_unit_test(test_forged_source),
        cmocka_unit_test(test_hostile_fields),
        cmocka_unit_test_setup(test_no_memory, start_empty),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
