/* verify_spill.c - contexts that go to disk and come back, because memory has room for one of them and a half, and
 * because they are told to: their logits must be those of one that never left. Every row is compared. */
#include "engine/verify.h"

enum { CONTEXTS = 3, START = 63, STEPS = 6, PAGE_TOKENS = 16 };

/* An engine with room for all that one context reaches, and half as much. */
static ramet_status create_engine(const ramet_subject *s, ramet_engine **out, ramet_error *error) {
    const ramet_hparams *h = &s->model->weights->hparams;
    ramet_engine_options options = s->options;
    ramet_kv_layout layout;
    options.page_tokens = PAGE_TOKENS;
    if (!ramet_kv_layout_init(&layout, RAMET_KV_F32, h->n_layers, h->n_kv_heads, h->head_dim, PAGE_TOKENS))
        return ramet_fail(error, RAMET_E_ARGUMENT, "no page layout for %u layers", h->n_layers);
    uint64_t pages = (START + STEPS + PAGE_TOKENS - 1) / PAGE_TOKENS;
    uint64_t row_bytes = ramet_forward_logits_stride(s->engine->forward) * sizeof(float);
    options.kv_budget_bytes = (pages * layout.page_bytes + row_bytes) * 3 / 2;
    options.tree_budget_bytes = options.pin_budget_bytes = 0;
    options.spill_directory = s->directory;
    return ramet_engine_create(s->model, &options, out, error);
}

/* The first is a prefill, the others fork from it on the way; then each takes a step in turn. */
static ramet_status take_turns(ramet_difference *d, ramet_context **contexts, ramet_error *error) {
    RAMET_TRY(ramet_verify_run(d, contexts[0], START, START, error));
    for (int i = 1; i < CONTEXTS; i++) RAMET_TRY(ramet_context_fork(contexts[i - 1], &contexts[i], error));
    for (uint32_t step = 1; step < STEPS; step++)
        for (int i = 0; i < CONTEXTS; i++) RAMET_TRY(ramet_verify_run(d, contexts[i], START + step, 1, error));
    return RAMET_OK;
}

static ramet_status spill_all(ramet_difference *d, ramet_engine *engine, ramet_context **contexts,
                              ramet_engine_stats *out_spilled, ramet_error *error) {
    for (int i = 0; i < CONTEXTS; i++) RAMET_TRY(ramet_context_spill(contexts[i], error));
    ramet_engine_get_stats(engine, out_spilled);
    for (int i = 0; i < CONTEXTS; i++) {
        RAMET_TRY(ramet_verify_compare_last(d, contexts[i], error));
        RAMET_TRY(ramet_verify_run(d, contexts[i], START + STEPS, 1, error));
    }
    return RAMET_OK;
}

static ramet_status run(ramet_difference *d, ramet_engine *engine, ramet_engine_stats *out_spilled,
                        ramet_error *error) {
    ramet_context *contexts[CONTEXTS] = {0};
    ramet_status status = ramet_context_create(engine, &contexts[0], error);
    if (status == RAMET_OK) status = take_turns(d, contexts, error);
    if (status == RAMET_OK) status = spill_all(d, engine, contexts, out_spilled, error);
    for (int i = 0; i < CONTEXTS; i++) ramet_context_close(&contexts[i], NULL);
    return status;
}

ramet_status ramet_verify_spill(ramet_subject *s, ramet_error *error) {
    static const char check[] = "spill reads back";
    ramet_difference d = {.subject = s};
    ramet_engine *engine = NULL;
    ramet_engine_stats spilled = {0};
    RAMET_TRY(create_engine(s, &engine, error));
    ramet_status status = run(&d, engine, &spilled, error);
    ramet_engine_destroy(&engine);
    RAMET_TRY(status);
    if (spilled.memory_bytes != 0 || spilled.blocks_read_back == 0)
        ramet_verify_report(s, check, RAMET_FAIL, "%llu bytes in memory while all is spilled, %llu blocks read back",
                            (unsigned long long)spilled.memory_bytes, (unsigned long long)spilled.blocks_read_back);
    else
        ramet_verify_report_difference(s, check, &d, "3 contexts in room for 1.5, 0 bytes while spilled");
    return RAMET_OK;
}
