/* test_store_forged.c - snapshots as somebody makes them who has files but not the key, every checksum right; and what
 * a policy demands of a file. The control of each refusal is that the untouched file is taken (close_victim). */
#include "test_store_forge.h"

#include "store/seal.h"

enum { N_CHUNKS = 5 };

static void open_large(victim *v) {
    policy = &with_key;
    open_victim(v, rows_of_8_kib, 150, NULL);
    assert_int_equal((v->file.n - N_CHUNKS * HASH - 1) / CHUNK, N_CHUNKS - 1);
}

/* ---- chunks ---- */

/* Puts chunk `from` of `donor`, and its tag, in the place of chunk `to`; both are whole ones. */
static void put_chunk(bytes *f, size_t to, const bytes *donor, size_t from) {
    memcpy(f->data + to * CHUNK, donor->data + from * CHUNK, CHUNK);
    memcpy(f->data + f->n - (N_CHUNKS - to) * HASH, donor->data + donor->n - (N_CHUNKS - from) * HASH, HASH);
}

/* By one thread and by several, then as it was. */
static void refuse_chunks(victim *v, bytes *f) {
    refuse(v, f, RAMET_E_AUTHENTICATION, READING);
    start_crew(3);
    refuse(v, f, RAMET_E_AUTHENTICATION, READING);
    stop_crew();
    put_back(f, &v->file);
}

static void test_chunks_in_other_places(void **state) {
    (void)state;
    victim v;
    open_large(&v);
    bytes f = copy_bytes(&v.file);
    put_chunk(&f, 1, &v.file, 2); /* swapped */
    put_chunk(&f, 2, &v.file, 1);
    refuse_chunks(&v, &f);
    put_chunk(&f, 2, &v.file, 1); /* there twice */
    refuse_chunks(&v, &f);
    put_chunk(&f, 1, &v.file, 2); /* all moved on */
    put_chunk(&f, 2, &v.file, 3);
    put_chunk(&f, 3, &v.file, 1);
    refuse_chunks(&v, &f);
    memset(f.data + CHUNK, 0, CHUNK); /* wiped */
    refuse_chunks(&v, &f);
    memcpy(f.data + f.n - 4 * HASH, f.data + f.n - 3 * HASH, HASH); /* a tag alone */
    refuse_chunks(&v, &f);
    free(f.data);
    close_victim(&v);
}

/* Same key, same owner, same tokens even: a file's chunks are sealed with a key of its own. */
static void test_chunks_of_another_file(void **state) {
    (void)state;
    victim v;
    open_large(&v);
    bytes donor = save_to_bytes(&v.w, &v.saved, NULL), f = copy_bytes(&v.file);
    assert_int_equal(donor.n, f.n);
    put_chunk(&f, 1, &donor, 1);
    refuse_chunks(&v, &f);
    memcpy(f.data + 4 * CHUNK, donor.data + 4 * CHUNK, f.n - 4 * CHUNK - N_CHUNKS * HASH); /* the last one */
    memcpy(f.data + f.n - HASH, donor.data + donor.n - HASH, HASH);
    refuse_chunks(&v, &f);
    memcpy(f.data, donor.data, header_of(&donor)); /* the whole header */
    refuse_chunks(&v, &f);
    memcpy(f.data, donor.data, donor.n); /* everything: that is the other file */
    assert_taken(&v, &f);
    free(donor.data);
    free(f.data);
    close_victim(&v);
}

/* Says that there are n tokens, all lengths agreeing, and makes the file as long. `f` has room. */
static void say_tokens(victim *v, bytes *f, uint32_t n) {
    size_t header = header_of(f), sections = field_of(f, 0x800c), row = v->w.layout.row_bytes;
    size_t old_body = f->n - header - N_CHUNKS * HASH;
    size_t body = old_body + n * (4 + row) - 150 * (4 + row), n_chunks = (header + body - 1) / CHUNK + 1;
    uint8_t tags[64 * HASH];
    assert_true(n_chunks <= 64);
    for (size_t i = 0; i < n_chunks; i++) /* those that there are, and again from the first */
        memcpy(tags + i * HASH, f->data + header + old_body + i % N_CHUNKS * HASH, HASH);
    for (size_t at = header + old_body; at < header + body; at++) f->data[at] = f->data[at - CHUNK];
    memcpy(f->data + header + body, tags, n_chunks * HASH);
    f->n = header + body + n_chunks * HASH;
    poke_u32(f, 24, (uint32_t)f->n);
    poke_u32(f, field_of(f, 0x800a), n);
    poke_u32(f, sections, 4 * n);
    poke_u32(f, sections + 32, (uint32_t)(n * row));
    sum_header(f);
}

static void test_chunks_dropped_and_added(void **state) {
    (void)state;
    victim v;
    open_large(&v);
    bytes f = copy_bytes(&v.file);
    f.n -= CHUNK; /* the length alone */
    poke_u32(&f, 24, (uint32_t)f.n);
    sum_header(&f);
    refuse(&v, &f, RAMET_E_CORRUPT, AT_ONCE);
    put_back(&f, &v.file);
    f.data = realloc(f.data, 4 * f.n);
    static const uint32_t lengths[] = {1, 40, 100, 149, 151, 200, 300};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) { /* every length that there is */
        memcpy(f.data, v.file.data, v.file.n);
        f.n = v.file.n;
        say_tokens(&v, &f, lengths[i]);
        refuse(&v, &f, RAMET_E_AUTHENTICATION, AT_ONCE);
    }
    memcpy(f.data, v.file.data, v.file.n);
    f.n = v.file.n;
    say_tokens(&v, &f, 150); /* control: this changes nothing */
    assert_memory_equal(f.data, v.file.data, f.n);
    free(f.data);
    close_victim(&v);
}

/* The same number and bytes, sealed as the last chunk, are no chunk that others follow. */
static void test_the_last_chunk_is_marked(void **state) {
    (void)state;
    ramet_seal seal;
    uint8_t head[128] = {0}, data[64] = {1}, sealed[64], tag[HASH];
    ramet_snapshot_header h = {.chunk_bytes = 64, .body_bytes = 192, .n_chunks = 2};
    assert_ok(ramet_seal_init(&seal, context_key, head, sizeof head, error));
    assert_ok(ramet_seal_chunk(&seal, &h, 1, data, sealed, tag, error));
    h.n_chunks = 3;
    assert_status(RAMET_E_AUTHENTICATION, ramet_open_chunk(&seal, &h, 1, sealed, data, tag, NULL));
    h.n_chunks = 2;
    assert_status(RAMET_E_AUTHENTICATION, ramet_open_chunk(&seal, &h, 0, sealed, data, tag, NULL));
    assert_ok(ramet_open_chunk(&seal, &h, 1, sealed, data, tag, error));
    assert_int_equal(data[0], 1);
}

/* ---- the header ---- */

/* Whatever is changed in it, with a checksum that fits: it does not get past the header. */
static void test_every_byte_of_the_header(void **state) {
    (void)state;
    static const uint8_t masks[] = {0x01, 0x02, 0x80, 0xff};
    policy = &with_key;
    victim v;
    ramet_snapshot_options options = {.owner = "alice", .marking = "internal", .generation = 7};
    open_victim(&v, one_chunk, 5, &options);
    size_t end = header_of(&v.file) - HASH, n = 0, n_by_key = 0;
    bytes f = copy_bytes(&v.file);
    for (size_t at = 0; at < end; at++)
        for (size_t m = 0; m < sizeof masks; m++, n++) {
            f.data[at] ^= masks[m];
            if (at < 12 || at >= 16) sum_header(&f);
            n_by_key += refused(&v, &f, AT_ONCE) == RAMET_E_AUTHENTICATION;
            memcpy(f.data, v.file.data, f.n);
        }
    print_message("%zu headers under right checksums: all refused, %zu by the key alone\n", n, n_by_key);
    assert_true(n_by_key > 4 * (32 + 32 + 5 + 8 + 8)); /* salt, commitment, owner, marking, generation at least */
    free(f.data);
    close_victim(&v);
}

static void test_fields_that_pass_every_other_check(void **state) {
    (void)state;
    policy = &with_key;
    victim v;
    ramet_snapshot_options options = {.owner = "alice", .marking = "internal", .generation = 7};
    open_victim(&v, one_chunk, 5, &options);
    static const uint32_t tags[] = {0x0001, 0x0002, 0x0003, 0x0004, 0x8001, 0x8002, 0x8003, 0x800d};
    bytes f = copy_bytes(&v.file);
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        f.data[field_of(&f, tags[i])] ^= 1;
        sum_header(&f);
        refuse(&v, &f, RAMET_E_AUTHENTICATION, AT_ONCE);
        put_back(&f, &v.file);
    }
    poke_u32(&f, 20, CHUNK / 2); /* the same file in other chunks */
    sum_header(&f);
    refuse(&v, &f, RAMET_E_AUTHENTICATION, AT_ONCE);
    free(f.data);
    close_victim(&v);
}

/* An encrypted file that says it is a plain one, sums and all. */
static void test_downgrade(void **state) {
    (void)state;
    policy = &with_key;
    victim v;
    open_victim(&v, one_chunk, 5, NULL);
    bytes f = copy_bytes(&v.file);
    poke_u32(&f, 16, 0);
    sum_header(&f);
    refuse(&v, &f, RAMET_E_CORRUPT, AT_ONCE); /* with a salt */
    memset(f.data + 32, 0, 64);
    sum_header(&f);
    sum_chunk(&f);
    refuse(&v, &f, RAMET_E_CORRUPT, READING); /* sealed bytes are no tokens */
    put_back(&f, &v.file);
    poke_u32(&f, 8, 1); /* version 1 has no encrypted form */
    sum_header(&f);
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    free(f.data);
    close_victim(&v);
}

/* ---- what a policy demands ---- */

static void expect_text(const bytes *f, const world *w, ramet_status expected, const char *text) {
    ramet_context *back;
    ramet_error said = {0};
    assert_status(expected, restore(w, offer(f), &back, &said));
    if (!strstr(said.message, text)) fail_msg("\"%s\" lacks \"%s\"", said.message, text);
}

static void test_plain_file_where_only_encrypted_ones_are_read(void **state) {
    (void)state;
    static const ramet_snapshot_policy strict = {.context_key = context_key, .encrypted_only = true};
    policy = NULL;
    victim v;
    open_victim(&v, one_chunk, 5, NULL);
    policy = &with_key;
    assert_taken(&v, &v.file); /* a key alone demands nothing */
    policy = &strict;
    refuse(&v, &v.file, RAMET_E_AUTHENTICATION, AT_ONCE);
    expect_text(&v.file, &v.w, RAMET_E_AUTHENTICATION, "not encrypted");
    free(v.file.data);
    v.file = save_to_bytes(&v.w, &v.saved, NULL);
    close_victim(&v);
}

static void refuse_generations(victim *v) {
    const ramet_snapshot_policy *before = policy;
    ramet_snapshot_policy least = *before;
    policy = &least;
    for (least.min_generation = 0; least.min_generation <= 7; least.min_generation++) assert_taken(v, &v->file);
    static const uint64_t later[] = {8, 9, UINT64_C(1) << 32, UINT64_MAX};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        char number[24];
        least.min_generation = later[i];
        refuse(v, &v->file, RAMET_E_AUTHENTICATION, AT_ONCE);
        snprintf(number, sizeof number, "%llu", (unsigned long long)later[i]);
        expect_text(&v->file, &v->w, RAMET_E_AUTHENTICATION, number);
        expect_text(&v->file, &v->w, RAMET_E_AUTHENTICATION, "generation 7");
    }
    policy = before;
}

static void test_rolled_back_generation(void **state) {
    (void)state;
    static const ramet_snapshot_policy plain = {0};
    const ramet_snapshot_policy *kinds[] = {&plain, &with_key};
    for (size_t i = 0; i < 2; i++) {
        policy = kinds[i];
        victim v;
        ramet_snapshot_options options = {.generation = 7};
        open_victim(&v, one_chunk, 5, &options);
        refuse_generations(&v);
        bytes f = copy_bytes(&v.file); /* somebody helps it up: in a plain file nothing forbids it */
        ramet_snapshot_policy least = {.context_key = kinds[i]->context_key, .min_generation = 8};
        policy = &least;
        poke_u32(&f, field_of(&f, 0x800d), 8);
        sum_header(&f);
        if (kinds[i]->context_key)
            refuse(&v, &f, RAMET_E_AUTHENTICATION, AT_ONCE);
        else {
            sum_chunk(&f);
            assert_taken(&v, &f);
        }
        policy = kinds[i];
        free(f.data);
        close_victim(&v);
    }
}

static void test_version_1(void **state) {
    (void)state;
    static const ramet_snapshot_policy legacy = {.allow_legacy = true}, none = {0};
    policy = &none;
    victim v;
    ramet_snapshot_options options = {.owner = "alice", .generation = 7};
    open_victim(&v, one_chunk, 5, &options);
    bytes f = copy_bytes(&v.file);
    make_version_1(&f);
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    expect_text(&f, &v.w, RAMET_E_UNSUPPORTED, "allow legacy");
    policy = NULL;
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    policy = &legacy;
    assert_taken(&v, &f);
    ramet_snapshot_info info;
    assert_ok(ramet_store_read_info(offer(&f), &info, error));
    assert_int_equal(info.format_version, 1);
    assert_int_equal(info.generation, 0);
    assert_string_equal(info.owner, "alice");

    ramet_snapshot_policy more = {.allow_legacy = true, .min_generation = 1};
    policy = &more;
    refuse(&v, &f, RAMET_E_AUTHENTICATION, AT_ONCE);
    more = (ramet_snapshot_policy){.allow_legacy = true, .encrypted_only = true, .context_key = context_key};
    refuse(&v, &f, RAMET_E_AUTHENTICATION, AT_ONCE);

    policy = &legacy;
    f.data[16] = 1; /* encrypted, it says */
    sum_header(&f);
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    put_back(&f, &v.file); /* a version with the fields of the other */
    poke_u32(&f, 8, 1);
    sum_header(&f);
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    put_back(&f, &v.file);
    make_version_1(&f);
    poke_u32(&f, 8, 2);
    sum_header(&f);
    refuse(&v, &f, RAMET_E_CORRUPT, AT_ONCE);
    free(f.data);
    policy = &none;
    close_victim(&v);
}

/* Whoever marks a context wants every check there is. */
static void test_version_1_with_a_marking(void **state) {
    (void)state;
    static const ramet_snapshot_policy legacy = {.allow_legacy = true};
    policy = &legacy;
    victim v;
    ramet_snapshot_options options = {.marking = "internal"};
    open_victim(&v, one_chunk, 5, &options);
    bytes f = copy_bytes(&v.file);
    make_version_1(&f);
    refuse(&v, &f, RAMET_E_UNSUPPORTED, AT_ONCE);
    expect_text(&f, &v.w, RAMET_E_UNSUPPORTED, "internal");
    free(f.data);
    close_victim(&v);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    draw_key();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_in_other_places),
        cmocka_unit_test(test_chunks_of_another_file),
        cmocka_unit_test(test_chunks_dropped_and_added),
        cmocka_unit_test(test_the_last_chunk_is_marked),
        cmocka_unit_test(test_every_byte_of_the_header),
        cmocka_unit_test(test_fields_that_pass_every_other_check),
        cmocka_unit_test(test_downgrade),
        cmocka_unit_test(test_plain_file_where_only_encrypted_ones_are_read),
        cmocka_unit_test(test_rolled_back_generation),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_version_1_with_a_marking),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
