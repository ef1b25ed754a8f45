/* test_store_snapshot.c - what is saved is what comes back, the bytes depend on nothing else (K8), and a file is taken
 * by its own model only. */
#include "test_store_fixture.h"

static const shape shapes[] = {
    {RAMET_KV_F32, 2, 2, 16}, {RAMET_KV_F16, 1, 3, 40}, {RAMET_KV_VQ8, 2, 1, 64}, {RAMET_KV_Q8, 1, 2, 48}};
static const uint32_t page_sizes[] = {16, 64, 256};
enum { N_SHAPES = 4, N_PAGE_SIZES = 3 };

/* Saves from every page size, restores into every page size. */
static void round_trip(shape s, uint32_t n) {
    world from[N_PAGE_SIZES];
    for (int i = 0; i < N_PAGE_SIZES; i++) open_world(&from[i], s, page_sizes[i], 1024, 64);
    content c = make_content(&from[0].layout, n);
    const char *first = in_directory("first.ramet"), *path = in_directory("other.ramet");
    for (int i = 0; i < N_PAGE_SIZES; i++) {
        ramet_context *context = make_context(&from[i], &c), *back;
        ramet_snapshot_info saved, info;
        assert_ok(save(&from[i], context, NULL, i == 0 ? first : path, &saved, error));
        if (i > 0) assert_same_file(first, path); /* K8 */
        close_context(&context);
        assert_ok(ramet_store_verify(first, NULL, error));
        assert_ok(ramet_store_read_info(first, &info, error));
        assert_memory_equal(&info, &saved, sizeof info);
        assert_int_equal(info.n_tokens, n);
        assert_int_equal(info.has_logits, n > 0);
        assert_int_equal(info.payload_bytes, n * c.row_bytes);
        assert_ok(restore(&from[i], first, &back, error));
        assert_holds(&from[i], back, &c);
        close_context(&back);
    }
    free_content(&c);
    for (int i = 0; i < N_PAGE_SIZES; i++) close_world(&from[i]);
}

static void test_round_trip_and_page_size_k8(void **state) {
    (void)state;
    static const uint32_t lengths[] = {0, 1, 63, 64, 65, 130};
    for (int s = 0; s < N_SHAPES; s++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) round_trip(shapes[s], lengths[i]);
}

static void test_case_27_page_boundaries(void **state) {
    (void)state;
    for (uint32_t k = 0; k <= 3; k++)
        for (uint32_t i = 0; i < N_PAGE_SIZES; i++) {
            uint32_t page = page_sizes[i];
            round_trip(shapes[1], k * page);
            round_trip(shapes[1], k * page + 1);
            round_trip(shapes[1], k * page + page - 1);
        }
}

/* K8: nor do the bytes depend on how many threads make them, and all of them read what any made. */
static void test_threads_do_not_show_k8(void **state) {
    (void)state;
    static const shape large = {RAMET_KV_F32, 4, 4, 64}; /* 8 KiB a row: 20 chunks */
    const char *alone = in_directory("alone.ramet"), *together = in_directory("together.ramet");
    for (uint32_t i = 0; i < N_PAGE_SIZES; i++) {
        world w;
        open_world(&w, large, page_sizes[i], 1024, 128);
        content c = make_content(&w.layout, 630);
        ramet_context *context = make_context(&w, &c), *back;
        assert_ok(save(&w, context, NULL, alone, NULL, error));
        for (uint32_t threads = 1; threads <= 4; threads++) {
            start_crew(threads);
            assert_ok(save(&w, context, NULL, together, NULL, error));
            assert_same_file(alone, together);
            close_context(&context);
            assert_ok(restore(&w, alone, &context, error));
            stop_crew();
            assert_holds(&w, context, &c);
        }
        assert_ok(restore(&w, together, &back, error));
        assert_holds(&w, back, &c);
        close_context(&context);
        close_context(&back);
        free_content(&c);
        close_world(&w);
    }
}

/* The same content by detours: in pieces, cut and written again, in a fork that diverged. */
static void test_history_does_not_show_k8(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[2], 16, 512, 64);
    content c = make_content(&w.layout, 100), wrong = make_content(&w.layout, 150);
    memcpy(wrong.tokens, c.tokens, 70 * sizeof *c.tokens);
    memcpy(wrong.rows, c.rows, 70 * c.row_bytes);
    ramet_context *straight = make_context(&w, &c), *wanderer = make_context(&w, &wrong), *fork;
    assert_ok(save(&w, straight, NULL, in_directory("straight.ramet"), NULL, error));

    assert_ok(ramet_context_enter(wanderer, error));
    assert_ok(ramet_context_share(wanderer, &fork, error));
    enter(fork);
    assert_ok(ramet_context_cut(fork, 70, error));
    for (uint32_t end = 71; end <= 100; end += end == 71 ? 4 : 25) extend(&w, fork, &c, end);
    ramet_context_leave(fork);
    ramet_context_leave(wanderer);
    assert_holds(&w, wanderer, &wrong);
    assert_ok(save(&w, fork, NULL, in_directory("fork.ramet"), NULL, error));
    assert_same_file(in_directory("straight.ramet"), in_directory("fork.ramet"));

    /* negative control: the comparison sees one changed bit */
    content other = make_content(&w.layout, 100);
    memcpy(other.tokens, c.tokens, 100 * sizeof *c.tokens);
    memcpy(other.rows, c.rows, 100 * c.row_bytes);
    memcpy(other.logits, c.logits, sizeof c.logits);
    other.rows[50 * c.row_bytes] ^= 1;
    ramet_context *changed = make_context(&w, &other);
    assert_ok(save(&w, changed, NULL, in_directory("changed.ramet"), NULL, error));
    bytes a = read_file(in_directory("straight.ramet")), b = read_file(in_directory("changed.ramet"));
    assert_int_equal(a.n, b.n);
    assert_memory_not_equal(a.data, b.data, a.n);
    free(a.data);
    free(b.data);

    close_context(&straight);
    close_context(&wanderer);
    close_context(&fork);
    close_context(&changed);
    free_content(&c);
    free_content(&wrong);
    free_content(&other);
    close_world(&w);
}

static void test_options_come_back(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 64, 512, 16);
    content c = make_content(&w.layout, 3);
    ramet_context *context = make_context(&w, &c), *back;
    uint8_t sampler[999];
    draw_bytes(sampler, sizeof sampler);
    ramet_snapshot_options options = {
        .owner = "alice", .marking = "internal use", .sampler_state = sampler, .sampler_state_bytes = sizeof sampler};
    const char *path = in_directory("options.ramet");
    assert_ok(save(&w, context, &options, path, NULL, error));

    void *got = NULL;
    size_t got_bytes = 0;
    ramet_snapshot_info info;
    assert_ok(ramet_store_restore(w.cache, &w.identity, NULL, path, crew, &back, &got, &got_bytes, &info, error));
    assert_int_equal(got_bytes, sizeof sampler);
    assert_memory_equal(got, sampler, sizeof sampler);
    assert_string_equal(info.owner, "alice");
    assert_string_equal(info.marking, "internal use");
    assert_string_equal(info.model_name, "tiny model");
    assert_string_equal(info.arch, "llama");
    assert_string_equal(info.numerics_id, w.identity.numerics_id);
    assert_int_equal(info.kv, RAMET_KV_F32);
    free(got);

    int32_t *tokens;
    uint32_t n;
    assert_ok(ramet_store_read_tokens(path, NULL, &tokens, &n, error));
    assert_int_equal(n, 3);
    assert_memory_equal(tokens, c.tokens, 3 * sizeof *tokens);
    free(tokens);

    char longest[129];
    memset(longest, 'x', 128);
    longest[128] = 0;
    options.owner = longest;
    assert_status(RAMET_E_ARGUMENT, save(&w, context, &options, path, NULL, NULL));
    options.owner = longest + 1;
    options.sampler_state_bytes = RAMET_SNAPSHOT_SAMPLER_MAX + 1;
    assert_status(RAMET_E_ARGUMENT, save(&w, context, &options, path, NULL, NULL));
    options.sampler_state = NULL;
    options.sampler_state_bytes = 0;
    assert_ok(save(&w, context, &options, path, NULL, error));
    close_context(&context);
    close_context(&back);
    free_content(&c);
    close_world(&w);
}

/* A name that is too long is cut between characters. */
static void test_long_model_name(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 64, 512, 16);
    content c = make_content(&w.layout, 1);
    ramet_context *context = make_context(&w, &c);
    char name[200] = "x"; /* then two-byte characters: byte 127 would be inside one */
    for (int i = 1; i + 2 < 190; i += 2) memcpy(name + i, "\xc3\xa9", 3);
    name[0] = 'x';
    char expected[128];
    snprintf(expected, sizeof expected, "%.127s", name);
    w.identity.model_name = name;
    ramet_snapshot_info info;
    assert_ok(save(&w, context, NULL, in_directory("name.ramet"), &info, error));
    assert_string_equal(info.model_name, expected);
    w.identity.model_name = name + 1;
    expected[126] = 0;
    assert_ok(save(&w, context, NULL, in_directory("name.ramet"), &info, error));
    assert_int_equal(strlen(info.model_name), 126);
    w.identity.model_name = NULL;
    assert_ok(save(&w, context, NULL, in_directory("name.ramet"), &info, error));
    assert_string_equal(info.model_name, "");
    close_context(&context);
    free_content(&c);
    close_world(&w);
}

/* A restored context is as good as any: the tree finds it, and the longest state wins. */
static void test_case_10_restored_state_is_found(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[1], 16, 512, 128);
    content c = make_content(&w.layout, 150), half = c;
    half.n = 100;
    const char *path = in_directory("half.ramet");
    ramet_context *context = make_context(&w, &half), *back, *found;
    assert_ok(save(&w, context, NULL, path, NULL, error));
    close_context(&context);
    uint32_t matched;
    assert_ok(restore(&w, path, &back, error));
    retain(back);
    assert_ok(ramet_tree_match(w.cache, NULL, c.tokens, 100, &found, &matched, error));
    assert_int_equal(matched, 100);
    assert_holds(&w, found, &half);
    close_context(&found);

    context = make_context(&w, &c);
    retain(context);
    assert_ok(ramet_tree_match(w.cache, NULL, c.tokens, 150, &found, &matched, error));
    assert_int_equal(matched, 150);
    assert_holds(&w, found, &c);
    close_context(&found);
    close_context(&context);
    close_context(&back);
    free_content(&c);
    close_world(&w);
}

/* ---- case 29 ---- */

static void refuse(const world *w, const ramet_snapshot_identity *identity, const char *path, ramet_status expected,
                   const char *first, const char *second) {
    ramet_engine_stats before = stats_of(w), after;
    ramet_error error = {0};
    ramet_context *back;
    assert_status(expected, ramet_store_restore(w->cache, identity, NULL, path, crew, &back, NULL, NULL, NULL, &error));
    assert_null(back);
    if (!strstr(error.message, first) || !strstr(error.message, second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error.message, first, second);
    after = stats_of(w);
    assert_memory_equal(&before, &after, sizeof before);
}

static void test_case_29_other_model_tokenizer_numerics(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 16, 512, 16);
    content c = make_content(&w.layout, 20);
    ramet_context *context = make_context(&w, &c), *back;
    const char *path = in_directory("own.ramet");
    assert_ok(save(&w, context, NULL, path, NULL, error));
    char theirs[65], ours[65];

    ramet_snapshot_identity other = w.identity;
    other.weights_sha256[13] ^= 0x10; /* one bit of the weights gives another digest */
    ramet_hex(w.identity.weights_sha256, 32, theirs);
    ramet_hex(other.weights_sha256, 32, ours);
    refuse(&w, &other, path, RAMET_E_MODEL_MISMATCH, theirs, ours);

    other = w.identity;
    other.tokenizer_sha256[31] ^= 1; /* another order of the vocabulary */
    ramet_hex(w.identity.tokenizer_sha256, 32, theirs);
    ramet_hex(other.tokenizer_sha256, 32, ours);
    refuse(&w, &other, path, RAMET_E_MODEL_MISMATCH, theirs, ours);

    other = w.identity;
    other.numerics_id = "1-0123456789abcdef01234567890abd";
    refuse(&w, &other, path, RAMET_E_NUMERICS_MISMATCH, w.identity.numerics_id, other.numerics_id);
    other.numerics_id = "1-0123456789abcdef01234567890ab"; /* a prefix */
    refuse(&w, &other, path, RAMET_E_NUMERICS_MISMATCH, w.identity.numerics_id, other.numerics_id);

    other = w.identity;
    other.n_vocab++;
    refuse(&w, &other, path, RAMET_E_MODEL_MISMATCH, "37 tokens", "38");

    /* accepted: another name of the file, another name of the model */
    other = w.identity;
    other.model_name = "renamed";
    const char *renamed = in_directory("another name, with spaces");
    assert_int_equal(rename(path, renamed), 0);
    assert_ok(ramet_store_restore(w.cache, &other, NULL, renamed, crew, &back, NULL, NULL, NULL, error));
    assert_holds(&w, back, &c);

    /* same name, new content: judged by the content */
    w.identity.weights_sha256[0] ^= 1;
    assert_ok(save(&w, context, NULL, renamed, NULL, error));
    refuse(&w, &other, renamed, RAMET_E_MODEL_MISMATCH, "weights", renamed);
    close_context(&context);
    close_context(&back);
    free_content(&c);
    close_world(&w);
}

static void test_case_29_other_precision_or_shape(void **state) {
    (void)state;
    static const char *const names[] = {"f32", "f16", "vq8", "q8"};
    for (int a = 0; a < 4; a++) {
        world w;
        open_world(&w, (shape){a, 2, 2, 32}, 16, 512, 16);
        content c = make_content(&w.layout, 20);
        ramet_context *context = make_context(&w, &c);
        const char *path = in_directory("precision.ramet");
        assert_ok(save(&w, context, NULL, path, NULL, error));
        close_context(&context);
        free_content(&c);
        close_world(&w);
        for (int b = 0; b < 4; b++) {
            if (a == b) continue;
            char hint[32];
            snprintf(hint, sizeof hint, "start with --kv %s", names[a]);
            world v;
            open_world(&v, (shape){b, 2, 2, 32}, 16, 512, 16);
            refuse(&v, &v.identity, path, RAMET_E_MODEL_MISMATCH, hint, path);
            close_world(&v);
        }
        /* one number differs; then equal row sizes */
        static const shape lookalikes[] = {{0, 4, 2, 32}, {0, 2, 4, 32}, {0, 2, 2, 64}, {0, 4, 1, 32},
                                           {0, 1, 4, 32}, {0, 2, 1, 64}, {0, 1, 2, 64}};
        for (int i = 0; i < 7; i++) {
            shape s = lookalikes[i];
            s.precision = a;
            world v;
            open_world(&v, s, 16, 512, 16);
            refuse(&v, &v.identity, path, RAMET_E_MODEL_MISMATCH, "2 layers, 2 KV heads of 32", path);
            close_world(&v);
        }
    }
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_and_page_size_k8),
        cmocka_unit_test(test_case_27_page_boundaries),
        cmocka_unit_test(test_threads_do_not_show_k8),
        cmocka_unit_test(test_history_does_not_show_k8),
        cmocka_unit_test(test_options_come_back),
        cmocka_unit_test(test_long_model_name),
        cmocka_unit_test(test_case_10_restored_state_is_found),
        cmocka_unit_test(test_case_29_other_model_tokenizer_numerics),
        cmocka_unit_test(test_case_29_other_precision_or_shape),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
