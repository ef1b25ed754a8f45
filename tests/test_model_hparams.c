/* test_model_hparams.c - what keys mean, per architecture: defaults that published files leave out, ranges, and what is
 * refused and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/model.h"
#include "support/tiny_model.h"

static ramet_error error;

static ramet_status read_built(gguf_builder *g, ramet_hparams *out) {
    size_t bytes;
    uint8_t *file = gb_file(g, &bytes);
    ramet_gguf *gguf;
    error = (ramet_error){0};
    ramet_status status = ramet_gguf_open_memory(file, bytes, "test.gguf", &gguf, &error);
    if (status == RAMET_OK) status = ramet_hparams_read(gguf, out, &error);
    ramet_gguf_close(&gguf);
    free(file);
    gb_end(g);
    return status;
}

static ramet_hparams read_good(gguf_builder *g) {
    ramet_hparams h;
    if (read_built(g, &h) != RAMET_OK) fail_msg("%s", error.message);
    return h;
}

static void assert_refused(gguf_builder *g, ramet_status code, const char *word) {
    ramet_hparams h;
    ramet_status status = read_built(g, &h);
    if (status != code)
        fail_msg("%s instead of %s for '%s': %s", ramet_status_name(status), ramet_status_name(code), word,
                 error.message);
    if (!strstr(error.message, word)) fail_msg("'%s' is not in: %s", word, error.message);
}

static gguf_builder build(const char *arch) {
    tiny_model m = tm_default(arch);
    return tm_build(&m);
}

static void llama(void **state) {
    (void)state;
    gguf_builder g = build("llama");
    ramet_hparams h = read_good(&g);
    assert_string_equal(h.arch, "llama");
    assert_int_equal(h.n_layers, 2);
    assert_int_equal(h.n_embd, 32);
    assert_int_equal(h.n_ff, 48);
    assert_int_equal(h.n_heads, 4);
    assert_int_equal(h.n_kv_heads, 2);
    assert_int_equal(h.head_dim, 8);
    assert_int_equal(h.n_rot, 8);
    assert_int_equal(h.n_vocab, 40);
    assert_int_equal(h.n_ctx_train, 128);
    assert_true(h.rms_eps == 1e-5f);
    assert_true(h.embd_scale == 1);
    assert_true(h.attn_scale > 0.35355f && h.attn_scale < 0.35356f);
    assert_true(h.rope_neighbours && !h.gelu && !h.qkv_bias && !h.qk_norm && !h.post_norms);
    assert_int_equal(h.window, 0);
    assert_int_equal(h.window_pattern, 0);
    assert_true(h.rope.base == 10000 && h.rope.scaling == RAMET_ROPE_NONE && h.rope.factor == 1);
    assert_null(h.rope.divisors);
}

static void llama_defaults_and_bias(void **state) {
    (void)state;
    tiny_model m = tm_default("llama");
    m.omit_key = "attention.head_count_kv";
    gguf_builder g = tm_build(&m);
    assert_int_equal(read_good(&g).n_kv_heads, 4);
    m = tm_default("llama");
    m.omit_key = "attention.key_length";
    g = tm_build(&m);
    assert_int_equal(read_good(&g).head_dim, 8);
    m = tm_default("llama");
    m.bias = 1; /* only the tensors say so */
    g = tm_build(&m);
    assert_true(read_good(&g).qkv_bias);
    g = build("llama");
    gb_u32(&g, "llama.rope.dimension_count", 4);
    assert_int_equal(read_good(&g).n_rot, 4);
}

static void qwen(void **state) {
    (void)state;
    gguf_builder g = build("qwen2");
    ramet_hparams h = read_good(&g);
    assert_true(h.qkv_bias && !h.rope_neighbours && !h.qk_norm && !h.gelu);
    tiny_model m = tm_default("qwen3");
    m.head_dim = 16; /* wider than n_embd / n_heads */
    g = tm_build(&m);
    h = read_good(&g);
    assert_true(h.qk_norm && !h.qkv_bias && !h.rope_neighbours);
    assert_int_equal(h.head_dim, 16);
    assert_true(h.attn_scale == 0.25f);
}

static void gemma3_defaults(void **state) {
    (void)state;
    gguf_builder g = build("gemma3");
    gb_u32(&g, "gemma3.attention.sliding_window", 512);
    gb_f32(&g, "gemma3.rope.freq_base", 1000000);
    gb_str(&g, "gemma3.rope.scaling.type", "linear");
    gb_f32(&g, "gemma3.rope.scaling.factor", 8);
    ramet_hparams h = read_good(&g);
    assert_true(h.gelu && h.qk_norm && h.post_norms && !h.rope_neighbours);
    assert_int_equal(h.window, 512);
    assert_int_equal(h.window_pattern, 6);
    assert_true(h.rope.base == 1e6 && h.rope.scaling == RAMET_ROPE_LINEAR && h.rope.factor == 8);
    assert_true(h.rope_local.base == 10000 && h.rope_local.scaling == RAMET_ROPE_NONE && h.rope_local.factor == 1);
    assert_true(h.embd_scale > 5.65685f && h.embd_scale < 5.65686f); /* sqrt(32) */
    assert_true(h.attn_scale > 0.35355f && h.attn_scale < 0.35356f); /* 1 / sqrt(8) */

    g = build("gemma3"); /* no window: every layer is global */
    h = read_good(&g);
    assert_int_equal(h.window, 0);
    assert_int_equal(h.window_pattern, 0);
    assert_true(h.rope.base == 1e6);

    g = build("gemma3");
    gb_u32(&g, "gemma3.attention.sliding_window", 512);
    gb_u32(&g, "gemma3.attention.sliding_window_pattern", 3);
    gb_f32(&g, "gemma3.rope.freq_base_swa", 20000);
    h = read_good(&g);
    assert_int_equal(h.window_pattern, 3);
    assert_true(h.rope_local.base == 20000);
}

static void gemma3_27b_scale_goes_by_the_layer_count(void **state) {
    (void)state;
    for (uint32_t n_layers = 61; n_layers <= 63; n_layers++) {
        tiny_model m = tm_default("gemma3");
        m.head_dim = 16; /* and n_embd / n_heads is 8 */
        m.n_layers = n_layers;
        gguf_builder g = tm_build(&m);
        float scale = read_good(&g).attn_scale;
        if (n_layers == 62)
            assert_true(scale > 0.35355f && scale < 0.35356f);
        else
            assert_true(scale == 0.25f);
    }
}

static void rope_scaling(void **state) {
    (void)state;
    gguf_builder g = build("qwen3");
    gb_str(&g, "qwen3.rope.scaling.type", "yarn");
    gb_f32(&g, "qwen3.rope.scaling.factor", 4);
    gb_u32(&g, "qwen3.rope.scaling.original_context_length", 64);
    ramet_rope rope = read_good(&g).rope;
    assert_true(rope.scaling == RAMET_ROPE_YARN && rope.factor == 4 && rope.original_ctx == 64);
    assert_true(rope.beta_fast == 32 && rope.beta_slow == 1 && rope.attn_factor == 1);

    g = build("qwen3"); /* the original length is the trained one when absent */
    gb_str(&g, "qwen3.rope.scaling.type", "yarn");
    gb_f32(&g, "qwen3.rope.scaling.factor", 4);
    gb_f32(&g, "qwen3.rope.scaling.attn_factor", 0.5f);
    gb_f32(&g, "qwen3.rope.scaling.yarn_beta_fast", 16);
    rope = read_good(&g).rope;
    assert_true(rope.original_ctx == 128 && rope.attn_factor == 0.5 && rope.beta_fast == 16);

    g = build("llama"); /* a factor without a type is linear */
    gb_f32(&g, "llama.rope.scaling.factor", 2);
    rope = read_good(&g).rope;
    assert_true(rope.scaling == RAMET_ROPE_LINEAR && rope.factor == 2);

    g = build("llama"); /* and with "none" it says nothing */
    gb_str(&g, "llama.rope.scaling.type", "none");
    gb_f32(&g, "llama.rope.scaling.factor", 2);
    rope = read_good(&g).rope;
    assert_true(rope.scaling == RAMET_ROPE_NONE && rope.factor == 1);

    g = build("llama");
    gb_str(&g, "llama.rope.scaling.type", "longrope");
    assert_refused(&g, RAMET_E_UNSUPPORTED, "'longrope'");
}

static void case_48_unsupported_is_said_in_these_words(void **state) {
    (void)state;
    gguf_builder g = build("mamba");
    assert_refused(&g, RAMET_E_UNSUPPORTED, "architecture 'mamba' is not supported by this version of ramet");
    g = gb_begin(); /* what a file says cannot play with the terminal */
    gb_str(&g, "general.architecture", "llama\n\x1b[31m");
    assert_refused(&g, RAMET_E_UNSUPPORTED, "'llama??[31m'");
    g = build("llama");
    gb_u32(&g, "llama.expert_count", 8);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "mixture of experts");
    g = build("llama");
    gb_u32(&g, "llama.expert_count", 0);
    (void)read_good(&g);
    g = build("gemma3");
    gb_f32(&g, "gemma3.final_logit_softcapping", 30);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "final_logit_softcapping");
    g = build("llama");
    gb_bool(&g, "llama.attention.causal", 0);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "not causal");
    g = build("llama");
    gb_str(&g, "general.type", "adapter");
    assert_refused(&g, RAMET_E_UNSUPPORTED, "adapter");
    tiny_model m = tm_default("llama");
    m.omit_key = "attention.head_count_kv";
    g = tm_build(&m);
    gb_array(&g, "llama.attention.head_count_kv", 5, 2);
    gb_uint(&g.values, 2, 4), gb_uint(&g.values, 1, 4);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "differs by layer");
    g = gb_begin();
    assert_refused(&g, RAMET_E_CORRUPT, "general.architecture");
}

static void required_keys_are_named(void **state) {
    (void)state;
    static const char *const required[] = {"block_count",          "context_length",
                                           "embedding_length",     "feed_forward_length",
                                           "attention.head_count", "attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        tiny_model m = tm_default("qwen2");
        m.omit_key = required[i];
        gguf_builder g = tm_build(&m);
        assert_refused(&g, RAMET_E_CORRUPT, required[i]);
    }
    tiny_model m = tm_default("llama");
    m.omit = "token_embd.weight";
    gguf_builder g = tm_build(&m);
    assert_refused(&g, RAMET_E_CORRUPT, "token_embd.weight");
}

static void numbers_out_of_range(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } wrong[] = {
        {"block_count", 0},
        {"block_count", 1025},
        {"block_count", UINT32_MAX},
        {"context_length", 0},
        {"context_length", 1u << 31},
        {"embedding_length", 0},
        {"embedding_length", 64}, /* the embedding has 32 */
        {"embedding_length", UINT32_MAX},
        {"feed_forward_length", 0},
        {"feed_forward_length", UINT32_MAX},
        {"attention.head_count", 0},
        {"attention.head_count", 5},
        {"attention.head_count", UINT32_MAX},
        {"attention.head_count_kv", 0},
        {"attention.head_count_kv", 3},
        {"attention.head_count_kv", 8},
        {"attention.key_length", 0},
        {"attention.key_length", 7}, /* rotated dimensions would be odd */
        {"attention.key_length", 513},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tiny_model m = tm_default("llama");
        m.omit_key = wrong[i].key;
        gguf_builder g = tm_build(&m);
        char key[96];
        snprintf(key, sizeof key, "llama.%s", wrong[i].key);
        gb_u32(&g, key, wrong[i].value);
        assert_refused(&g, RAMET_E_CORRUPT, "test.gguf");
    }
    gguf_builder g = build("llama");
    gb_u32(&g, "llama.rope.dimension_count", 10);
    assert_refused(&g, RAMET_E_CORRUPT, "rope.dimension_count");
    g = build("llama");
    gb_u32(&g, "llama.attention.value_length", 16);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "values of another length");
    static const uint32_t bits[] = {0,           0x80000000u, 0xbf800000u,
                                    0x7f800000u, 0x7fc00000u, 0x40000000u}; /* +-0 -1 inf nan 2 */
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        float value;
        memcpy(&value, &bits[i], 4);
        tiny_model m = tm_default("llama");
        m.omit_key = "attention.layer_norm_rms_epsilon";
        g = tm_build(&m);
        gb_f32(&g, "llama.attention.layer_norm_rms_epsilon", value);
        assert_refused(&g, RAMET_E_CORRUPT, "rms_epsilon");
        if (bits[i] == 0x40000000u) continue;
        g = build("llama");
        gb_f32(&g, "llama.rope.freq_base", value);
        assert_refused(&g, RAMET_E_CORRUPT, "rope.freq_base");
        if (value == 0) continue;
        g = build("llama");
        gb_f32(&g, "llama.rope.scaling.factor", value);
        assert_refused(&g, RAMET_E_CORRUPT, "factor");
    }
    g = build("llama"); /* a key of another type */
    gb_str(&g, "llama.rope.freq_base", "10000");
    assert_refused(&g, RAMET_E_CORRUPT, "rope.freq_base");
}

static void the_bundled_models(void **state) {
    (void)state;
    ramet_gguf *gguf;
    ramet_hparams h;
    assert_int_equal(ramet_gguf_open(RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf", &gguf, &error),
                     RAMET_OK);
    assert_int_equal(ramet_hparams_read(gguf, &h, &error), RAMET_OK);
    assert_int_equal(h.n_layers, 4);
    assert_int_equal(h.n_vocab, 1024);
    assert_int_equal(h.head_dim, 64);
    assert_true(h.attn_scale == 0.125f);
    ramet_gguf_close(&gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),
        cmocka_unit_test(llama_defaults_and_bias),
        cmocka_unit_test(qwen),
        cmocka_unit_test(gemma3_defaults),
        cmocka_unit_test(gemma3_27b_scale_goes_by_the_layer_count),
        cmocka_unit_test(rope_scaling),
        cmocka_unit_test(case_48_unsupported_is_said_in_these_words),
        cmocka_unit_test(required_keys_are_named),
        cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(the_bundled_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
