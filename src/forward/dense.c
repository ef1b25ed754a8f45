/* dense.c - the layer loop of the dense families: llama (Llama, SmolLM2, Mistral), qwen2, qwen3, gemma3. One page, read top to
 * bottom; what a family has or lacks is a field of ramet_hparams, filled in src/model/hparams.c:
 *
 *              llama      qwen2       qwen3       gemma3
 *   q,k,v      -          bias        norm/head   norm/head
 *   rope       neighbours halves      halves      halves, a second base in sliding layers
 *   after      -          -           -           a norm after attention and after the feed-forward
 *   gate       silu       silu        silu        gelu */
#include "forward/internal.h"

struct layer_view {
    ramet_forward *f;
    const ramet_layer *layer;
    uint32_t index;
    bool is_sliding;
    bool has_pending;       /* f->projected is not in f->hidden yet */
    const float *post_norm; /* of what is pending; NULL in families without */
    const float *norm;      /* of the next product's input */
};

/* hidden += projected, through a norm where the family has one there. */
static void add_row(void *user, uint32_t row, uint32_t worker) {
    (void)worker;
    const struct layer_view *v = user;
    const ramet_hparams *h = &v->f->weights->hparams;
    float *y = v->f->projected + (size_t)row * v->f->embd_stride;
    if (v->post_norm) v->f->kernels->rms_norm(y, v->post_norm, h->n_embd, h->rms_eps, y);
    v->f->kernels->add(v->f->hidden + (size_t)row * h->n_embd, y, h->n_embd);
}

static void normalise_row(void *user, uint32_t row, uint32_t worker) {
    const struct layer_view *v = user;
    const ramet_hparams *h = &v->f->weights->hparams;
    size_t at = (size_t)row * h->n_embd;
    if (v->has_pending) add_row(user, row, worker);
    v->f->kernels->rms_norm(v->f->hidden + at, v->norm, h->n_embd, h->rms_eps, v->f->normed + at);
}

/* Norms and rotates one head vector in place. */
static void place_head(const struct layer_view *v, uint32_t row, const float *norm, float *x) {
    const ramet_forward *f = v->f;
    const ramet_hparams *h = &f->weights->hparams;
    size_t pairs = h->n_rot / 2;
    if (norm) f->kernels->rms_norm(x, norm, h->head_dim, h->rms_eps, x);
    f->kernels->rope(x, f->cos[v->is_sliding] + row * pairs, f->sin[v->is_sliding] + row * pairs, h->n_rot / 2,
                     h->rope_neighbours);
}

/* From the raw products to queries ready for attention, and keys and values in the page. */
static void place_row(void *user, uint32_t row, uint32_t worker) {
    (void)worker;
    const struct layer_view *v = user;
    ramet_forward *f = v->f;
    const ramet_hparams *h = &f->weights->hparams;
    const ramet_layer *layer = v->layer;
    uint32_t n_q = h->n_heads * h->head_dim, n_kv = h->n_kv_heads * h->head_dim;
    float *q = f->q + (size_t)row * f->q_stride;
    float *k = f->k + (size_t)row * f->kv_stride, *values = f->v + (size_t)row * f->kv_stride;
    if (layer->q_bias) f->kernels->add(q, layer->q_bias, n_q);
    if (layer->k_bias) f->kernels->add(k, layer->k_bias, n_kv);
    if (layer->v_bias) f->kernels->add(values, layer->v_bias, n_kv);
    for (uint32_t head = 0; head < h->n_heads; head++)
        place_head(v, row, layer->q_norm, q + (size_t)head * h->head_dim);
    for (uint32_t head = 0; head < h->n_kv_heads; head++)
        place_head(v, row, layer->k_norm, k + (size_t)head * h->head_dim);
    f->kernels->scale(q, h->attn_scale, n_q);
    uint32_t pos = f->row_pos[row];
    uint8_t *page = ramet_context_page_own(f->spans[f->row_span[row]].context, pos);
    f->kernels->kv_write(f->layout, page, v->index, pos % f->layout->page_tokens, k, values);
}

static void gate_row(void *user, uint32_t row, uint32_t worker) {
    (void)worker;
    const struct layer_view *v = user;
    ramet_forward *f = v->f;
    const ramet_hparams *h = &f->weights->hparams;
    const float *gate = f->gate + (size_t)row * f->ff_stride, *up = f->up + (size_t)row * f->ff_stride;
    (h->gelu ? f->kernels->gelu_mul : f->kernels->silu_mul)(gate, up, h->n_ff, f->ff + (size_t)row * h->n_ff);
}

/* What a product left in f->projected, to be added when its row is read next. */
static void set_pending(struct layer_view *v, const float *post_norm) {
    v->has_pending = true;
    v->post_norm = post_norm;
}

static void run_layer(struct layer_view *v) {
    ramet_forward *f = v->f;
    const ramet_hparams *h = &f->weights->hparams;
    const ramet_layer *layer = v->layer;

    v->norm = layer->attn_norm;
    ramet_product qkv[] = {
        {&layer->q, f->q, f->q_stride}, {&layer->k, f->k, f->kv_stride}, {&layer->v, f->v, f->kv_stride}};
    ramet_forward_matmul(f, (ramet_input){f->normed, normalise_row, v}, f->n_rows, qkv, 3);
    ramet_forward_each_row(f, f->n_rows, place_row, v);
    ramet_forward_attention(f, v->index, v->is_sliding ? h->window : 0);
    ramet_product out = {&layer->o, f->projected, f->embd_stride};
    ramet_forward_matmul(f, (ramet_input){.x = f->attn}, f->n_rows, &out, 1);
    set_pending(v, layer->attn_post_norm);

    v->norm = layer->ffn_norm;
    ramet_product gate_up[] = {{&layer->gate, f->gate, f->ff_stride}, {&layer->up, f->up, f->ff_stride}};
    ramet_forward_matmul(f, (ramet_input){f->normed, normalise_row, v}, f->n_rows, gate_up, 2);
    ramet_product down = {&layer->down, f->projected, f->embd_stride};
    ramet_forward_matmul(f, (ramet_input){f->ff, gate_row, v}, f->n_rows, &down, 1);
    set_pending(v, layer->ffn_post_norm);
}

void ramet_dense_layers(ramet_forward *f) {
    const ramet_hparams *h = &f->weights->hparams;
    struct layer_view v = {.f = f};
    for (v.index = 0; v.index < h->n_layers; v.index++) {
        v.layer = &f->weights->layers[v.index];
        v.is_sliding = h->window_pattern > 0 && (v.index + 1) % h->window_pattern != 0;
        run_layer(&v);
    }
    ramet_forward_each_row(f, f->n_rows, add_row, &v);
}
