/* test_model_weights.c - loading: every row of every matrix equals the file's, whatever the threads; what is missing,
 * of another shape or of another type is named; the identity is the file's SHA-256. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "model/model.h"
#include "numerics/panel.h"
#include "support/tiny_model.h"

#define BUNDLED RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"

static ramet_error error;

static uint64_t row_bytes_of(ramet_dtype dtype, uint64_t n_k) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    return n_k / info->block * info->block_bytes;
}

/* Rows of `m` that differ from the file's rows `shift` further on. */
static uint32_t count_differences(const ramet_gguf *gguf, const char *name, const ramet_matrix *m, uint32_t shift) {
    const ramet_gguf_tensor *t = ramet_gguf_find(gguf, name);
    assert_non_null(t);
    assert_int_equal(t->dims[0], m->n_k);
    assert_int_equal(t->dims[1], m->n_rows);
    assert_int_equal(t->dtype, m->dtype);
    assert_int_equal((uintptr_t)m->panels % 64, 0);
    assert_int_equal(m->n_panels, (m->n_rows + 15) / 16);
    float *row = calloc(m->n_k, sizeof *row), *expected = calloc(m->n_k, sizeof *expected);
    uint32_t different = 0;
    for (uint32_t r = 0; r < m->n_rows; r++) {
        ramet_panel_row(m->dtype, m->panels + r / 16 * m->panel_bytes, r % 16, m->n_k, row);
        uint32_t from = (r + shift) % m->n_rows;
        ramet_dequantize_row(m->dtype, t->data + from * row_bytes_of(m->dtype, m->n_k), m->n_k, expected);
        different += memcmp(row, expected, m->n_k * sizeof *row) != 0;
    }
    free(row);
    free(expected);
    return different;
}

static void check_matrix(const ramet_gguf *gguf, uint32_t layer, const char *suffix, const ramet_matrix *m) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, suffix);
    assert_int_equal(count_differences(gguf, name, m, 0), 0);
    assert_true(count_differences(gguf, name, m, 1) > 0); /* control: the comparison can fail */
    assert_null(m->lora_a);
}

static void check_vector(const ramet_gguf *gguf, const char *format, uint32_t layer, const float *v) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, format);
    const ramet_gguf_tensor *t = ramet_gguf_find(gguf, name);
    assert_non_null(t);
    assert_non_null(v);
    assert_memory_equal(v, t->data, t->bytes);
}

static void check_all(const ramet_gguf *gguf, const ramet_weights *w) {
    for (uint32_t i = 0; i < w->hparams.n_layers; i++) {
        const ramet_layer *l = &w->layers[i];
        check_matrix(gguf, i, "attn_q", &l->q);
        check_matrix(gguf, i, "attn_k", &l->k);
        check_matrix(gguf, i, "attn_v", &l->v);
        check_matrix(gguf, i, "attn_output", &l->o);
        check_matrix(gguf, i, "ffn_gate", &l->gate);
        check_matrix(gguf, i, "ffn_up", &l->up);
        check_matrix(gguf, i, "ffn_down", &l->down);
        check_vector(gguf, "attn_norm.weight", i, l->attn_norm);
        check_vector(gguf, "ffn_norm.weight", i, l->ffn_norm);
        if (w->hparams.qkv_bias) {
            check_vector(gguf, "attn_q.bias", i, l->q_bias);
            check_vector(gguf, "attn_k.bias", i, l->k_bias);
            check_vector(gguf, "attn_v.bias", i, l->v_bias);
        } else {
            assert_null(l->q_bias);
        }
        if (w->hparams.qk_norm) {
            check_vector(gguf, "attn_q_norm.weight", i, l->q_norm);
            check_vector(gguf, "attn_k_norm.weight", i, l->k_norm);
        } else {
            assert_null(l->q_norm);
        }
        if (w->hparams.post_norms) {
            check_vector(gguf, "post_attention_norm.weight", i, l->attn_post_norm);
            check_vector(gguf, "post_ffw_norm.weight", i, l->ffn_post_norm);
        } else {
            assert_null(l->attn_post_norm);
        }
    }
    assert_int_equal(count_differences(gguf, "token_embd.weight", &w->embd, 0), 0);
    if (ramet_gguf_find(gguf, "output.weight")) {
        assert_int_equal(count_differences(gguf, "output.weight", &w->output, 0), 0);
        assert_ptr_not_equal(w->output.panels, w->embd.panels);
    } else {
        assert_ptr_equal(w->output.panels, w->embd.panels);
        assert_memory_equal(&w->output, &w->embd, sizeof w->embd);
    }
    const ramet_gguf_tensor *norm = ramet_gguf_find(gguf, "output_norm.weight");
    assert_memory_equal(w->output_norm, norm->data, norm->bytes);
}

static void the_bundled_model(void **state) {
    (void)state;
    ramet_gguf *gguf;
    ramet_weights *w;
    assert_int_equal(ramet_gguf_open(BUNDLED, &gguf, &error), RAMET_OK);
    if (ramet_weights_load(gguf, NULL, NULL, &w, &error) != RAMET_OK) fail_msg("%s", error.message);
    check_all(gguf, w);
    assert_non_null(strstr(w->types, "Q8_0 "));
    assert_non_null(strstr(w->types, ", F32 "));
    uint64_t n_params = 0;
    for (uint64_t i = 0; i < ramet_gguf_n_tensors(gguf); i++) {
        const ramet_gguf_tensor *t = ramet_gguf_tensor_at(gguf, i);
        n_params += t->dims[0] * t->dims[1];
    }
    assert_int_equal(w->n_params, n_params);
    assert_true(w->bytes > 2500000 && w->bytes < ramet_gguf_file_bytes(gguf) * 11 / 10);

    FILE *file = fopen(BUNDLED, "rb");
    uint8_t *bytes = malloc(ramet_gguf_file_bytes(gguf)), expected[32];
    assert_int_equal(fread(bytes, 1, ramet_gguf_file_bytes(gguf), file), ramet_gguf_file_bytes(gguf));
    fclose(file);
    ramet_sha256_once(bytes, ramet_gguf_file_bytes(gguf), expected);
    assert_memory_equal(w->sha256, expected, 32);
    free(bytes);
    ramet_weights_destroy(&w);
    assert_null(w);
    ramet_weights_destroy(&w);
    ramet_gguf_close(&gguf);
}

static void threads_change_nothing(void **state) {
    (void)state;
    ramet_gguf *gguf;
    ramet_weights *one, *four;
    ramet_pool *pool;
    assert_int_equal(ramet_gguf_open(BUNDLED, &gguf, &error), RAMET_OK);
    assert_int_equal(ramet_pool_create(4, &pool, &error), RAMET_OK);
    assert_int_equal(ramet_weights_load(gguf, NULL, NULL, &one, &error), RAMET_OK);
    assert_int_equal(ramet_weights_load(gguf, NULL, pool, &four, &error), RAMET_OK);
    check_all(gguf, four);
    assert_int_equal(one->bytes, four->bytes);
    assert_memory_equal(one->embd.panels, four->embd.panels, one->embd.n_panels * one->embd.panel_bytes);
    assert_memory_equal(one->sha256, four->sha256, 32);
    ramet_weights_destroy(&one);
    ramet_weights_destroy(&four);
    ramet_pool_destroy(&pool);
    ramet_gguf_close(&gguf);
}

static void embedding_rows(void **state) {
    (void)state;
    ramet_gguf *gguf;
    ramet_weights *w;
    assert_int_equal(ramet_gguf_open(BUNDLED, &gguf, &error), RAMET_OK);
    assert_int_equal(ramet_weights_load(gguf, NULL, NULL, &w, &error), RAMET_OK);
    const ramet_gguf_tensor *t = ramet_gguf_find(gguf, "token_embd.weight");
    float row[256], expected[256];
    for (int32_t token = 0; token < 1024; token += 31) {
        ramet_embedding_row(w, token, row);
        ramet_dequantize_row((ramet_dtype)t->dtype,
                             t->data + (uint64_t)token * row_bytes_of((ramet_dtype)t->dtype, 256), 256, expected);
        assert_memory_equal(row, expected, sizeof row);
    }
    ramet_weights_destroy(&w);
    ramet_gguf_close(&gguf);
}

/* Loads a built model, and checks it when it loads. */
static ramet_status load_built(gguf_builder *g, float *first_divisor) {
    size_t bytes;
    uint8_t *file = gb_file(g, &bytes);
    ramet_gguf *gguf;
    ramet_weights *w = NULL;
    error = (ramet_error){0};
    ramet_status status = ramet_gguf_open_memory(file, bytes, "test.gguf", &gguf, &error);
    if (status == RAMET_OK) status = ramet_weights_load(gguf, NULL, NULL, &w, &error);
    if (status == RAMET_OK) {
        check_all(gguf, w);
        if (first_divisor) *first_divisor = w->hparams.rope.divisors ? w->hparams.rope.divisors[0] : 0;
    } else {
        assert_null(w);
    }
    ramet_weights_destroy(&w);
    ramet_gguf_close(&gguf);
    free(file);
    gb_end(g);
    return status;
}

static void assert_refused(gguf_builder *g, ramet_status code, const char *words) {
    ramet_status status = load_built(g, NULL);
    if (status != code)
        fail_msg("%s instead of %s for '%s': %s", ramet_status_name(status), ramet_status_name(code), words,
                 error.message);
    char copy[256];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|"))
        if (!strstr(error.message, word)) fail_msg("'%s' is not in: %s", word, error.message);
}

static void every_family(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};
    for (size_t i = 0; i < 4; i++)
        for (int untied = 0; untied < 2; untied++) {
            tiny_model m = tm_default(archs[i]);
            m.untied = untied;
            gguf_builder g = tm_build(&m);
            if (load_built(&g, NULL) != RAMET_OK) fail_msg("%s: %s", archs[i], error.message);
        }
}

static void case_48_missing_tensors_are_listed(void **state) {
    (void)state;
    tiny_model m = tm_default("gemma3");
    m.omit = "blk.1.attn_k_norm.weight";
    m.omit_too = "output_norm.weight";
    gguf_builder g = tm_build(&m);
    assert_refused(&g, RAMET_E_CORRUPT, "test.gguf|lacks 2 tensors|blk.1.attn_k_norm.weight|output_norm.weight");
    m = tm_default("llama");
    m.rename = "blk.0.ffn_up.weight";
    g = tm_build(&m);
    assert_refused(&g, RAMET_E_CORRUPT, "lacks 1 tensor:|blk.0.ffn_up.weight");
    m = tm_default("llama");
    g = gb_begin();
    tm_keys(&m, &g); /* the embedding alone */
    tm_tensor(&m, &g, "token_embd.weight", 32, 40);
    assert_refused(&g, RAMET_E_CORRUPT, "lacks 19 tensors|blk.0.attn_norm.weight|and more");
    m = tm_default("llama");
    m.bias = 1;
    m.omit = "blk.1.attn_v.bias";
    g = tm_build(&m);
    assert_refused(&g, RAMET_E_CORRUPT, "blk.1.attn_v.bias");
    m = tm_default("llama"); /* unknown extra ones are ignored */
    g = tm_build(&m);
    tm_tensor(&m, &g, "blk.0.something.weight", 3, 3);
    tm_tensor(&m, &g, "blk.7.attn_q.weight", 3, 3);
    assert_int_equal(load_built(&g, NULL), RAMET_OK);
    g = tm_build(&m); /* but not those that would change the result */
    tm_tensor(&m, &g, "blk.1.attn_output.bias", 32, 1);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "blk.1.attn_output.bias");
}

static void case_45_shapes_that_do_not_fit(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.1.attn_norm.weight", "blk.1.ffn_down.weight",
                                        "blk.0.attn_k.bias",   "output_norm.weight",     "output.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tiny_model m = tm_default("qwen2");
        m.untied = 1;
        m.wider = names[i];
        gguf_builder g = tm_build(&m);
        assert_refused(&g, RAMET_E_CORRUPT, names[i]);
    }
}

static void types_that_are_not_run(void **state) {
    (void)state;
    tiny_model m = tm_default("llama");
    m.omit = "blk.0.attn_q.weight";
    gguf_builder g = tm_build(&m);
    static uint8_t blocks[32 * 18];
    gb_tensor(&g, "blk.0.attn_q.weight", 32, 32, 20, blocks, sizeof blocks);
    assert_refused(&g, RAMET_E_UNSUPPORTED, "blk.0.attn_q.weight|IQ4_NL");
    m.omit = "blk.0.attn_norm.weight"; /* a norm in another known type is widened */
    g = tm_build(&m);
    uint8_t halves[64] = {0};
    gb_tensor(&g, "blk.0.attn_norm.weight", 32, 1, 1, halves, sizeof halves);
    size_t bytes;
    uint8_t *file = gb_file(&g, &bytes);
    ramet_gguf *gguf;
    ramet_weights *w;
    assert_int_equal(ramet_gguf_open_memory(file, bytes, "test.gguf", &gguf, &error), RAMET_OK);
    assert_int_equal(ramet_weights_load(gguf, NULL, NULL, &w, &error), RAMET_OK);
    assert_true(w->layers[0].attn_norm[31] == 0);
    assert_string_equal(w->types, "F32 19, F16 1");
    ramet_weights_destroy(&w);
    ramet_gguf_close(&gguf);
    free(file);
    gb_end(&g);
}

static void rope_divisors(void **state) {
    (void)state;
    float divisors[4] = {2, 3, 4, 5}, first = 0;
    tiny_model m = tm_default("llama");
    gguf_builder g = tm_build(&m);
    gb_tensor(&g, "rope_freqs.weight", 4, 1, 0, divisors, sizeof divisors);
    assert_int_equal(load_built(&g, &first), RAMET_OK);
    assert_true(first == 2);
    divisors[3] = 0;
    g = tm_build(&m);
    gb_tensor(&g, "rope_freqs.weight", 4, 1, 0, divisors, sizeof divisors);
    assert_refused(&g, RAMET_E_CORRUPT, "rope_freqs.weight");
    g = tm_build(&m);
    gb_tensor(&g, "rope_freqs.weight", 3, 1, 0, divisors, 12);
    assert_refused(&g, RAMET_E_CORRUPT, "rope_freqs.weight");
}

static void alignment_of_one(void **state) {
    (void)state;
    tiny_model m = tm_default("llama");
    gguf_builder g = gb_begin();
    g.alignment = 1;
    tm_keys(&m, &g);
    gb_u32(&g, "general.alignment", 1);
    gb_str(&g, "odd", "x"); /* so that floats lie at odd addresses */
    tm_tensors(&m, &g);
    assert_int_equal(load_built(&g, NULL), RAMET_OK);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    tiny_model m = tm_default("gemma3");
    gguf_builder g = tm_build(&m);
    size_t bytes;
    uint8_t *file = gb_file(&g, &bytes);
    ramet_gguf *gguf;
    ramet_weights *w;
    assert_int_equal(ramet_gguf_open_memory(file, bytes, "test.gguf", &gguf, &error), RAMET_OK);
    uint64_t n = 1;
    for (;; n++) {
        ramet_alloc_fail_after(n);
        ramet_status status = ramet_weights_load(gguf, NULL, NULL, &w, &error);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_int_equal(status, RAMET_E_NO_MEMORY);
        assert_null(w);
    }
    assert_true(n > 5);
    ramet_weights_destroy(&w);
    ramet_gguf_close(&gguf);
    free(file);
    gb_end(&g);
}

/* Any other file given by hand: test_model_weights FILE.gguf */
static const char *given;

static void a_given_file(void **state) {
    (void)state;
    if (!given) skip();
    ramet_gguf *gguf;
    ramet_weights *w;
    if (ramet_gguf_open(given, &gguf, &error) != RAMET_OK) fail_msg("%s", error.message);
    if (ramet_weights_load(gguf, NULL, NULL, &w, &error) != RAMET_OK) fail_msg("%s", error.message);
    check_all(gguf, w);
    print_message("%s: %s, %llu parameters\n", given, w->types, (unsigned long long)w->n_params);
    ramet_weights_destroy(&w);
    ramet_gguf_close(&gguf);
}

int main(int argc, char **argv) {
    given = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_model),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(embedding_rows),
        cmocka_unit_test(every_family),
        cmocka_unit_test(case_48_missing_tensors_are_listed),
        cmocka_unit_test(case_45_shapes_that_do_not_fit),
        cmocka_unit_test(types_that_are_not_run),
        cmocka_unit_test(rope_divisors),
        cmocka_unit_test(alignment_of_one),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_given_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
