/* Special tokens, BOS, the space in front, bytes that are not UTF-8; merging in lockstep with a slow twin. */
#include "test_text_fixture.h"

enum { SPECIAL = RAMET_TOKENIZE_SPECIAL, BOS = RAMET_TOKENIZE_BOS };

static const char *const all[] = {"tiny-llama3.bin", "tiny-smollm.bin", "tiny-gpt2.bin",
                                  "tiny-qwen2.bin",  "tiny-qwen35.bin", "tiny-gemma.bin"};
#define N_ALL (sizeof all / sizeof *all)

static uint64_t seed;

static bool gives(const ramet_vocab *v, const char *text, unsigned flags, size_t n, const int32_t *ids) {
    id_list got = encode_bytes(v, text, strlen(text), flags);
    bool same = has_ids(got, ids, n);
    free(got.ids);
    return same;
}
#define GIVES(v, text, flags, ...)                                                                                     \
    gives(v, text, flags, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (const int32_t[]){__VA_ARGS__})

/* A SentencePiece vocabulary like Llama 2's: <unk> <s> </s>, bytes, then the space and a few pieces; score = -id. */
enum { UNK, S, END_S, BYTE0, SPACE = BYTE0 + 256, U, E_, ER, US, USER, SPACE_US, SPACE_USER, S_, RR, R_, N_LLAMA2 };
static const char *const llama2_pieces[] = {"\xE2\x96\x81",     "u", "e",  "er", "us", "user", "\xE2\x96\x81us",
                                            "\xE2\x96\x81user", "s", "rr", "r"};

typedef struct llama2 {
    ramet_vocab_source source;
    ramet_text_slice pieces[N_LLAMA2];
    int32_t types[N_LLAMA2];
    float scores[N_LLAMA2];
    char names[256][8];
} llama2;

static void add_piece(llama2 *m, const char *text, int32_t type) {
    uint32_t id = m->source.n_tokens++;
    m->pieces[id] = (ramet_text_slice){text, strlen(text)};
    m->types[id] = type;
    m->scores[id] = -(float)id;
}

static void make_llama2(llama2 *m) {
    memset(m, 0, sizeof *m);
    m->source = (ramet_vocab_source){.kind = "llama",
                                     .pre = "default",
                                     .pieces = m->pieces,
                                     .scores = m->scores,
                                     .types = m->types,
                                     .bos = S,
                                     .eos = END_S,
                                     .eot = -1,
                                     .unk = UNK,
                                     .pad = -1,
                                     .add_bos = 1,
                                     .add_eos = 0,
                                     .add_space_prefix = -1};
    add_piece(m, "<unk>", RAMET_TOKEN_UNKNOWN);
    add_piece(m, "<s>", RAMET_TOKEN_CONTROL);
    add_piece(m, "</s>", RAMET_TOKEN_CONTROL);
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(m->names[byte], sizeof m->names[byte], "<0x%02X>", byte);
        add_piece(m, m->names[byte], RAMET_TOKEN_BYTE);
    }
    for (size_t i = 0; i < sizeof llama2_pieces / sizeof *llama2_pieces; i++)
        add_piece(m, llama2_pieces[i], RAMET_TOKEN_NORMAL);
}

static void case_15_merge_order_is_by_rank(void **state) {
    (void)state;
    llama2 m;
    make_llama2(&m);
    ramet_vocab *v = create_vocab(&m.source);
    assert_true(GIVES(v, "user", 0, SPACE_USER));
    ramet_vocab_destroy(&v);
    /* "rr" above "er": in "uerr" the better pair is the later one, and left-to-right merging would take "er" */
    m.scores[RR] = 0.5f;
    v = create_vocab(&m.source);
    assert_true(GIVES(v, "uerr", 0, SPACE, U, E_, RR));
    ramet_vocab_destroy(&v);
    m.scores[RR] = -1000; /* the control: below it, and the ids change */
    v = create_vocab(&m.source);
    assert_true(GIVES(v, "uerr", 0, SPACE, U, ER, R_));
    assert_false(GIVES(v, "uerr", 0, SPACE, U, E_, RR));
    ramet_vocab_destroy(&v);
}

static void case_16_space_in_front(void **state) {
    (void)state;
    llama2 m;
    make_llama2(&m);
    ramet_vocab *v = create_vocab(&m.source);
    assert_true(GIVES(v, "user", BOS, S, SPACE_USER));
    assert_true(GIVES(v, "<s>user", SPECIAL | BOS, S, SPACE_USER)); /* a written BOS is the BOS */
    assert_true(GIVES(v, "<s>user", SPECIAL, S, SPACE_USER));
    assert_true(GIVES(v, "<s> user", SPECIAL, S, SPACE, SPACE_USER));
    assert_true(GIVES(v, "<s>\nuser", SPECIAL, S, SPACE, BYTE0 + '\n', USER));
    assert_true(GIVES(v, "user</s>user", SPECIAL, SPACE_USER, END_S, USER)); /* none invented after it */
    assert_true(GIVES(v, "user</s> user", SPECIAL, SPACE_USER, END_S, SPACE_USER));
    assert_true(GIVES(v, "user</s>\nuser", SPECIAL, SPACE_USER, END_S, BYTE0 + '\n', USER));
    assert_true(GIVES(v, "</s>user", SPECIAL | BOS, S, END_S, USER));
    assert_true(GIVES(v, "<s></s>", SPECIAL | BOS, S, END_S));
    assert_true(GIVES(v, "<s>", SPECIAL | BOS, S));
    assert_true(gives(v, "", 0, 0, NULL));
    assert_true(GIVES(v, "", BOS, S));
    assert_true(GIVES(v, " ", 0, SPACE, SPACE));
    static const char *const texts[] = {
        "user",     " user",     "<s>user",    "<s> user",     "<s>\nuser", "user</s>user", "user</s> user",
        "</s>user", "</s> user", "<s><s>user", "<s></s> user", "  ",        "<s>",          "<unk>user"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        id_list got = encode_bytes(v, texts[i], strlen(texts[i]), SPECIAL);
        if (!decodes_to(v, got.ids, got.n, true, texts[i], strlen(texts[i])))
            fail_msg("\"%s\" does not come back", texts[i]);
        free(got.ids);
    }
    ramet_vocab_destroy(&v);
    m.source.add_space_prefix = 0;
    v = create_vocab(&m.source);
    assert_true(GIVES(v, "<s>user", SPECIAL, S, USER));
    ramet_vocab_destroy(&v);
}

static void case_16_one_bos(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-llama3.bin");
    static const int8_t says[] = {-1, 0, 1};
    for (int i = 0; i < 3; i++) {
        f.source.add_bos = says[i];
        ramet_vocab *v = create_vocab(&f.source);
        int32_t bos = ramet_vocab_bos(v);
        assert_int_equal(ramet_vocab_adds_bos(v), says[i] != 0); /* absent: the family adds it */
        id_list plain = encode_bytes(v, "Hi", 2, 0), added = encode_bytes(v, "Hi", 2, BOS);
        id_list written = encode_bytes(v, "<|begin_of_text|>Hi", 19, SPECIAL | BOS);
        assert_int_equal(added.n, plain.n + (says[i] != 0));
        assert_int_equal(written.n, plain.n + 1);
        assert_int_equal(written.ids[0], bos);
        assert_memory_equal(written.ids + 1, plain.ids, plain.n * sizeof *plain.ids);
        if (says[i] != 0) assert_true(has_ids(added, written.ids, written.n));
        free(plain.ids), free(added.ids), free(written.ids);
        ramet_vocab_destroy(&v);
    }
    f.source.pre = "qwen2"; /* families that add none unless told */
    f.source.add_bos = -1;
    ramet_vocab *v = create_vocab(&f.source);
    assert_false(ramet_vocab_adds_bos(v));
    ramet_vocab_destroy(&v);
    fixture_close(&f);
}

static bool holds_id(id_list list, int32_t id) {
    for (size_t i = 0; i < list.n; i++)
        if (list.ids[i] == id) return true;
    return false;
}

/* Without the flag, no text whatever makes a control token; user-defined tokens are always found. */
static void test_special_only_where_asked(void **state) {
    (void)state;
    for (size_t k = 0; k < N_ALL; k++) {
        fixture f;
        fixture_open(&f, all[k]);
        ramet_vocab *v = create_vocab(&f.source);
        for (uint32_t id = 0; id < f.source.n_tokens; id++) {
            int32_t type = f.source.types[id];
            if (type != RAMET_TOKEN_CONTROL && type != RAMET_TOKEN_USER_DEFINED) continue;
            char text[64];
            int n = snprintf(text, sizeof text, "a%.*sb", (int)f.source.pieces[id].bytes, f.source.pieces[id].data);
            id_list with = encode_bytes(v, text, (size_t)n, SPECIAL), without = encode_bytes(v, text, (size_t)n, 0);
            assert_true(holds_id(with, (int32_t)id));
            assert_int_equal(holds_id(without, (int32_t)id), type == RAMET_TOKEN_USER_DEFINED);
            assert_true(decodes_to(v, with.ids, with.n, true, text, (size_t)n));
            assert_true(decodes_to(v, without.ids, without.n, false, text, (size_t)n));
            if (type == RAMET_TOKEN_CONTROL) assert_true(decodes_to(v, with.ids, with.n, false, "ab", 2));
            free(with.ids), free(without.ids);
        }
        ramet_vocab_destroy(&v);
        fixture_close(&f);
    }
}

static void test_ends(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-llama3.bin");
    ramet_vocab *v = create_vocab(&f.source);
    assert_int_equal(ramet_vocab_size(v), 320);
    assert_int_equal(ramet_vocab_eos(v), 319);
    assert_true(ramet_vocab_ends(v, 319) && ramet_vocab_ends(v, 316)); /* <|eot_id|>, <|end_of_text|> */
    assert_false(ramet_vocab_ends(v, 315) || ramet_vocab_ends(v, 317) || ramet_vocab_ends(v, 0));
    assert_false(ramet_vocab_ends(v, -1) || ramet_vocab_ends(v, 320));
    ramet_vocab_destroy(&v);
    fixture_close(&f);
    llama2 m;
    make_llama2(&m);
    m.types[END_S] = RAMET_TOKEN_USER_DEFINED; /* </s> of Gemma: HTML */
    m.source.eos = UNK;
    v = create_vocab(&m.source);
    assert_false(ramet_vocab_ends(v, END_S));
    ramet_vocab_destroy(&v);
    m.source.eot = END_S; /* but what the file names as the end is the end */
    v = create_vocab(&m.source);
    assert_true(ramet_vocab_ends(v, END_S));
    ramet_vocab_destroy(&v);
}

static void test_random_bytes_come_back(void **state) {
    (void)state;
    uint64_t random = seed;
    for (size_t k = 0; k < N_ALL; k++) {
        fixture f;
        fixture_open(&f, all[k]);
        ramet_vocab *v = create_vocab(&f.source);
        for (int round = 0; round < 400; round++) {
            char text[64];
            size_t n = next_random(&random) % sizeof text;
            /* now any bytes, now bytes that often make UTF-8 and now and then break it */
            static const char some[] = "a \n1'\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\xE2\x80\xFF";
            for (size_t i = 0; i < n; i++)
                text[i] = round % 2 ? (char)next_random(&random) : some[next_random(&random) % (sizeof some - 1)];
            id_list got = encode_bytes(v, text, n, round % 3 ? 0 : SPECIAL);
            if (!decodes_to(v, got.ids, got.n, true, text, n)) {
                print_ids(all[k], got.ids, got.n);
                fail_msg("round %d of %s does not come back", round, all[k]);
            }
            free(got.ids);
        }
        ramet_vocab_destroy(&v);
        fixture_close(&f);
    }
}

/* SmolLM2's vocabulary cannot spell 0xFF or 0x04: U+FFFD stands for them, and its neighbours are as they were. */
static void test_bytes_without_tokens(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "smollm2.bin");
    ramet_vocab *v = create_vocab(&f.source);
    id_list got = encode_bytes(v, "a\xFF\x04\x80z", 5, 0);
    assert_true(decodes_to(v, got.ids, got.n, false, "a\xEF\xBF\xBD\xEF\xBF\xBD\x80z", 9));
    free(got.ids);
    ramet_vocab_destroy(&v);
    fixture_close(&f);
}

/* The slow twin: takes the best pair of all, by trying all, and does it again. Works on a SentencePiece source's
 * strings. */
static size_t merge_slowly(const ramet_vocab_source *s, const char *text, size_t bytes, int32_t *out) {
    struct {
        size_t from, bytes;
        int32_t id;
    } row[128];
    size_t n = 0;
    for (; n < bytes; n++) row[n].from = n, row[n].bytes = 1, row[n].id = -1;
    for (;;) {
        size_t best = SIZE_MAX;
        int32_t best_id = -1;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t id = 0; id < s->n_tokens; id++) {
                if (s->types[id] != RAMET_TOKEN_NORMAL || s->pieces[id].bytes != row[i].bytes + row[i + 1].bytes)
                    continue;
                if (memcmp(s->pieces[id].data, text + row[i].from, s->pieces[id].bytes) != 0) continue;
                if (best_id < 0 || s->scores[id] > s->scores[best_id]) best = i, best_id = (int32_t)id;
            }
        if (best_id < 0) break;
        row[best].bytes += row[best + 1].bytes;
        row[best].id = best_id;
        for (size_t i = best + 1; i + 1 < n; i++) row[i] = row[i + 1];
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        for (uint32_t id = 0; row[i].id < 0 && id < s->n_tokens; id++)
            if (s->types[id] == RAMET_TOKEN_NORMAL && s->pieces[id].bytes == 1 &&
                s->pieces[id].data[0] == text[row[i].from])
                row[i].id = (int32_t)id;
        out[i] = row[i].id;
    }
    return n;
}

static void test_merging_equals_slow_twin(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-gemma.bin");
    uint64_t random = seed;
    float *scores = own(&f, f.source.n_tokens, sizeof *scores);
    int differing = 0;
    for (int round = 0; round < 300; round++) {
        /* other scores in every round, with many ties */
        for (uint32_t id = 0; id < f.source.n_tokens; id++) scores[id] = (float)(next_random(&random) % 8) - 4.0f;
        const float *given = f.source.scores;
        if (round % 2) f.source.scores = scores;
        ramet_vocab *v = create_vocab(&f.source);
        char text[100];
        size_t n = 1 + next_random(&random) % sizeof text;
        for (size_t i = 0; i < n; i++) text[i] = "athendoris"[next_random(&random) % 10];
        int32_t slow[128];
        size_t n_slow = merge_slowly(&f.source, text, n, slow);
        id_list got = encode_bytes(v, text, n, 0);
        if (!has_ids(got, slow, n_slow)) fail_msg("round %d: \"%.*s\"", round, (int)n, text);
        f.source.scores = given;
        if (round % 2) differing += merge_slowly(&f.source, text, n, slow) != n_slow || !has_ids(got, slow, n_slow);
        free(got.ids);
        ramet_vocab_destroy(&v);
    }
    assert_true(differing > 10); /* the control: with the other scores the twin differs, in about 45 of 150 */
    fixture_close(&f);
}

static void test_digest(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, "tiny-qwen2.bin");
    ramet_text_slice merges[64];
    memcpy(merges, f.source.merges, f.source.n_merges * sizeof *merges);
    uint8_t first[32], other[32];
    for (int change = -1; change < 6; change++) {
        ramet_vocab_source s = f.source;
        if (change == 1) s.pre = "qwen35";
        if (change == 2) s.n_merges--;
        if (change == 3) s.merges = merges, merges[0] = f.source.merges[1], merges[1] = f.source.merges[0];
        if (change == 4) s.eos = s.bos;
        if (change == 5) s.add_bos = 1;
        ramet_vocab *v = create_vocab(&s);
        ramet_vocab_digest(v, change < 0 ? first : other);
        if (change >= 0) assert_int_equal(memcmp(first, other, 32) == 0, change == 0);
        ramet_vocab_destroy(&v);
    }
    fixture_close(&f);
}

int main(int argc, char **argv) {
    seed = choose_seed(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(case_15_merge_order_is_by_rank),
                                       cmocka_unit_test(case_16_space_in_front),
                                       cmocka_unit_test(case_16_one_bos),
                                       cmocka_unit_test(test_special_only_where_asked),
                                       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_random_bytes_come_back),
                                       cmocka_unit_test(test_bytes_without_tokens),
                                       cmocka_unit_test(test_merging_equals_slow_twin),
                                       cmocka_unit_test(test_digest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
