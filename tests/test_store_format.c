/* test_store_format.c - the file against a reader that shares no code with us: scripts/read_snapshot.py, written from
 * docs/FORMAT.md. And against a committed digest, so that no bytes drift unnoticed. */
#include "test_store_forge.h"

static const shape shapes[] = {
    {RAMET_KV_F32, 2, 2, 16}, {RAMET_KV_F16, 1, 3, 40}, {RAMET_KV_VQ8, 2, 1, 64}, {RAMET_KV_Q8, 1, 2, 48}};
static const char *const names[] = {"f32", "f16", "vq8", "q8"};

/* Runs the script with options; its output, or NULL when it refused. */
static char *run_python(const char *path, const char *options) {
    static char output[65536];
    char command[768];
    snprintf(command, sizeof command, "python3 '%s/../../scripts/read_snapshot.py' %s '%s' 2>/dev/null",
             RAMET_TEST_DATA, options, path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = 0;
    return pclose(pipe) == 0 ? output : NULL;
}

/* With a key file if there is one. */
static char *read_with_python(const char *path, const char *key_file) {
    char option[192] = "";
    if (key_file) snprintf(option, sizeof option, "--key '%s'", key_file);
    return run_python(path, option);
}

static void assert_says(const char *output, const char *key, const char *value) {
    char pattern[2048];
    snprintf(pattern, sizeof pattern, "\"%s\": %s", key, value);
    if (!strstr(output, pattern)) fail_msg("no %s in %s", pattern, output);
}

static void assert_says_digest(const char *output, const char *key, const void *data, size_t n) {
    uint8_t digest[32];
    char quoted[67] = "\"";
    ramet_sha256_once(data, n, digest);
    ramet_hex(digest, 32, quoted + 1);
    strcat(quoted, "\"");
    assert_says(output, key, quoted);
}

/* What is saved under the policy of the moment. */
static void compare_with_python(shape s, uint32_t n, const char *key_file) {
    world w;
    open_world(&w, s, 64, 512, 16);
    content c = make_content(&w.layout, n);
    ramet_context *context = make_context(&w, &c);
    ramet_snapshot_options options = {.owner = "alice",
                                      .marking = "internal",
                                      .sampler_state = "abc",
                                      .sampler_state_bytes = 3,
                                      .generation = 7000000000};
    const char *path = in_directory("format.ramet");
    ramet_snapshot_info info;
    assert_ok(save(&w, context, &options, path, &info, error));
    const char *output = read_with_python(path, key_file);
    if (!output) fail_msg("the reader refuses %s", path);
    char value[1024], quoted[16];
    snprintf(quoted, sizeof quoted, "\"%s\"", names[s.precision]);
    assert_says(output, "format_version", "2");
    assert_says(output, "encrypted", key_file ? "true" : "false");
    assert_says(output, "generation", "7000000000");
    assert_says(output, "kv", quoted);
    assert_says(output, "payload", quoted);
    assert_says(output, "owner", "\"alice\"");
    assert_says(output, "marking", "\"internal\"");
    assert_says(output, "arch", "\"llama\"");
    assert_says(output, "model_name", "\"tiny model\"");
    assert_says(output, "has_logits", n > 0 ? "true" : "false");
    snprintf(value, sizeof value, "%zu", n > 0 ? w.layout.row_bytes : 0);
    assert_says(output, "row_bytes", value);
    snprintf(value, sizeof value, "%llu", (unsigned long long)info.file_bytes);
    assert_says(output, "file_bytes", value);
    snprintf(value, sizeof value, "\"%s\"", info.weights_sha256);
    assert_says(output, "weights_sha256", value);
    size_t used = (size_t)snprintf(value, sizeof value, "[");
    for (uint32_t i = 0; i < n; i++)
        used += (size_t)snprintf(value + used, sizeof value - used, "%s%d", i ? ", " : "", c.tokens[i]);
    snprintf(value + used, sizeof value - used, "]");
    assert_says(output, "tokens", value);
    assert_says_digest(output, "positions_sha256", c.rows, n * c.row_bytes);
    assert_says_digest(output, "logits_sha256", c.logits, n > 0 ? sizeof c.logits : 0);
    assert_says_digest(output, "sampler_sha256", "abc", 3);
    close_context(&context);
    free_content(&c);
    close_world(&w);
}

static void compare_all(const char *key_file) {
    for (size_t i = 0; i < 4; i++) compare_with_python(shapes[i], i == 0 ? 0 : 100 + (uint32_t)i, key_file);
    compare_with_python(rows_of_8_kib, 150, key_file); /* several chunks */
}

/* A test that is not run says why. */
static void need(const char *statement, const char *what) {
    char command[128];
    snprintf(command, sizeof command, "python3 -c '%s' 2>/dev/null", statement);
    if (system(command) == 0) return;
    print_message("skipped: this needs %s\n", what);
    skip();
}

static void test_independent_reader_agrees(void **state) {
    (void)state;
    need("pass", "python3");
    policy = NULL;
    compare_all(NULL);
    const char *path = in_directory("format.ramet");
    bytes f = read_file(path);
    write_file(path, f.data, f.n - 1); /* negative control */
    assert_null(read_with_python(path, NULL));
    free(f.data);
}

static const char *write_key(const uint8_t *key) {
    const char *path = in_directory("key");
    write_file(path, key, RAMET_KEY_BYTES);
    return path;
}

static void test_independent_reader_decrypts(void **state) {
    (void)state;
    need("import cryptography", "python3 with the module cryptography (Debian: python3-cryptography)");
    policy = &with_key;
    char key_file[160];
    snprintf(key_file, sizeof key_file, "%s", write_key(context_key));
    compare_all(key_file);
    policy = NULL;
    char path[160];
    snprintf(path, sizeof path, "%s", in_directory("format.ramet"));
    assert_null(read_with_python(path, NULL)); /* negative controls: no key, another key, other bytes */
    uint8_t other_key[RAMET_KEY_BYTES];
    memcpy(other_key, context_key, sizeof other_key);
    other_key[31] ^= 0x80;
    write_key(other_key);
    assert_null(read_with_python(path, key_file));
    write_key(context_key);
    assert_non_null(read_with_python(path, key_file));
    bytes f = read_file(path);
    f.data[f.n / 2] ^= 1;
    write_file(path, f.data, f.n);
    assert_null(read_with_python(path, key_file));
    free(f.data);
}

/* ---- rows of every precision ---- */

/* Small floats as rows of a cache, where random bytes would have numbers that are none. */
static void draw_values(const ramet_kv_layout *l, content *c) {
    ramet_kv_layout row;
    assert_true(ramet_kv_layout_init(&row, l->precision, l->n_layers, l->n_kv_heads, l->head_dim, 1));
    uint8_t *page = calloc(1, row.page_bytes);
    float k[128], v[128];
    for (uint32_t pos = 0; pos < c->n; pos++) {
        for (uint32_t layer = 0; layer < l->n_layers; layer++) {
            for (int i = 0; i < 128; i++) k[i] = (float)draw_below(2000) / 1000 - 1, v[i] = k[i] * (float)(i % 9);
            ramet_kv_write(&row, page, layer, 0, k, v);
        }
        ramet_kv_export(&row, page, 0, 1, c->rows + pos * c->row_bytes);
    }
    free(page);
}

/* What a context's rows are and mean, position by position, as the script has them. */
static void hash_rows(const world *w, ramet_context *context, uint32_t n, const char *output) {
    const ramet_kv_layout *l = &w->layout;
    size_t row_values = 2 * (size_t)l->n_layers * l->n_kv_heads * l->head_dim;
    uint8_t *rows = malloc(n * l->row_bytes);
    float *values = malloc(n * row_values * sizeof *values), *out = values;
    enter(context);
    for (uint32_t pos = 0; pos < n; pos++) {
        const uint8_t *page = ramet_context_page_read(context, pos);
        uint32_t slot = pos % l->page_tokens;
        ramet_kv_export(l, page, slot, 1, rows + pos * l->row_bytes);
        for (uint32_t layer = 0; layer < l->n_layers; layer++) {
            for (uint32_t head = 0; head < l->n_kv_heads; head++, out += l->head_dim)
                ramet_kv_read_k(l, page, layer, head, slot, 1, out, 1);
            for (uint32_t head = 0; head < l->n_kv_heads; head++, out += l->head_dim)
                ramet_kv_read_v(l, page, layer, head, slot, 1, out);
        }
    }
    ramet_context_leave(context);
    assert_says_digest(output, "positions_sha256", rows, n * l->row_bytes);
    assert_says_digest(output, "values_sha256", values, n * row_values * sizeof *values);
    free(rows);
    free(values);
}

static void compare_payload(shape s, int kv, int payload) {
    const char *path = in_directory("format.ramet");
    const ramet_snapshot_policy lossy = {.allow_lossy = true};
    const ramet_snapshot_options options = {.payload = (ramet_kv)payload};
    world from, to;
    s.precision = kv;
    open_world(&from, s, 16, 512, 16);
    content c = make_content(&from.layout, 70);
    draw_values(&from.layout, &c);
    ramet_context *context = make_context(&from, &c), *back;
    assert_ok(save(&from, context, &options, path, NULL, error));
    const char *output = run_python(path, "--values");
    if (!output) fail_msg("the reader refuses %s", path);
    char quoted[16];
    snprintf(quoted, sizeof quoted, "\"%s\"", names[payload]);
    assert_says(output, "payload", quoted);
    assert_says(output, "lossy", kv == payload ? "false" : "true");
    s.precision = payload;
    open_world(&to, s, 64, 512, 16);
    policy = &lossy;
    assert_ok(restore(&to, path, &back, error));
    policy = NULL;
    hash_rows(&to, back, c.n, output);
    close_context(&back);
    close_context(&context);
    free_content(&c);
    close_world(&from);
    close_world(&to);
}

static void test_independent_reader_decodes_rows(void **state) {
    (void)state;
    need("pass", "python3");
    policy = NULL;
    for (int kv = 0; kv < 4; kv++)
        for (int payload = kv; payload < 4; payload++) compare_payload(shapes[payload], kv, payload);
}

/* ---- committed bytes ---- */

static void assert_digest(const bytes *f, const char *expected) {
    uint8_t digest[32];
    char hex[65];
    ramet_sha256_once(f->data, f->n, digest);
    ramet_hex(digest, 32, hex);
    assert_string_equal(hex, expected);
}

/* A file of fixed content. */
static void open_golden(victim *v) {
    static const ramet_snapshot_options options = {
        .owner = "alice", .marking = "internal", .sampler_state = "abc", .sampler_state_bytes = 3};
    policy = NULL;
    rng_state = 12345;
    open_victim(v, shapes[2], 21, &options);
}

/* If this changes, version 2 has changed: old files no longer mean the same. */
static void test_bytes_of_version_2(void **state) {
    (void)state;
    victim v;
    open_golden(&v);
    assert_digest(&v.file, "f0b599c569bd3f34d76f25bb18bae7d3f81b5e7246b62c72e545ad9198479304");
    close_victim(&v);
}

/* What that file was in version 1, of which the digest was taken when it was written. It had no field 0x800d, 16 bytes;
 * so these differ: the version, header_bytes, file_bytes, the number of fields, the field itself, the header's
 * checksum, and that of the chunk, which is made of it. */
static void test_bytes_of_version_1(void **state) {
    (void)state;
    victim v;
    open_golden(&v);
    bytes f = copy_bytes(&v.file);
    make_version_1(&f);
    assert_digest(&f, "3efa800fb96d1ddd331fce6f02a1ce5f0f921dd06fe4482fbfaf903eeafc0f7d");
    free(f.data);
    close_victim(&v);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    draw_key();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_independent_reader_agrees),
        cmocka_unit_test(test_independent_reader_decrypts),
        cmocka_unit_test(test_independent_reader_decodes_rows),
        cmocka_unit_test(test_bytes_of_version_2),
        cmocka_unit_test(test_bytes_of_version_1),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
