/* test_store_hostile.c - case 31: files made to be wrong under right checksums, and things that are no files. */
#include "test_store_bytes.h"
#include "test_store_scene.h"

/* Of files of one chunk, as far as the header says where it is. */
static void reseal(bytes *f) {
    size_t header = header_of(f);
    if (header < 128 || header > f->n) return;
    sum_header(f);
    if (f->n > header + HASH) sum_chunk(f);
}

static void expect(scene *s, bytes *f, ramet_status expected) {
    const char *path = in_directory("hostile.ramet");
    reseal(f);
    write_file(path, f->data, f->n);
    assert_status(expected, refused(s, path, 0));
    free(f->data);
    *f = copy_bytes(&s->file);
}

static void test_case_31_hostile_fields(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    bytes f = copy_bytes(&s.file);
    size_t header = header_of(&f);
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
        poke_u32(&f, field_of(&f, changes[i].tag), changes[i].value);
        expect(&s, &f, changes[i].expected);
    }
    /* a billion positions of agreeing fields, in a small file */
    poke_u32(&f, field_of(&f, 0x800a), 1u << 30);
    poke_u32(&f, field_of(&f, 0x800c) + 4, 1);
    poke_u32(&f, field_of(&f, 0x800c), 0);
    poke_u32(&f, field_of(&f, 0x800c) + 36, 8);
    poke_u32(&f, field_of(&f, 0x800c) + 32, 0);
    expect(&s, &f, RAMET_E_CORRUPT);
    /* section lengths whose sum overflows to the right one */
    for (size_t i = 0; i < 5; i++) {
        poke_u32(&f, field_of(&f, 0x800c) + 8 * i + 4, 0x80000000);
        expect(&s, &f, RAMET_E_CORRUPT);
    }
    /* the logits after the last of no tokens */
    poke_u32(&f, field_of(&f, 0x800a), 0);
    poke_u32(&f, field_of(&f, 0x800c), 0);
    poke_u32(&f, field_of(&f, 0x800c) + 32, 0);
    f.n = header + N_VOCAB * sizeof(float) + HASH;
    poke_u32(&f, 24, (uint32_t)f.n);
    expect(&s, &f, RAMET_E_CORRUPT);
    /* tokens outside the vocabulary */
    poke_u32(&f, header, N_VOCAB);
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, header + 16, 0xffffffff);
    expect(&s, &f, RAMET_E_CORRUPT);
    /* preamble */
    poke_u32(&f, 8, 3);
    expect(&s, &f, RAMET_E_UNSUPPORTED);
    poke_u32(&f, 12, 0xffffffff);
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, 24, peek_u32(&f, 24) - 1); /* the sections say the true length, this does not */
    expect(&s, &f, RAMET_E_CORRUPT);
    f.data[field_of(&f, 0x8001) - 6] = 1; /* reserved bytes of a field */
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, 20, 0);
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, 20, (1u << 17) - 1);
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, 20, (1u << 24) + 1);
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, 104, 15);
    expect(&s, &f, RAMET_E_CORRUPT);
    poke_u32(&f, 104, 0xffffffff);
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
    bytes f = copy_bytes(&s.file);
    const char *path = in_directory("vocabulary.ramet");
    ramet_snapshot_info info;
    poke_u32(&f, field_of(&f, 0x8007), INT32_MAX);
    reseal(&f);
    write_file(path, f.data, f.n);
    assert_ok(ramet_store_read_info(path, &info, error));
    poke_u32(&f, field_of(&f, 0x8007), (uint32_t)INT32_MAX + 1);
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
    bytes f = copy_bytes(&s.file);
    const char *path = in_directory("sealed.ramet");
    f.data[16] = 1;
    reseal(&f);
    write_file(path, f.data, f.n);
    ramet_error error;
    assert_status(RAMET_E_AUTHENTICATION, ramet_store_verify(path, NULL, &error));
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
    poke_u32(f, at, tag);
    poke_u32(f, at + 4, 3);
    memcpy(f->data + at + 8, value, 3);
    f->n += 11;
    poke_u32(f, 12, peek_u32(f, 12) + 11);
    poke_u32(f, 24, peek_u32(f, 24) + 11);
    poke_u32(f, 104, peek_u32(f, 104) + 1);
}

static void test_unknown_fields(void **state) {
    (void)state;
    scene s;
    open_scene(&s, small_shape, 5, NULL);
    bytes f = copy_bytes(&s.file);
    size_t after_texts = field_of(&f, 0x8001) - 8, end = header_of(&f) - HASH;
    const char *path = in_directory("unknown.ramet");
    insert_field(&f, after_texts, 0x0abc); /* not critical: skipped */
    reseal(&f);
    write_file(path, f.data, f.n);
    ramet_context *back;
    assert_ok(restore(&s.w, path, &back, error));
    assert_holds(&s.w, back, &s.saved);
    close_context(&back);
    remember_state(&s);
    free(f.data);
    f = copy_bytes(&s.file);
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
        bytes f = copy_bytes(&s.file);
        size_t header = header_of(&f);
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
            remember_state(&s);
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
    assert_status(RAMET_E_NOT_FOUND, ramet_store_read_tokens(in_directory("missing"), NULL, &tokens, &n, NULL));
    assert_null(tokens);
    close_scene(&s);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_31_hostile_fields),
        cmocka_unit_test(test_case_31_vocabulary_without_logits),
        cmocka_unit_test(test_encrypted_is_refused_by_name),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_random_headers_under_right_checksums),
        cmocka_unit_test(test_not_a_file),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
