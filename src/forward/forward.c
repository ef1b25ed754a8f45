/* forward.c - one run from tokens to hidden rows, and from hidden rows to logits; the scratch memory it needs. */
#include "forward/forward.h"
#include "base/memory.h"
#include "forward/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- scratch: one mapping, cut into arrays; sized once, from the model and max_tokens ---- */

struct cutter {
    uint8_t *base; /* NULL: only measuring */
    uint64_t used;
};

static void *cut(struct cutter *c, uint64_t n, uint64_t size) {
    void *at = c->base ? c->base + c->used : NULL;
    c->used += (n * size + 63) / 64 * 64;
    return at;
}

static void visit_matrix(ramet_forward *f, const ramet_matrix *m) {
    if (!m->lora_a) return;
    f->lora_mid_stride = ramet_max_u32(f->lora_mid_stride, ramet_round16(m->lora_a->n_rows));
    f->lora_out_stride = ramet_max_u32(f->lora_out_stride, ramet_round16(m->n_rows));
}

static void measure_adapters(ramet_forward *f) {
    const ramet_weights *w = f->weights;
    for (uint32_t i = 0; i < w->hparams.n_layers; i++) {
        const ramet_layer *l = &w->layers[i];
        const ramet_matrix *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) visit_matrix(f, all[j]);
    }
    visit_matrix(f, &w->output);
}

static void lay_out_worker(ramet_forward *f, struct cutter *c, ramet_attend_scratch *s) {
    uint64_t dim = f->layout->head_dim, n_q = (uint64_t)f->max_block_rows * f->group;
    *s = (ramet_attend_scratch){
        .q = cut(c, n_q * dim, sizeof(float)),
        .k_tile = cut(c, dim * RAMET_SEGMENT, sizeof(float)),
        .v_tile = cut(c, dim * RAMET_SEGMENT, sizeof(float)),
        .part_o = cut(c, n_q * dim, sizeof(float)),
        .part_m = cut(c, n_q, sizeof(float)),
        .part_l = cut(c, n_q, sizeof(float)),
        .all_o = cut(c, n_q * dim, sizeof(float)),
        .all_m = cut(c, n_q, sizeof(float)),
        .all_l = cut(c, n_q, sizeof(float)),
        .lo = cut(c, n_q, 1),
        .hi = cut(c, n_q, 1),
    };
}

static void lay_out(ramet_forward *f, struct cutter *c) {
    const ramet_hparams *h = &f->weights->hparams;
    uint64_t rows = f->max_tokens, pairs = h->n_rot / 2;
    uint32_t n_q = h->n_heads * h->head_dim, max_k = ramet_max_u32(ramet_max_u32(h->n_embd, h->n_ff), n_q);
    f->row_span = cut(c, rows, sizeof(uint32_t));
    f->row_pos = cut(c, rows, sizeof(uint32_t));
    f->hidden = cut(c, rows * h->n_embd, sizeof(float));
    f->normed = cut(c, rows * h->n_embd, sizeof(float));
    f->q = cut(c, rows * f->q_stride, sizeof(float));
    f->k = cut(c, rows * f->kv_stride, sizeof(float));
    f->v = cut(c, rows * f->kv_stride, sizeof(float));
    f->attn = cut(c, rows * n_q, sizeof(float));
    f->gate = cut(c, rows * f->ff_stride, sizeof(float));
    f->up = cut(c, rows * f->ff_stride, sizeof(float));
    f->ff = f->ff_stride == h->n_ff ? f->gate : cut(c, rows * h->n_ff, sizeof(float)); /* in place where it is dense */
    f->projected = cut(c, rows * f->embd_stride, sizeof(float));
    f->lora_mid = cut(c, rows * f->lora_mid_stride, sizeof(float));
    f->lora_out = cut(c, rows * f->lora_out_stride, sizeof(float));
    for (int kind = 0; kind < 2; kind++) {
        bool used = kind == 0 || h->window_pattern > 0;
        f->inverse_freq[kind] = used ? cut(c, pairs, sizeof(double)) : NULL;
        f->cos[kind] = used ? cut(c, rows * pairs, sizeof(float)) : NULL;
        f->sin[kind] = used ? cut(c, rows * pairs, sizeof(float)) : NULL;
    }
    f->acts_memory = cut(c, 1, ramet_acts_bytes(max_k, f->max_tokens));
    uint32_t threads = ramet_pool_threads(f->pool);
    f->partials = cut(c, 2ull * threads * f->max_parts, (uint64_t)f->group * (h->head_dim + 2) * sizeof(float));
    for (uint32_t i = 0; i < threads; i++) {
        ramet_attend_scratch discarded;
        lay_out_worker(f, c, c->base ? &f->workers[i] : &discarded);
    }
}

ramet_status ramet_forward_create(const ramet_weights *weights, const ramet_kernels *kernels,
                                  const ramet_kv_layout *layout, uint32_t n_ctx, uint32_t max_tokens, ramet_pool *pool,
                                  ramet_forward **out, ramet_error *error) {
    *out = NULL;
    const ramet_hparams *h = &weights->hparams;
    ramet_forward *f = ramet_alloc(1, sizeof *f);
    ramet_attend_scratch *workers = ramet_alloc(ramet_pool_threads(pool), sizeof *workers);
    if (!f || !workers) {
        free(f);
        free(workers);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the scratch of a forward pass");
    }
    f->weights = weights;
    f->kernels = kernels;
    f->layout = layout;
    f->pool = pool;
    f->max_tokens = max_tokens;
    f->max_parts = (n_ctx + RAMET_PART - 1) / RAMET_PART;
    f->group = h->n_heads / h->n_kv_heads;
    f->max_block_rows = ramet_max_u32(RAMET_QUERY_BLOCK / f->group, 1);
    if (f->max_block_rows > max_tokens) f->max_block_rows = max_tokens;
    f->q_stride = ramet_round16(h->n_heads * h->head_dim);
    f->kv_stride = ramet_round16(h->n_kv_heads * h->head_dim);
    f->embd_stride = ramet_round16(h->n_embd);
    f->ff_stride = ramet_round16(h->n_ff);
    f->logits_stride = ramet_round16(h->n_vocab);
    f->workers = workers;
    measure_adapters(f);
    struct cutter measure = {0};
    lay_out(f, &measure);
    f->scratch_bytes = measure.used;
    f->scratch = ramet_reserve(f->scratch_bytes);
    if (!f->scratch) {
        ramet_forward_destroy(&f);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %llu MiB of scratch; use a smaller context or chunk",
                          (unsigned long long)(measure.used >> 20));
    }
    struct cutter place = {.base = f->scratch};
    lay_out(f, &place);
    ramet_rope_init(&h->rope, h->n_rot, f->inverse_freq[0], &f->rope_magnitude[0]);
    if (f->inverse_freq[1]) ramet_rope_init(&h->rope_local, h->n_rot, f->inverse_freq[1], &f->rope_magnitude[1]);
    *out = f;
    return RAMET_OK;
}

void ramet_forward_destroy(ramet_forward **forward) {
    ramet_forward *f = *forward;
    if (!f) return;
    *forward = NULL;
    ramet_unmap(f->scratch, f->scratch_bytes);
    free(f->workers);
    free(f);
}

uint64_t ramet_forward_scratch_bytes(const ramet_forward *forward) {
    return forward->scratch_bytes;
}
uint32_t ramet_forward_logits_stride(const ramet_forward *forward) {
    return forward->logits_stride;
}

/* ---- a run ---- */

/* Every page that the run will write belongs to its context alone: asked once, not per row and layer. */
static void claim_pages(const ramet_forward *f) {
    for (uint32_t s = 0; s < f->n_spans; s++) {
        const ramet_span *span = &f->spans[s];
        for (uint32_t pos = span->pos; pos < span->pos + span->n;
             pos += f->layout->page_tokens - pos % f->layout->page_tokens)
            ramet_context_page_write(span->context, pos);
    }
}

/* Rows in span order. */
static void index_rows(ramet_forward *f) {
    f->n_rows = 0;
    for (uint32_t s = 0; s < f->n_spans; s++) {
        for (uint32_t i = 0; i < f->spans[s].n; i++) {
            RAMET_ASSERT(f->n_rows < f->max_tokens, "a run of more than %u tokens", f->max_tokens);
            f->row_span[f->n_rows] = s;
            f->row_pos[f->n_rows++] = f->spans[s].pos + i;
        }
    }
}

static void embed_row(void *user, uint32_t row, uint32_t worker) {
    (void)worker;
    ramet_forward *f = user;
    const ramet_hparams *h = &f->weights->hparams;
    const ramet_span *span = &f->spans[f->row_span[row]];
    float *x = f->hidden + (size_t)row * h->n_embd;
    ramet_embedding_row(f->weights, span->tokens[f->row_pos[row] - span->pos], x);
    if (h->embd_scale != 1.0f) f->kernels->scale(x, h->embd_scale, h->n_embd);
}

void ramet_forward_run(ramet_forward *f, const ramet_span *spans, uint32_t n_spans) {
    f->spans = spans;
    f->n_spans = n_spans;
    index_rows(f);
    if (f->n_rows == 0) return;
    claim_pages(f);
    ramet_forward_each_row(f, f->n_rows, embed_row, f);
    ramet_rope_fill(f);
    ramet_dense_layers(f);
    f->spans = NULL;
}

struct logits_rows {
    ramet_forward *f;
    uint32_t first;
};

static void normalise_output(void *user, uint32_t index, uint32_t worker) {
    (void)worker;
    const struct logits_rows *r = user;
    const ramet_hparams *h = &r->f->weights->hparams;
    r->f->kernels->rms_norm(r->f->hidden + (size_t)(r->first + index) * h->n_embd, r->f->weights->output_norm,
                            h->n_embd, h->rms_eps, r->f->normed + (size_t)index * h->n_embd);
}

void ramet_forward_logits(ramet_forward *f, uint32_t row, uint32_t n, float *out, size_t stride) {
    RAMET_ASSERT(row + n <= f->n_rows && stride >= f->logits_stride, "logits of rows %u + %u of %u", row, n, f->n_rows);
    struct logits_rows rows = {.f = f, .first = row};
    ramet_product product = {&f->weights->output, out, stride};
    ramet_forward_matmul(f, (ramet_input){f->normed, normalise_output, &rows}, n, &product, 1);
}
