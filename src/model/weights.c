/* weights.c - from a GGUF file to panels and float vectors in memory, and the model's identity.
 * Owns the memory and the order of the work: plan and check everything, allocate once, then fill with all threads. Each
 * piece of the file is given back to the kernel when it has been repacked, so the peak is about the file's size.
 * Refuses to know what a layer computes. */
#include "model/weights_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "numerics/panel.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TASK_BYTES = 1 << 20 };

/* Some panels of a matrix, or a whole vector. */
typedef struct task {
    const weight_item *item;
    uint32_t first_panel, n_panels;
} task;

/* Index 0 of the job is the digest; it reads the same bytes as the others, and needs no one to wait for it. */
typedef struct filling {
    const ramet_gguf *gguf;
    const char *digest_cache;
    uint8_t *region;
    task *tasks;
    size_t n, capacity;
    uint64_t start;
    uint64_t digest_nanoseconds;
    _Atomic uint64_t repack_nanoseconds; /* until now: the task that ends last says it last */
    uint8_t digest[32];
    bool digest_cached;
    ramet_status digest_status;
    ramet_error digest_error;
} filling;

ramet_matrix ramet_matrix_at(ramet_dtype dtype, uint32_t n_rows, uint32_t n_k, const uint8_t *panels) {
    return (ramet_matrix){.dtype = dtype,
                          .n_rows = n_rows,
                          .n_k = n_k,
                          .n_panels = (n_rows + RAMET_LANES - 1) / RAMET_LANES,
                          .panel_bytes = ramet_panel_bytes(dtype, n_k),
                          .panels = panels};
}

static void pack_panel(const filling *f, const weight_item *item, uint32_t panel, uint64_t row_bytes) {
    const uint8_t *rows[RAMET_LANES];
    uint32_t first = panel * RAMET_LANES, n = item->n_rows - first;
    if (n > RAMET_LANES) n = RAMET_LANES;
    for (uint32_t i = 0; i < n; i++) rows[i] = item->tensor->data + (uint64_t)(first + i) * row_bytes;
    uint8_t *out = f->region + item->off + panel * item->matrix->panel_bytes;
    ramet_panel_pack(item->matrix->dtype, rows, n, item->n_k, out);
}

static void fill_item(const filling *f, const task *t) {
    const weight_item *item = t->item;
    uint64_t row_bytes = item->tensor->bytes / item->n_rows;
    if (item->vector) {
        ramet_dequantize_row((ramet_dtype)item->tensor->dtype, item->tensor->data, item->n_k,
                             (float *)(void *)(f->region + item->off));
        return;
    }
    for (uint32_t i = 0; i < t->n_panels; i++) pack_panel(f, item, t->first_panel + i, row_bytes);
    uint64_t rows_done = (uint64_t)t->n_panels * RAMET_LANES * row_bytes,
             off = (uint64_t)t->first_panel * RAMET_LANES * row_bytes;
    uint64_t left = item->tensor->bytes - off;
    ramet_gguf_forget_range(f->gguf, item->tensor, off, rows_done < left ? rows_done : left);
}

static void run_task(void *user, uint32_t index, uint32_t worker) {
    (void)worker;
    filling *f = user;
    if (index == 0) {
        f->digest_status = ramet_gguf_digest(f->gguf, f->digest_cache, f->digest, &f->digest_cached, &f->digest_error);
        f->digest_nanoseconds = ramet_now_nanoseconds() - f->start;
        return;
    }
    fill_item(f, &f->tasks[index - 1]);
    uint64_t now = ramet_now_nanoseconds() - f->start, latest = atomic_load(&f->repack_nanoseconds);
    while (latest < now && !atomic_compare_exchange_weak(&f->repack_nanoseconds, &latest, now)) continue;
}

static bool add_task(filling *f, task t) {
    void *grown = f->tasks;
    bool ok = ramet_grow(&grown, &f->capacity, f->n + 1, sizeof t);
    f->tasks = grown;
    if (ok) f->tasks[f->n++] = t;
    return ok;
}

static bool add_tasks(filling *f, const weight_item *item) {
    if (item->vector) return add_task(f, (task){.item = item});
    uint64_t panel_bytes = item->matrix->panel_bytes;
    uint32_t n_panels = item->matrix->n_panels,
             step = panel_bytes < TASK_BYTES ? (uint32_t)(TASK_BYTES / panel_bytes) : 1;
    for (uint32_t first = 0; first < n_panels; first += step) {
        uint32_t n = n_panels - first < step ? n_panels - first : step;
        if (!add_task(f, (task){.item = item, .first_panel = first, .n_panels = n})) return false;
    }
    return true;
}

/* Points everything into the region; the bytes come later. */
static void place(ramet_weights *w, const weight_plan *plan, uint8_t *region) {
    for (size_t i = 0; i < plan->n; i++) {
        const weight_item *item = &plan->items[i];
        uint8_t *at = region + item->off;
        if (item->matrix)
            *item->matrix = ramet_matrix_at((ramet_dtype)item->tensor->dtype, item->n_rows, item->n_k, at);
        else
            *item->vector = (const float *)(const void *)at;
    }
    if (!w->output.panels) w->output = w->embd; /* tied */
}

static ramet_status fill(const ramet_gguf *gguf, const char *digest_cache, ramet_weights *w, const weight_plan *plan,
                         ramet_pool *pool, ramet_error *error) {
    filling f = {
        .gguf = gguf, .digest_cache = digest_cache, .region = w->memory->region, .start = ramet_now_nanoseconds()};
    bool ok = true;
    for (size_t i = 0; i < plan->n && ok; i++) ok = add_tasks(&f, &plan->items[i]);
    if (ok && f.n < UINT32_MAX) {
        ramet_pool_run(pool, (uint32_t)f.n + 1, run_task, &f);
        w->digest_cached = f.digest_cached;
        memcpy(w->sha256, f.digest, sizeof f.digest);
        w->repack_nanoseconds = f.repack_nanoseconds;
        w->digest_nanoseconds = f.digest_nanoseconds;
        if (f.digest_status != RAMET_OK && error) *error = f.digest_error;
    } else {
        f.digest_status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to load %s", ramet_gguf_path(gguf));
    }
    free(f.tasks);
    return f.digest_status;
}

static ramet_status check_divisors(const ramet_gguf *gguf, const ramet_hparams *h, ramet_error *error) {
    for (uint32_t i = 0; h->rope.divisors && i < h->n_rot / 2; i++)
        if (!(h->rope.divisors[i] > 0) || !isfinite(h->rope.divisors[i]))
            return ramet_fail(error, RAMET_E_CORRUPT,
                              "%s: tensor 'rope_freqs.weight' has a value that is not a positive number",
                              ramet_gguf_path(gguf));
    return RAMET_OK;
}

static ramet_status load_planned(const ramet_gguf *gguf, ramet_weights *w, const weight_plan *plan,
                                 const char *digest_cache, ramet_pool *pool, ramet_error *error) {
    w->memory->region = ramet_map((size_t)plan->bytes);
    if (!w->memory->region)
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the weights of %s (%llu bytes)",
                          ramet_gguf_path(gguf), (unsigned long long)plan->bytes);
    w->memory->region_bytes = (size_t)plan->bytes;
    place(w, plan, w->memory->region);
    RAMET_TRY(fill(gguf, digest_cache, w, plan, pool, error));
    RAMET_TRY(ramet_gguf_check_unchanged(gguf, error));
    w->bytes = plan->bytes;
    w->n_params = plan->n_params;
    memcpy(w->types, plan->types, sizeof w->types);
    return check_divisors(gguf, &w->hparams, error);
}

static ramet_status load(const ramet_gguf *gguf, const char *digest_cache, ramet_weights *w, ramet_pool *pool,
                         ramet_error *error) {
    RAMET_TRY(ramet_hparams_read(gguf, &w->hparams, error));
    w->memory = ramet_alloc(1, sizeof *w->memory);
    w->layers = ramet_alloc(w->hparams.n_layers, sizeof *w->layers);
    if (!w->memory || !w->layers)
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to load %s", ramet_gguf_path(gguf));
    weight_plan plan;
    ramet_status status = ramet_weights_plan(gguf, w, &plan, error);
    if (status == RAMET_OK) status = load_planned(gguf, w, &plan, digest_cache, pool, error);
    free(plan.items);
    return status;
}

ramet_status ramet_weights_load(const ramet_gguf *gguf, const ramet_model_options *options, ramet_pool *pool,
                                ramet_weights **out, ramet_error *error) {
    *out = NULL;
    ramet_weights *w = ramet_alloc(1, sizeof *w);
    if (!w) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to load %s", ramet_gguf_path(gguf));
    ramet_status status = load(gguf, options ? options->digest_cache : NULL, w, pool, error);
    if (status == RAMET_OK && options && options->lora_path) status = ramet_lora_attach(w, options, error);
    if (status == RAMET_OK)
        *out = w;
    else
        ramet_weights_destroy(&w);
    return status;
}

void ramet_weights_destroy(ramet_weights **weights) {
    ramet_weights *w = *weights;
    *weights = NULL;
    if (!w) return;
    if (w->memory) {
        ramet_unmap(w->memory->region, w->memory->region_bytes);
        ramet_unmap(w->memory->lora_region, w->memory->lora_bytes);
        free(w->memory->lora_matrices);
    }
    free(w->memory);
    free(w->layers);
    free(w);
}

void ramet_embedding_row(const ramet_weights *weights, int32_t token, float *out) {
    const ramet_matrix *m = &weights->embd;
    RAMET_ASSERT(token >= 0 && (uint32_t)token < m->n_rows, "token %d of %u", (int)token, m->n_rows);
    uint32_t row = (uint32_t)token;
    ramet_panel_row(m->dtype, m->panels + row / RAMET_LANES * m->panel_bytes, row % RAMET_LANES, m->n_k, out);
}
