/* fuzz_lora.c - adapters on top of a model of a few hundred weights, which make_seeds.py knows too. */
#include "fuzz.h"
#include "gguf_mutate.h"
#include "heap_map.h"

#include "model/model.h"
#include "numerics/panel.h"
#include "support/tiny_model.h"

#include <math.h>

enum { WIDTH = 4 };

static ramet_gguf *base; /* stays open */
static uint8_t base_sha256[32];
static volatile float sink; /* so that no read is left out */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    tiny_model m = tm_default("llama");
    m.n_layers = m.n_heads = m.n_kv_heads = 1;
    m.n_embd = m.n_ff = m.head_dim = m.n_vocab = WIDTH;
    gguf_builder builder = tm_build(&m);
    size_t bytes;
    static uint8_t *file; /* the model reads from it */
    file = gb_file(&builder, &bytes);
    gb_end(&builder);
    ramet_error error;
    ramet_weights *weights;
    if (ramet_gguf_open_memory(file, bytes, "base.gguf", &base, &error) != RAMET_OK ||
        ramet_weights_load(base, NULL, NULL, &weights, &error) != RAMET_OK)
        fuzz_fail("the base model opens", "%s", error.message);
    memcpy(base_sha256, weights->sha256, sizeof base_sha256);
    ramet_weights_destroy(&weights);
    return 0;
}

static void read_rows(const ramet_matrix *m, uint32_t n_rows, uint32_t n_k) {
    FUZZ_CHECK(m->n_rows == n_rows && m->n_k == n_k, "%u x %u, not %u x %u", m->n_rows, m->n_k, n_rows, n_k);
    float *row = malloc(n_k * sizeof *row);
    if (!row) abort();
    for (uint32_t i = 0; i < n_rows; i++) {
        ramet_panel_row(m->dtype, m->panels + i / RAMET_LANES * m->panel_bytes, i % RAMET_LANES, n_k, row);
        sink = row[n_k - 1];
    }
    free(row);
}

static uint32_t use_matrix(const ramet_matrix *m) {
    FUZZ_CHECK(!m->lora_a == !m->lora_b, "half of a pair");
    if (!m->lora_a) return 0;
    FUZZ_CHECK(isfinite(m->lora_scale), "scale %g", (double)m->lora_scale);
    uint32_t rank = m->lora_a->n_rows;
    read_rows(m->lora_a, rank, m->n_k);
    read_rows(m->lora_b, m->n_rows, rank);
    return 1;
}

static void use(const ramet_weights *w) {
    const ramet_layer *l = &w->layers[0];
    const ramet_matrix *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &w->output, &w->embd};
    uint32_t n_adapted = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) n_adapted += use_matrix(all[i]);
    FUZZ_CHECK(n_adapted > 0, "an adapter that adapts nothing was taken");
    FUZZ_CHECK((memcmp(w->sha256, base_sha256, sizeof base_sha256) == 0) == fuzz_control,
               "with an adapter it is another model");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ramet_error error = {0};
    ramet_weights *weights;
    heap_map_set(data, bytes);
    const ramet_model_options half = {.lora_path = "adapter.gguf", .lora_scale = 0.5f};
    ramet_status status = ramet_weights_load(base, &half, NULL, &weights, &error);
    if (status != RAMET_OK) {
        fuzz_check_refusal(status, &error, weights);
        return 0;
    }
    use(weights);
    ramet_weights_destroy(&weights);
    fuzz_was_taken = true;
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    return gguf_mutate(data, bytes, most, seed);
}
