/* attention.c - every query row against the positions that its context holds, through pages.
 *
 * The order is fixed by position alone: segments of 64 aligned to absolute position, ascending, inside parts of 1,024; parts are
 * merged in ascending order. What there is to do are pairs of a kv head (its whole group of query heads) and a row, head by
 * head; a job is an equal share of them, and its rows of one head are a block. Rows of several contexts may be in a block:
 * neighbours that reach the same page read it together, so that branches of one prefix cost one reading of it. When there are
 * fewer pairs than the threads need, each part becomes a job of its own. None of this changes a bit: a row's state depends on
 * no other row, a part's on no other part. */
#include "base/memory.h"
#include "forward/internal.h"

#include <math.h>
#include <string.h>

struct view {
    ramet_forward *f;
    uint32_t layer, window;
    uint32_t n_shares;
    uint32_t parts; /* in the split form: parts per pair */
};

/* Rows [row, row + n_rows) of the run and the queries of one kv head. */
struct block {
    uint32_t head, row, n_rows;
};

static ramet_context *context_of(const ramet_forward *f, uint32_t row) {
    return f->spans[f->row_span[row]].context;
}

/* The first position that a row sees. */
static uint32_t begin_of_row(const struct view *v, uint32_t row) {
    uint32_t pos = v->f->row_pos[row];
    return v->window && pos + 1 > v->window ? pos + 1 - v->window : 0;
}

/* What the rows of a block see, together: positions [*out_begin, *out_end). */
static void range_of(const struct view *v, struct block b, uint32_t *out_begin, uint32_t *out_end) {
    *out_begin = UINT32_MAX;
    *out_end = 0;
    for (uint32_t row = b.row; row < b.row + b.n_rows; row++) {
        *out_begin = ramet_min_u32(*out_begin, begin_of_row(v, row));
        *out_end = ramet_max_u32(*out_end, v->f->row_pos[row] + 1);
    }
}

static void gather_queries(const ramet_forward *f, struct block b, float *q) {
    size_t dim = f->layout->head_dim;
    for (uint32_t t = 0; t < b.n_rows; t++) {
        const float *row = f->q + (size_t)(b.row + t) * f->q_stride + (size_t)b.head * f->group * dim;
        memcpy(q + (size_t)t * f->group * dim, row, f->group * dim * sizeof *q); /* a kv head's queries lie together */
    }
}

/* Whether attention reads segments where they lie. */
static bool is_in_place(const ramet_kv_layout *l) {
    return l->page_tokens >= RAMET_SEGMENT && l->k_code == RAMET_KV_CODE_F32;
}

static void point_into_page(const struct view *v, ramet_context *context, uint32_t head, uint32_t pos,
                            const float **out_k, const float **out_v) {
    const ramet_kv_layout *l = v->f->layout;
    const uint8_t *page = ramet_context_page_read(context, pos);
    uint32_t slot = pos % l->page_tokens;
    *out_k = (const float *)(const void *)(page + ramet_kv_k_off(l, v->layer, head)) + slot;
    *out_v = (const float *)(const void *)(page + ramet_kv_v_off(l, v->layer, head)) + (size_t)slot * l->head_dim;
}

/* Tells the kernel where a row that comes next reads, if it reads there in place. */
static void point_ahead(const struct view *v, uint32_t row, uint32_t head, uint32_t segment, ramet_attend_args *args) {
    bool is_seen = segment <= v->f->row_pos[row] && begin_of_row(v, row) < segment + RAMET_SEGMENT;
    if (is_seen && is_in_place(v->f->layout))
        point_into_page(v, context_of(v->f, row), head, segment, &args->next_k, &args->next_v);
}

/* Points k and v at positions [pos, pos + n) of one segment: into the page where it lies there as float32, else into tiles. */
static void load_segment(const struct view *v, ramet_context *context, uint32_t head, uint32_t pos, uint32_t n,
                         const ramet_attend_scratch *s, ramet_attend_args *args) {
    const ramet_kv_layout *l = v->f->layout;
    args->v_stride = l->head_dim;
    if (is_in_place(l)) {
        args->k_stride = l->page_tokens;
        point_into_page(v, context, head, pos, &args->k, &args->v);
        return;
    }
    for (uint32_t done = 0; done < n;) {
        const uint8_t *page = ramet_context_page_read(context, pos + done);
        uint32_t slot = (pos + done) % l->page_tokens;
        uint32_t take = ramet_min_u32(n - done, l->page_tokens - slot);
        v->f->kernels->kv_read_k(l, page, v->layer, head, slot, take, s->k_tile + done, RAMET_SEGMENT);
        v->f->kernels->kv_read_v(l, page, v->layer, head, slot, take, s->v_tile + (size_t)done * l->head_dim);
        done += take;
    }
    args->k = s->k_tile;
    args->k_stride = RAMET_SEGMENT;
    args->v = s->v_tile;
}

/* Whether two rows' contexts have the same pages at a segment that both see to its end; where a row ends inside, its last page is
 * its own. */
static bool shares_segment(const ramet_forward *f, uint32_t row, uint32_t other, uint32_t segment) {
    uint32_t end = segment + RAMET_SEGMENT;
    if (ramet_min_u32(f->row_pos[row], f->row_pos[other]) + 1 < end) return false;
    for (uint32_t pos = segment; pos < end; pos += f->layout->page_tokens)
        if (ramet_context_page_read(context_of(f, row), pos) != ramet_context_page_read(context_of(f, other), pos))
            return false;
    return true;
}

/* Which of the segment's positions the queries of a run of rows see; returns how many of them, from the first on, any sees. */
static uint32_t mark_visible(const struct view *v, uint32_t row, uint32_t n_rows, uint32_t segment,
                             ramet_attend_scratch *s) {
    uint32_t group = v->f->group, n = 0;
    for (uint32_t t = 0; t < n_rows; t++) {
        uint32_t pos = v->f->row_pos[row + t], first = begin_of_row(v, row + t);
        uint32_t lo = first > segment ? ramet_min_u32(first - segment, RAMET_SEGMENT) : 0;
        uint32_t hi = pos + 1 > segment ? ramet_min_u32(pos + 1 - segment, RAMET_SEGMENT) : 0;
        memset(s->lo + (size_t)t * group, (int)lo, group);
        memset(s->hi + (size_t)t * group, (int)hi, group);
        if (lo < hi) n = ramet_max_u32(n, hi);
    }
    return n;
}

/* How many rows from `row` on, at most n_rows, find the same bytes at a segment: rows of one context, or of contexts that share
 * its pages. */
static uint32_t count_same(const ramet_forward *f, uint32_t row, uint32_t n_rows, uint32_t segment) {
    uint32_t n = 1;
    for (; n < n_rows; n++) {
        if (f->row_span[row + n] == f->row_span[row]) continue;
        if (!shares_segment(f, row, row + n, segment)) break;
    }
    return n;
}

static void clear_state(float *m, float *l, float *o, uint32_t n_q, uint32_t dim) {
    for (uint32_t i = 0; i < n_q; i++) m[i] = -INFINITY;
    memset(l, 0, n_q * sizeof *l);
    memset(o, 0, (size_t)n_q * dim * sizeof *o);
}

/* The state of one part for all queries of a block, into (m, l, o). The queries are in s->q. */
static void attend_part(const struct view *v, struct block b, uint32_t part, ramet_attend_scratch *s, float *m,
                        float *l, float *o) {
    const ramet_forward *f = v->f;
    uint32_t dim = f->layout->head_dim, begin, end;
    clear_state(m, l, o, b.n_rows * f->group, dim);
    range_of(v, b, &begin, &end);
    end = ramet_min_u32((part + 1) * RAMET_PART, end);
    uint32_t segment = ramet_max_u32(part * RAMET_PART, begin) / RAMET_SEGMENT * RAMET_SEGMENT;
    for (; segment < end; segment += RAMET_SEGMENT) {
        for (uint32_t done = 0, n; done < b.n_rows; done += n) {
            uint32_t row = b.row + done;
            n = count_same(f, row, b.n_rows - done, segment);
            size_t q = (size_t)done * f->group;
            ramet_attend_args args = {.q = s->q + q * dim,
                                      .n_q = n * f->group,
                                      .head_dim = dim,
                                      .lo = s->lo,
                                      .hi = s->hi,
                                      .m = m + q,
                                      .l = l + q,
                                      .o = o + q * dim};
            args.n = mark_visible(v, row, n, segment, s);
            if (args.n == 0) continue;
            load_segment(v, context_of(f, row), b.head, segment, args.n, s, &args);
            if (done + n < b.n_rows)
                point_ahead(v, row + n, b.head, segment, &args);
            else
                point_ahead(v, b.row, b.head, segment + RAMET_SEGMENT, &args);
            f->kernels->attend(&args);
        }
    }
}

static void merge(const ramet_forward *f, uint32_t n_q, float *m, float *l, float *o, const float *m2, const float *l2,
                  const float *o2) {
    uint32_t dim = f->layout->head_dim;
    for (uint32_t i = 0; i < n_q; i++)
        f->kernels->attend_merge(&m[i], &l[i], o + (size_t)i * dim, m2[i], l2[i], o2 + (size_t)i * dim, dim);
}

/* Divides by the weights' sum and puts each query head where the output matrix reads it. */
static void finish(ramet_forward *f, struct block b, float *l, float *o) {
    uint32_t dim = f->layout->head_dim, n_heads = f->group * f->layout->n_kv_heads;
    for (uint32_t i = 0; i < b.n_rows * f->group; i++) {
        uint32_t row = b.row + i / f->group, query_head = b.head * f->group + i % f->group;
        f->kernels->attend_finish(o + (size_t)i * dim, l[i], dim);
        memcpy(f->attn + ((size_t)row * n_heads + query_head) * dim, o + (size_t)i * dim, dim * sizeof *o);
    }
}

static void attend_block(const struct view *v, struct block b, ramet_attend_scratch *s) {
    ramet_forward *f = v->f;
    uint32_t n_q = b.n_rows * f->group, begin, end;
    range_of(v, b, &begin, &end);
    gather_queries(f, b, s->q);
    clear_state(s->all_m, s->all_l, s->all_o, n_q, f->layout->head_dim);
    for (uint32_t part = begin / RAMET_PART; part * RAMET_PART < end; part++) {
        attend_part(v, b, part, s, s->part_m, s->part_l, s->part_o);
        merge(f, n_q, s->all_m, s->all_l, s->all_o, s->part_m, s->part_l, s->part_o);
    }
    finish(f, b, s->all_l, s->all_o);
}

static uint32_t count_pairs(const ramet_forward *f) {
    return f->n_rows * f->layout->n_kv_heads;
}

static struct block block_of_pair(const ramet_forward *f, uint32_t pair) {
    return (struct block){.head = pair / f->n_rows, .row = pair % f->n_rows, .n_rows = 1};
}

/* The last share first: later rows of a prompt see more, and the job ends evenly when what is left is little. */
static void run_share(void *user, uint32_t index, uint32_t worker) {
    const struct view *v = user;
    uint32_t share = v->n_shares - 1 - index;
    uint64_t pairs = count_pairs(v->f);
    uint32_t pair = (uint32_t)(pairs * share / v->n_shares), end = (uint32_t)(pairs * (share + 1) / v->n_shares);
    while (pair < end) {
        struct block b = block_of_pair(v->f, pair);
        b.n_rows = ramet_min_u32(end - pair, v->f->n_rows - b.row);
        attend_block(v, b, &v->f->workers[worker]);
        pair += b.n_rows;
    }
}

/* As few as the size of a block allows, since each share reads the pages anew, and as many for each thread. */
static uint32_t count_shares(const ramet_forward *f) {
    uint32_t threads = ramet_pool_threads(f->pool), pairs = count_pairs(f), least = threads * f->max_block_rows;
    return ramet_min_u32(pairs, (pairs + least - 1) / least * threads);
}

/* Where the state of (pair, part) is kept between the two passes of the split form. */
static void partial_at(const struct view *v, uint32_t pair, uint32_t part, float **m, float **l, float **o) {
    const ramet_forward *f = v->f;
    *m = f->partials + ((size_t)pair * v->parts + part) * f->group * (f->layout->head_dim + 2);
    *l = *m + f->group;
    *o = *l + f->group;
}

static void run_split(void *user, uint32_t index, uint32_t worker) {
    const struct view *v = user;
    ramet_attend_scratch *s = &v->f->workers[worker];
    uint32_t pair = index / v->parts, part = index % v->parts;
    struct block b = block_of_pair(v->f, pair);
    float *m, *l, *o;
    partial_at(v, pair, part, &m, &l, &o);
    gather_queries(v->f, b, s->q);
    attend_part(v, b, part, s, m, l, o);
}

static void join_split(void *user, uint32_t pair, uint32_t worker) {
    const struct view *v = user;
    ramet_forward *f = v->f;
    ramet_attend_scratch *s = &f->workers[worker];
    clear_state(s->all_m, s->all_l, s->all_o, f->group, f->layout->head_dim);
    for (uint32_t part = 0; part < v->parts; part++) {
        float *m, *l, *o;
        partial_at(v, pair, part, &m, &l, &o);
        merge(f, f->group, s->all_m, s->all_l, s->all_o, m, l, o);
    }
    finish(f, block_of_pair(f, pair), s->all_l, s->all_o);
}

void ramet_forward_attention(ramet_forward *f, uint32_t layer, uint32_t window) {
    struct view v = {.f = f, .layer = layer, .window = window, .n_shares = count_shares(f), .parts = 1};
    uint32_t pairs = count_pairs(f);
    for (uint32_t row = 0; row < f->n_rows; row++) v.parts = ramet_max_u32(v.parts, f->row_pos[row] / RAMET_PART + 1);
    if (v.parts > 1 && pairs < 2 * ramet_pool_threads(f->pool)) {
        ramet_pool_run(f->pool, pairs * v.parts, run_split, &v);
        ramet_pool_run(f->pool, pairs, join_split, &v);
    } else {
        ramet_pool_run(f->pool, v.n_shares, run_share, &v);
    }
}
