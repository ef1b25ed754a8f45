/* matmul.c - products of weight matrices and a block of rows. The activations are quantised once, then panels are dealt to
 * the threads in small runs; a panel's arithmetic does not depend on who runs it or on which rows come with it. */
#include "base/memory.h"
#include "forward/internal.h"

enum {
    COLUMN_BLOCK = 128, /* columns that stay in cache while a run of panels passes over them */
    PAIR_COLUMNS = 12,  /* from here on two panels at once are faster than one, if there is a kernel for it */
    MAX_JOBS_PER_THREAD = 8,
    MAX_ROWS_PER_JOB = 16,
};

/* ---- rows: what goes row by row is short, and claiming a job of a busy pool takes as long as a row of a small model */

struct rows {
    ramet_job job;
    void *user;
    uint32_t n, per_job;
};

static void run_rows(void *user, uint32_t index, uint32_t worker) {
    const struct rows *r = user;
    const uint32_t first = index * r->per_job, end = ramet_min_u32(first + r->per_job, r->n);
    for (uint32_t row = first; row < end; row++) r->job(r->user, row, worker);
}

void ramet_forward_each_row(ramet_forward *f, uint32_t n_rows, ramet_job job, void *user) {
    const uint32_t jobs = 2 * ramet_pool_threads(f->pool);
    struct rows r = {job, user, n_rows, ramet_min_u32((n_rows + jobs - 1) / jobs, MAX_ROWS_PER_JOB)};
    if (n_rows > 0) ramet_pool_run(f->pool, (n_rows + r.per_job - 1) / r.per_job, run_rows, &r);
}

/* ---- products */

struct job {
    const ramet_forward *f;
    const ramet_product *products;
    uint32_t n_products, n_panels, panels_per_job;
    ramet_input input;
    bool is_quantised;
    ramet_acts acts;
};

static void prepare_row(void *user, uint32_t row, uint32_t worker) {
    struct job *job = user;
    if (job->input.fill) job->input.fill(job->input.user, row, worker);
    if (job->is_quantised) job->f->kernels->quantize(&job->acts, row, job->acts.f32 + (size_t)row * job->acts.n_k);
}

/* Panels [panel, last) of one product over some columns, two at a time where that is faster. */
static void multiply_panels(const struct job *job, const ramet_product *p, uint32_t panel, uint32_t last, uint32_t col,
                            uint32_t n_cols) {
    const ramet_matrix *m = p->matrix;
    const ramet_kernels *kernels = job->f->kernels;
    const ramet_matmul_fn pair = n_cols < PAIR_COLUMNS ? NULL : kernels->matmul_pair[m->dtype];
    for (uint32_t n; panel < last; panel += n) {
        n = pair && last - panel >= 2 ? 2 : 1;
        float *out = p->out + (size_t)col * p->out_stride + (size_t)panel * RAMET_LANES;
        (n == 2 ? pair : kernels->matmul[m->dtype])(m->panels + (uint64_t)panel * m->panel_bytes, &job->acts, col,
                                                    n_cols, out, p->out_stride);
    }
}

static void multiply(void *user, uint32_t index, uint32_t worker) {
    (void)worker;
    const struct job *job = user;
    const uint32_t first = index * job->panels_per_job, last = first + job->panels_per_job;
    for (uint32_t col = 0; col < job->acts.n_cols; col += COLUMN_BLOCK) {
        const uint32_t n_cols = job->acts.n_cols - col < COLUMN_BLOCK ? job->acts.n_cols - col : COLUMN_BLOCK;
        uint32_t before = 0; /* panels of the products before p */
        for (const ramet_product *p = job->products; p < job->products + job->n_products; p++) {
            const uint32_t n = p->matrix->n_panels, end = before + n;
            if (first < end && before < last)
                multiply_panels(job, p, first > before ? first - before : 0, last < end ? last - before : n, col,
                                n_cols);
            before = end;
        }
    }
}

static void run(ramet_forward *f, ramet_input input, uint32_t n_rows, const ramet_product *products, uint32_t n) {
    struct job job = {.f = f, .products = products, .n_products = n, .input = input};
    ramet_acts_place(&job.acts, products[0].matrix->n_k, n_rows, input.x, f->acts_memory);
    for (uint32_t i = 0; i < n; i++) {
        job.n_panels += products[i].matrix->n_panels;
        job.is_quantised |= ramet_act_kind_of(products[i].matrix->dtype) == RAMET_ACT_Q8;
    }
    if (job.is_quantised || input.fill) ramet_forward_each_row(f, n_rows, prepare_row, &job);
    uint32_t jobs = ramet_pool_threads(f->pool) * MAX_JOBS_PER_THREAD;
    job.panels_per_job = ((job.n_panels + jobs - 1) / jobs + 1) & ~1u; /* even: they go in pairs */
    ramet_pool_run(f->pool, (job.n_panels + job.panels_per_job - 1) / job.panels_per_job, multiply, &job);
}

/* out += scale * B (A x), as its own float products. */
static void add_adapter(ramet_forward *f, const float *x, uint32_t n_rows, const ramet_product *p) {
    const ramet_matrix *m = p->matrix;
    ramet_product down = {m->lora_a, f->lora_mid, ramet_round16(m->lora_a->n_rows)};
    run(f, (ramet_input){.x = x}, n_rows, &down, 1);
    float *mid = f->lora_mid; /* made dense: the next product wants [n_rows][rank] */
    uint32_t rank = m->lora_a->n_rows;
    for (uint32_t row = 1; row < n_rows; row++)
        for (uint32_t i = 0; i < rank; i++) mid[(size_t)row * rank + i] = mid[row * down.out_stride + i];
    ramet_product up = {m->lora_b, f->lora_out, ramet_round16(m->lora_b->n_rows)};
    run(f, (ramet_input){.x = mid}, n_rows, &up, 1);
    for (uint32_t row = 0; row < n_rows; row++)
        f->kernels->axpy(p->out + row * p->out_stride, m->lora_scale, f->lora_out + row * up.out_stride, m->n_rows);
}

void ramet_forward_matmul(ramet_forward *f, ramet_input input, uint32_t n_rows, const ramet_product *products,
                          uint32_t n) {
    run(f, input, n_rows, products, n);
    for (uint32_t i = 0; i < n; i++)
        if (products[i].matrix->lora_a) add_adapter(f, input.x, n_rows, &products[i]);
}
