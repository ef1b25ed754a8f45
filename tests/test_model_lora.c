/* test_model_lora.c - adapters: the factors and the scale as attached, what does not fit is named and changes nothing,
 * and the identity of model + adapter. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "model/model.h"
#include "numerics/half.h"
#include "numerics/panel.h"
#include "support/tiny_model.h"

#include <math.h>
#include <unistd.h>

static ramet_error error;
static char path[] = "/tmp/ramet-test-lora-XXXXXX";
static uint8_t *model_file;
static size_t model_bytes;
static ramet_gguf *model;

static const ramet_model_options *with(const char *adapter, float scale) {
    static ramet_model_options options;
    options = (ramet_model_options){.lora_path = adapter, .lora_scale = scale};
    return &options;
}

static gguf_builder begin_adapter(float alpha) {
    gguf_builder g = gb_begin();
    gb_str(&g, "general.type", "adapter");
    gb_str(&g, "general.architecture", "qwen3");
    gb_str(&g, "adapter.type", "lora");
    gb_f32(&g, "adapter.lora.alpha", alpha);
    return g;
}

static float value_of(const char *name, uint64_t i) {
    return (float)(strlen(name) * 10 + i % 97) / 64;
}

/* As float32 or binary16 (type 0 or 1). */
static void put(gguf_builder *g, const char *name, uint64_t k, uint64_t rows, uint32_t type) {
    gb_buffer b = {0};
    for (uint64_t i = 0; i < k * rows; i++) {
        float value = value_of(name, i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        gb_uint(&b, type == 0 ? bits : ramet_f32_to_f16(value), type == 0 ? 4 : 2);
    }
    gb_tensor(g, name, k, rows, type, b.data, b.bytes);
    free(b.data);
}

static void put_pair(gguf_builder *g, const char *base, uint64_t n_in, uint64_t n_out, uint64_t rank, uint32_t type) {
    char name[64];
    snprintf(name, sizeof name, "%s.lora_a", base);
    put(g, name, n_in, rank, type);
    snprintf(name, sizeof name, "%s.lora_b", base);
    put(g, name, rank, n_out, type);
}

static ramet_status load(gguf_builder *g, float scale, ramet_weights **out) {
    gb_save(g, path);
    gb_end(g);
    error = (ramet_error){0};
    return ramet_weights_load(model, with(path, scale), NULL, out, &error);
}

static void check_factor(const ramet_matrix *m, const char *name, uint32_t n_rows, uint32_t n_k) {
    assert_non_null(m);
    assert_int_equal(m->dtype, RAMET_F32);
    assert_int_equal(m->n_rows, n_rows);
    assert_int_equal(m->n_k, n_k);
    assert_int_equal((uintptr_t)m->panels % 64, 0);
    float row[64];
    uint32_t different = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        ramet_panel_row(RAMET_F32, m->panels + r / 16 * m->panel_bytes, r % 16, n_k, row);
        for (uint32_t k = 0; k < n_k; k++) {
            assert_true(row[k] == value_of(name, (uint64_t)r * n_k + k));
            different += row[k] != value_of(name, (uint64_t)r * n_k + k + 1);
        }
    }
    assert_true(different > 0); /* control */
}

static void factors_and_scale(void **state) {
    (void)state;
    for (uint32_t type = 0; type < 2; type++) {
        gguf_builder g = begin_adapter(8);
        put_pair(&g, "blk.0.attn_q.weight", 32, 32, 4, type);
        put_pair(&g, "blk.1.ffn_down.weight", 48, 32, 17, type);
        put_pair(&g, "output.weight", 32, 40, 1, type);
        ramet_weights *w, *plain;
        if (load(&g, 0.5f, &w) != RAMET_OK) fail_msg("%s", error.message);
        check_factor(w->layers[0].q.lora_a, "blk.0.attn_q.weight.lora_a", 4, 32);
        check_factor(w->layers[0].q.lora_b, "blk.0.attn_q.weight.lora_b", 32, 4);
        check_factor(w->layers[1].down.lora_a, "blk.1.ffn_down.weight.lora_a", 17, 48);
        check_factor(w->layers[1].down.lora_b, "blk.1.ffn_down.weight.lora_b", 32, 17);
        check_factor(w->output.lora_b, "output.weight.lora_b", 40, 1);
        assert_true(w->layers[0].q.lora_scale == 1); /* 8 / 4 * 0.5 */
        assert_true(w->layers[1].down.lora_scale == 8.0f / 17.0f * 0.5f);
        assert_true(w->output.lora_scale == 4);
        assert_null(w->layers[1].q.lora_a);
        assert_null(w->embd.lora_a);
        assert_int_equal(ramet_weights_load(model, NULL, NULL, &plain, &error), RAMET_OK);
        assert_true(w->bytes > plain->bytes);
        assert_int_equal(w->n_params, plain->n_params);
        ramet_weights_destroy(&plain);
        ramet_weights_destroy(&w);
    }
}

static void without_alpha_the_rank_does_not_count(void **state) {
    (void)state;
    gguf_builder g = begin_adapter(0);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    ramet_weights *w;
    assert_int_equal(load(&g, 0.75f, &w), RAMET_OK);
    assert_true(w->layers[0].k.lora_scale == 0.75f);
    ramet_weights_destroy(&w);
}

/* Written out by hand from the definition, not by the code under test. */
static void identity(void **state) {
    (void)state;
    uint8_t message[15 + 32 + 32 + 4], expected[32], other[32];
    gguf_builder g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    size_t bytes;
    uint8_t *file = gb_file(&g, &bytes);
    memcpy(message, "ramet-weights-1", 15);
    ramet_sha256_once(model_file, model_bytes, message + 15);
    ramet_sha256_once(file, bytes, message + 47);
    free(file);
    memcpy(message + 79, "\x00\x00\x80\x3f", 4); /* 1.0 */
    ramet_sha256_once(message, sizeof message, expected);
    ramet_weights *w;
    assert_int_equal(load(&g, 1, &w), RAMET_OK);
    assert_memory_equal(w->sha256, expected, 32);
    ramet_weights_destroy(&w);
    assert_int_equal(ramet_weights_load(model, with(path, 0.5f), NULL, &w, &error),
                     RAMET_OK); /* another scale: another model */
    memcpy(other, w->sha256, 32);
    assert_memory_not_equal(other, expected, 32);
    ramet_weights_destroy(&w);
    assert_int_equal(ramet_weights_load(model, NULL, NULL, &w, &error), RAMET_OK);
    assert_memory_equal(w->sha256, message + 15, 32);
    ramet_weights_destroy(&w);
}

static void assert_refused(gguf_builder *g, ramet_status code, const char *word) {
    ramet_weights *w;
    ramet_status status = load(g, 1, &w);
    if (status != code)
        fail_msg("%s instead of %s for '%s': %s", ramet_status_name(status), ramet_status_name(code), word,
                 error.message);
    assert_null(w);
    if (!strstr(error.message, word)) fail_msg("'%s' is not in: %s", word, error.message);
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    static const char *const strangers[] = {
        "blk.2.attn_q.weight", "blk.0.attn_norm.weight", "blk.00.attn_q.weight",        "blk..attn_q.weight",
        "blk.0.attn_q",        "attn_q.weight",          "blk.4294967296.attn_q.weight"};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        gguf_builder g = begin_adapter(8);
        put_pair(&g, "blk.0.attn_q.weight", 32, 32, 4, 0);
        put_pair(&g, strangers[i], 32, 32, 4, 0);
        assert_refused(&g, RAMET_E_MODEL_MISMATCH, strangers[i]);
    }
    gguf_builder g = begin_adapter(8);
    put_pair(&g, "token_embd.weight", 32, 40, 4, 0);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "token_embd.weight");
    g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_q.weight", 31, 32, 4, 0);
    assert_refused(&g, RAMET_E_MODEL_MISMATCH, "blk.0.attn_q.weight");
    g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_q.weight", 32, 33, 4, 0);
    assert_refused(&g, RAMET_E_MODEL_MISMATCH, "blk.0.attn_q.weight");
    g = begin_adapter(8);
    put(&g, "blk.0.attn_q.weight.lora_a", 32, 4, 0);
    put(&g, "blk.0.attn_q.weight.lora_b", 5, 32, 0);
    assert_refused(&g, RAMET_E_CORRUPT, "ranks");
    g = begin_adapter(8);
    put(&g, "blk.0.attn_q.weight.lora_a", 32, 4, 0);
    assert_refused(&g, RAMET_E_CORRUPT, "blk.0.attn_q.weight.lora_a");
    g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    put(&g, "blk.0.attn_q.weight.lora_b", 4, 32, 0);
    assert_refused(&g, RAMET_E_CORRUPT, "blk.0.attn_q.weight.lora_b");
    g = begin_adapter(8);
    put(&g, "blk.0.attn_q.weight", 32, 32, 0);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "neither");
}

static void what_is_no_adapter_for_this_model(void **state) {
    (void)state;
    gguf_builder g = begin_adapter(8);
    assert_refused(&g, RAMET_E_CORRUPT, "without tensors");
    uint32_t nan_bits = 0x7fc00000u;
    float nan_value;
    memcpy(&nan_value, &nan_bits, 4);
    g = begin_adapter(nan_value);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    assert_refused(&g, RAMET_E_CORRUPT, "alpha");
    g = begin_adapter(8);
    gb_array(&g, "adapter.alora.invocation_tokens", 4, 0);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "activated");
    g = gb_begin();
    gb_str(&g, "general.architecture", "qwen3");
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    assert_refused(&g, RAMET_E_ARGUMENT, "not a LoRA adapter");
    g = gb_begin();
    gb_str(&g, "general.type", "adapter");
    gb_str(&g, "general.architecture", "llama");
    gb_str(&g, "adapter.type", "lora");
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    assert_refused(&g, RAMET_E_MODEL_MISMATCH, "'qwen3'");
    g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    ramet_weights *w;
    assert_int_equal(load(&g, nan_value, &w), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_weights_load(model, with("/nonexistent/a.gguf", 1), NULL, &w, &error), RAMET_E_NOT_FOUND);
    assert_null(w);
}

/* With a tied output, "output.weight" is no tensor of the model. */
static void tied_output_has_no_adapter(void **state) {
    (void)state;
    tiny_model m = tm_default("qwen3");
    gguf_builder g = tm_build(&m);
    size_t bytes;
    uint8_t *file = gb_file(&g, &bytes);
    ramet_gguf *tied;
    ramet_weights *w;
    assert_int_equal(ramet_gguf_open_memory(file, bytes, "tied.gguf", &tied, &error), RAMET_OK);
    gguf_builder a = begin_adapter(8);
    put_pair(&a, "output.weight", 32, 40, 4, 0);
    gb_save(&a, path);
    assert_int_equal(ramet_weights_load(tied, with(path, 1), NULL, &w, &error), RAMET_E_MODEL_MISMATCH);
    assert_non_null(strstr(error.message, "output.weight"));
    ramet_gguf_close(&tied);
    free(file);
    gb_end(&a);
    gb_end(&g);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    gguf_builder g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 4, 0);
    gb_save(&g, path);
    gb_end(&g);
    ramet_weights *w;
    uint64_t n = 1;
    for (;; n++) {
        ramet_alloc_fail_after(n);
        ramet_status status = ramet_weights_load(model, with(path, 1), NULL, &w, &error);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_int_equal(status, RAMET_E_NO_MEMORY);
        assert_null(w);
    }
    assert_true(n > 10);
    ramet_weights_destroy(&w);
}

static void every_changed_byte_is_survived(void **state) {
    (void)state;
    static const uint8_t changes[] = {0x01, 0xff};
    gguf_builder g = begin_adapter(8);
    put_pair(&g, "blk.0.attn_k.weight", 32, 16, 1, 0);
    size_t bytes, header, accepted = 0;
    uint8_t *file = gb_file(&g, &bytes);
    header = bytes - g.data.bytes;
    gb_end(&g);
    for (size_t at = 0; at < header; at++)
        for (size_t i = 0; i < sizeof changes; i++) {
            file[at] ^= changes[i];
            gb_save_bytes(path, file, bytes);
            file[at] ^= changes[i];
            ramet_weights *w;
            accepted += ramet_weights_load(model, with(path, 1), NULL, &w, &error) == RAMET_OK;
            ramet_weights_destroy(&w);
        }
    assert_true(accepted > 0 && accepted < header); /* alpha, and padding, may be anything */
    free(file);
}

static int open_model(void **state) {
    (void)state;
    tiny_model m = tm_default("qwen3");
    m.untied = 1;
    gguf_builder g = tm_build(&m);
    model_file = gb_file(&g, &model_bytes);
    gb_end(&g);
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    return ramet_gguf_open_memory(model_file, model_bytes, "model.gguf", &model, &error) == RAMET_OK ? 0 : -1;
}

static int close_model(void **state) {
    (void)state;
    ramet_gguf_close(&model);
    free(model_file);
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_and_scale),
        cmocka_unit_test(without_alpha_the_rank_does_not_count),
        cmocka_unit_test(identity),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(what_is_no_adapter_for_this_model),
        cmocka_unit_test(tied_output_has_no_adapter),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_changed_byte_is_survived),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
