/* attend_tiles.h - attention over one segment for whatever width the including file chose. Scores have positions in the
 * lanes, values have dimensions, so that no sum crosses lanes but the two trees. Neighbouring queries that see the same
 * positions (the heads of a group) go together and share each load of K and V. The including file defines
 *   FVEC, FLANES, FLOAD(p), FLOAD_SOME(p, n), FSTORE(p, v), FSTORE_SOME(p, n, v), FSET1(x), FMUL, FFMA(a, b, c),
 *   MAX_QUERIES that go together (a power of two), and widest_tile(queries), in vectors;
 *   weigh_positions(s, lo, hi, &m, &l): scores become weights exp(s - m'), 0 where not visible in the vectors that have a
 *   visible lane; m and l move on. Returns a, the factor of what came before. */
#ifndef RAMET_KERNELS_ATTEND_TILES_H
#define RAMET_KERNELS_ATTEND_TILES_H

#include "base/error.h"
#include "kernels/inline.h"
#include "kernels/tables.h"

enum { SEGMENT = 64, MAX_VECTORS = 8 };

/* s[i][first ..]: scores of `vectors` vectors of positions for `queries` queries from q on. One vector may be partial. */
ALWAYS_INLINE void score_tile(const ramet_attend_args *args, const float *q, uint32_t queries, uint32_t first,
                              uint32_t vectors, float s[][SEGMENT]) {
    const float *k = args->k + first;
    const uint32_t left = args->n - first;
    FVEC acc[MAX_QUERIES][MAX_VECTORS];
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) acc[i][j] = FSET1(0.0f);
    }
    for (uint32_t d = 0; d < args->head_dim; ++d, k += args->k_stride) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) {
            const FVEC row = vectors == 1 ? FLOAD_SOME(k, left) : FLOAD(k + FLANES * j);
            UNROLL
            for (uint32_t i = 0; i < queries; ++i) acc[i][j] = FFMA(FSET1(q[i * args->head_dim + d]), row, acc[i][j]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) FSTORE(s[i] + first + FLANES * j, acc[i][j]);
    }
}

ALWAYS_INLINE void score_positions(const ramet_attend_args *args, const float *q, uint32_t queries,
                                   float s[][SEGMENT]) {
    const uint32_t wide = widest_tile(queries), narrow = wide / 2;
    uint32_t p = 0;
    for (; p + wide * FLANES <= args->n; p += wide * FLANES) score_tile(args, q, queries, p, wide, s);
    for (; p + narrow * FLANES <= args->n; p += narrow * FLANES) score_tile(args, q, queries, p, narrow, s);
    for (; p < args->n; p += FLANES) score_tile(args, q, queries, p, 1, s);
}

/* o[i][d ..] = o * a[i], then + w * v over positions [lo, hi), for `vectors` vectors of dimensions. One may be partial. */
ALWAYS_INLINE void value_tile(const ramet_attend_args *args, float *o, const float *a, uint32_t queries, uint32_t d,
                              uint32_t vectors, uint32_t lo, uint32_t hi, float s[][SEGMENT]) {
    const uint32_t left = args->head_dim - d;
    FVEC acc[MAX_QUERIES][MAX_VECTORS];
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) {
            const float *at = o + i * args->head_dim + d + FLANES * j;
            acc[i][j] = FMUL(vectors == 1 ? FLOAD_SOME(at, left) : FLOAD(at), FSET1(a[i]));
        }
    }
    for (uint32_t p = lo; p < hi; ++p) {
        const float *v = args->v + p * args->v_stride + d;
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) {
            const FVEC row = vectors == 1 ? FLOAD_SOME(v, left) : FLOAD(v + FLANES * j);
            UNROLL
            for (uint32_t i = 0; i < queries; ++i) acc[i][j] = FFMA(FSET1(s[i][p]), row, acc[i][j]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) {
            float *at = o + i * args->head_dim + d + FLANES * j;
            if (vectors == 1)
                FSTORE_SOME(at, left, acc[i][j]);
            else
                FSTORE(at, acc[i][j]);
        }
    }
}

/* `queries` queries from i on, which see the same positions. */
ALWAYS_INLINE void attend_queries(const ramet_attend_args *args, uint32_t i, uint32_t queries) {
    const uint32_t lo = args->lo[i], hi = args->hi[i], head_dim = args->head_dim;
    const uint32_t wide = widest_tile(queries), narrow = wide / 2;
    float s[MAX_QUERIES][SEGMENT], a[MAX_QUERIES], *o = args->o + (size_t)i * head_dim;
    if (lo >= hi) return;
    score_positions(args, args->q + (size_t)i * head_dim, queries, s);
    for (uint32_t j = 0; j < queries; ++j) a[j] = weigh_positions(s[j], lo, hi, &args->m[i + j], &args->l[i + j]);
    uint32_t d = 0;
    for (; d + wide * FLANES <= head_dim; d += wide * FLANES) value_tile(args, o, a, queries, d, wide, lo, hi, s);
    for (; d + narrow * FLANES <= head_dim; d += narrow * FLANES) value_tile(args, o, a, queries, d, narrow, lo, hi, s);
    for (; d < head_dim; d += FLANES) value_tile(args, o, a, queries, d, 1, lo, hi, s);
}

/* Queries from i on that see what query i sees, up to MAX_QUERIES. */
static uint32_t count_alike(const ramet_attend_args *args, uint32_t i) {
    uint32_t n = 1;
    while (n < MAX_QUERIES && i + n < args->n_q && args->lo[i + n] == args->lo[i] && args->hi[i + n] == args->hi[i])
        ++n;
    return n;
}

static void attend_segment(const ramet_attend_args *args) {
    RAMET_ASSERT(args->n <= SEGMENT, "segment of %u positions", args->n);
    for (uint32_t i = 0; i < args->n_q;) {
        const uint32_t alike = count_alike(args, i);
        if (alike == MAX_QUERIES) {
            attend_queries(args, i, MAX_QUERIES);
            i += MAX_QUERIES;
        } else if (alike >= 2) {
            attend_queries(args, i, 2);
            i += 2;
        } else {
            attend_queries(args, i, 1);
            i += 1;
        }
    }
}

#endif
