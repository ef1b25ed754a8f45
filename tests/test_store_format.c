/* test_store_format.c - the file against a reader that shares no code with us: scripts/read_snapshot.py, written from
 * docs/FORMAT.md. And against a committed digest, so that the bytes of version 1 do not drift unnoticed. */
#include "test_store_fixture.h"

static const shape shapes[] = {
    {RAMET_KV_F32, 2, 2, 16}, {RAMET_KV_F16, 1, 3, 40}, {RAMET_KV_VQ8, 2, 1, 64}, {RAMET_KV_Q8, 1, 2, 48}};
static const char *const names[] = {"f32", "f16", "vq8", "q8"};

/* Runs the script; its output, or NULL when it refused. */
static char *read_with_python(const char *path) {
    static char output[65536];
    char command[512];
    snprintf(command, sizeof command, "python3 '%s/../../scripts/read_snapshot.py' '%s' 2>/dev/null", RAMET_TEST_DATA,
             path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = 0;
    return pclose(pipe) == 0 ? output : NULL;
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

static void compare_with_python(shape s, uint32_t n) {
    world w;
    open_world(&w, s, 64, 512, 16);
    content c = make_content(&w.layout, n);
    ramet_context *context = make_context(&w, &c);
    ramet_snapshot_options options = {
        .owner = "alice", .marking = "internal", .sampler_state = "abc", .sampler_state_bytes = 3};
    const char *path = in_directory("format.ramet");
    ramet_snapshot_info info;
    assert_ok(save(&w, context, &options, path, &info, error));
    const char *output = read_with_python(path);
    if (!output) fail_msg("the reader refuses %s", path);
    char value[1024], quoted[16];
    snprintf(quoted, sizeof quoted, "\"%s\"", names[s.precision]);
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

static void test_independent_reader_agrees(void **state) {
    (void)state;
    if (system("python3 -c pass 2>/dev/null") != 0) skip();
    for (size_t i = 0; i < 4; i++) compare_with_python(shapes[i], i == 0 ? 0 : 100 + (uint32_t)i);
    bytes f = read_file(in_directory("format.ramet"));
    write_file(in_directory("format.ramet"), f.data, f.n - 1); /* negative control */
    assert_null(read_with_python(in_directory("format.ramet")));
    free(f.data);
}

/* One small file of fixed content. If this changes, version 1 has changed: old files no longer mean the same. */
static void test_bytes_of_version_1(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[2], 16, 512, 16);
    rng_state = 12345;
    content c = make_content(&w.layout, 21);
    ramet_context *context = make_context(&w, &c);
    ramet_snapshot_options options = {
        .owner = "alice", .marking = "internal", .sampler_state = "abc", .sampler_state_bytes = 3};
    const char *path = in_directory("golden.ramet");
    assert_ok(save(&w, context, &options, path, NULL, error));
    bytes f = read_file(path);
    uint8_t digest[32];
    char hex[65];
    ramet_sha256_once(f.data, f.n, digest);
    ramet_hex(digest, 32, hex);
    assert_string_equal(hex, "3efa800fb96d1ddd331fce6f02a1ce5f0f921dd06fe4482fbfaf903eeafc0f7d");
    free(f.data);
    close_context(&context);
    free_content(&c);
    close_world(&w);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_independent_reader_agrees),
        cmocka_unit_test(test_bytes_of_version_1),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
