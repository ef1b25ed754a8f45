/* kernels.h - one table of function pointers. C fills it first; each instruction set this CPU has then overwrites what
 * it does faster (an early-return ladder in dispatch.c). The C function IS the definition: every other version equals
 * it bit for bit, on all inputs, NaN payloads aside. ramet-checkkern proves it and times it.
 *
 * Refuses to know contexts, models and threads: every function is pure and works on memory that the caller owns. */
#ifndef RAMET_KERNELS_KERNELS_H
#define RAMET_KERNELS_KERNELS_H

#include "numerics/kv.h"
#include "numerics/panel.h"

/* How a matmul wants its activations: float32 as they are, or int8 in blocks of 32. */
typedef enum ramet_act_kind { RAMET_ACT_F32, RAMET_ACT_Q8 } ramet_act_kind;

ramet_act_kind ramet_act_kind_of(ramet_dtype weights);

/* Int8 activations of n_cols tokens, one column each; arrays are column after column. A block of 32 is asymmetric: its
 * range, not its largest magnitude, is spread over the codes -127..127, because one outlier must not cost the other 31
 * their precision:
 *   lo, hi = smallest and largest x   (16 lanes i mod 16, then the tree; min(a, b) = a < b ? a : b, max likewise)
 *   z = fmaf(0.5, lo, 0.5 * hi), d = (hi - lo) / 254, q[i] = round-half-even((x[i] - z) * (254 / (hi - lo))), within +-127
 *   sum16, sum32: of q over each run of 16 and over the block, exact
 *   s16 = fmaf(d, (float)sum16, 16 * z) and s32 = fmaf(d, (float)sum32, 32 * z): sums of what x became
 * hi - lo below 2^-100 is flat: d = 0, all q 0. A block with a NaN or an infinity, or whose range overflows, has d = z =
 * NaN and all q 0, so that it is seen in the output. */
typedef struct ramet_acts {
    uint32_t n_k, n_cols;
    int8_t *q;        /* [n_cols][n_k] */
    float *d, *z;     /* [n_cols][n_k / 32] */
    float *s32;       /* [n_cols][n_k / 32] */
    float *s16;       /* [n_cols][n_k / 16] */
    int32_t *sum32;   /* [n_cols][n_k / 32] */
    int32_t *sum16;   /* [n_cols][n_k / 16] */
    const float *f32; /* [n_cols][n_k]: the caller's; all that F32, F16 and BF16 weights look at */
} ramet_acts;

/* Bytes that ramet_acts_place needs for n_cols columns of n_k. */
size_t ramet_acts_bytes(uint32_t n_k, uint32_t n_cols);
/* Points the int8 arrays of `acts` into `memory` (64-byte aligned, as are the arrays) and f32 to `x`. */
void ramet_acts_place(ramet_acts *acts, uint32_t n_k, uint32_t n_cols, const float *x, void *memory);

/* out[c * out_stride + r] = dot(row r of the panel, column col + c) for all 16 rows and all c < n_cols.
 *
 * Int8: a weight is step * scale * q + offset, with an integer scale per run of 16 (Q2_K, Q3_K, Q6_K; 1 for the others) and
 * step, offset per run of 32 (offset of Q2_K: per 16), all as dequantisation has them:
 *   step: d; d * (float)scale for Q4_K, Q5_K     offset: m of Q4_1, Q5_1; -(dmin * (float)min) of Q2_K, Q4_K, Q5_K; else none
 * Per output, blocks of 32 ascending, acc starts at +0; isum = sum of scale * q * (q of x), wsum = sum of scale * q, exact:
 *   acc = fmaf(step * d, (float)isum, acc)
 *   acc = fmaf(step * (float)wsum, z, acc)
 *   acc = fmaf(offset, s32, acc)               or, Q2_K: fmaf(offset, s16, acc) for the first run, then the second
 * F32, F16, BF16: acc = fmaf(w, x, acc), k ascending. Scales stored as binary16 are widened exactly. */
typedef void (*ramet_matmul_fn)(const uint8_t *panel, const ramet_acts *acts, uint32_t col, uint32_t n_cols, float *out,
                                size_t out_stride);

/* Attention of n_q query vectors over one segment of at most 64 positions of one kv head.
 *   q [n_q][head_dim] (already scaled), k [head_dim][k_stride], v [n][v_stride]; query i sees positions [lo[i], hi[i]), hi <= n.
 *   Running state per query: m[i], l[i], o[i * head_dim ..]; start with m = -inf, l = 0, o = 0.
 * For a query with lo < hi:
 *   s[p] = sum over d, ascending, one chain from +0:  fmaf(q[d], k[d][p], s)
 *   M = maximum over visible p of s[p]: 16 interleaved lanes by position (p mod 16; an absent lane is -inf), then the tree,
 *       with max(a, b) = a > b ? a : b; then m' = m > M ? m : M
 *   a = exp(m - m'); w[p] = exp(s[p] - m')
 *   l = fmaf(l, a, L), L = 16 interleaved sums of w by position (absent: +0), then the tree with +
 *   o[d] = o[d] * a, then for visible p ascending o[d] = fmaf(w[p], v[p][d], o[d])
 *   m = m'
 * Positions that are not visible are never read into a sum: they may hold NaN. A query with lo >= hi is left alone. When M is
 * -inf or NaN the result is whatever the formulas give, no special case. */
typedef struct ramet_attend_args {
    const float *q, *k, *v;
    size_t k_stride, v_stride;
    uint32_t n_q, n, head_dim;
    const uint8_t *lo, *hi; /* 0..64 */
    float *m, *l, *o;
    const float *next_k, *next_v; /* the segment that follows, same strides: a kernel may fetch it meanwhile; or NULL */
} ramet_attend_args;

typedef struct ramet_kernels {
    const char *name; /* "c", "avx2", "avx512", "neon" */

    void (*quantize)(ramet_acts *acts, uint32_t col, const float *x); /* one column */
    ramet_matmul_fn matmul[RAMET_DTYPE_COUNT];                        /* NULL where the type is no weight type */
    /* The same for two panels that lie one after the other, 32 rows: out[c * out_stride + r] for r < 32. NULL where that is
     * no faster than one at a time; meant for many columns. */
    ramet_matmul_fn matmul_pair[RAMET_DTYPE_COUNT];

    /* y[i] = x[i] * r * w[i], (x * r) first; r = 1 / sqrt(mean + eps); mean = (16 interleaved chains fmaf(x, x, .) by i
     * mod 16, then tree16) / n. y may be x. */
    void (*rms_norm)(const float *x, const float *w, uint32_t n, float eps, float *y);
    /* Rotates n_pairs pairs of one head: (x[2i], x[2i+1]) when `neighbours`, else (x[i], x[i + n_pairs]).
     * a' = fmaf(a, cos, -(b * sin)), b' = fmaf(a, sin, b * cos), with cos, sin [n_pairs]. */
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t n_pairs, bool neighbours);
    void (*silu_mul)(const float *gate, const float *up, uint32_t n, float *out); /* silu(gate) * up; out may be gate */
    void (*gelu_mul)(const float *gate, const float *up, uint32_t n, float *out);
    void (*add)(float *x, const float *y, uint32_t n);                /* x += y */
    void (*scale)(float *x, float factor, uint32_t n);                /* x *= factor */
    void (*axpy)(float *x, float factor, const float *y, uint32_t n); /* x = fmaf(factor, y, x) */

    void (*attend)(const ramet_attend_args *args);
    /* Merges partial attention states in order: into (m, l, o) the later (m2, l2, o2):
     * M = m > m2 ? m : m2; a = exp(m - M), b = exp(m2 - M); l = fmaf(l, a, l2 * b); o = fmaf(o, a, o2 * b); m = M.
     * A side with l = 0 and m = -inf is empty: the other is taken as it is. */
    void (*attend_merge)(float *m, float *l, float *o, float m2, float l2, const float *o2, uint32_t head_dim);
    /* o[d] = o[d] / l */
    void (*attend_finish)(float *o, float l, uint32_t head_dim);

    /* Tiles of a page as float32; equal to ramet_kv_read_k and ramet_kv_read_v of numerics/kv.h. */
    void (*kv_read_k)(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                      uint32_t n, float *out, size_t stride);
    void (*kv_read_v)(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                      uint32_t n, float *out);
    /* One position's K and V into a page; equal to ramet_kv_write. */
    void (*kv_write)(const ramet_kv_layout *l, uint8_t *page, uint32_t layer, uint32_t slot, const float *k,
                     const float *v);
} ramet_kernels;

/* The fixed tree of all interleaved reductions: t[i] = op(t[i], t[i + 8]) for i < 8, then 4, 2, 1. */

/* Fills *out for this CPU, no faster than `limit` ("c", "avx2", "avx512", "neon"; NULL: no limit). False: a name that
 * is unknown or that this CPU does not have; the table then holds the C functions. */
bool ramet_kernels_init(ramet_kernels *out, const char *limit);
/* Names this CPU can run, slowest first; *out_n of them. */
const char *const *ramet_kernels_available(uint32_t *out_n);
/* For tests of the tests: replaces the block-quantised and float matmuls by versions that add in descending order of k
 * whenever n_cols > 1, a reordering that depends on the batch shape. Every exactness check must notice. The build
 * option RAMET_TEETH does this in ramet_kernels_init. */
void ramet_kernels_reorder(ramet_kernels *table);

#endif
