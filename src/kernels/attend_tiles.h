/* attend_tiles.h - attention over one segment for whatever width lanes.h has. Scores have positions in the lanes, values
 * have dimensions, so that no sum crosses lanes but the two trees. Neighbouring queries go together in tiles and share
 * each load of K and V: scores are taken of all positions that one of the tile sees, values are added for those that all
 * see at once, for the others query by query. The including file defines
 *   TILE_SIZES(X): X(queries), largest first, down to 1; the first is MAX_QUERIES, at most FLANES
 *   widest_tile(queries), in vectors: 2, 4 or 8.
 * CHAINS is 1: with 2, tools/ measures what it would be worth to free the order (two chains per sum where one query has too
 * few sums to hide the latency of an fma, segments twice as long). */
#ifndef RAMET_KERNELS_ATTEND_TILES_H
#define RAMET_KERNELS_ATTEND_TILES_H

#include "base/error.h"

#include <math.h>
#include <string.h>

#ifndef CHAINS
#define CHAINS 1
#endif

enum { SEGMENT = 64 * CHAINS, MAX_VECTORS = 8, LINE = 16 /* floats of a cache line */ };

ALWAYS_INLINE uint32_t chains_of(uint32_t queries, uint32_t vectors) {
    return queries * vectors < 8 ? CHAINS : 1;
}

/* The next segment reaches the L2 cache while this one is worked on: tile t fetches line t of each row. One tile leaves no time
 * for that: it waits for memory already, and fetching ahead slows it down by a tenth. */
ALWAYS_INLINE const float *line_ahead(const ramet_attend_args *args, const float *next, uint32_t i, uint32_t row) {
    const uint32_t line = i / MAX_QUERIES * LINE;
    return next && args->n_q > MAX_QUERIES && line < row ? next + line : NULL;
}

/* s[i][first ..]: scores of `vectors` vectors of positions for `queries` queries from q on. One vector may be partial.
 * ahead: the line to fetch of the next segment's first row, or NULL. */
ALWAYS_INLINE void score_tile(const ramet_attend_args *args, const float *q, uint32_t queries, uint32_t first,
                              uint32_t vectors, const float *ahead, float s[][SEGMENT]) {
    const float *k = args->k + first;
    const uint32_t left = args->n - first;
    const uint32_t chains = chains_of(queries, vectors);
    FVEC acc[CHAINS][MAX_QUERIES][MAX_VECTORS];
    UNROLL
    for (uint32_t i = 0; i < chains * queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) acc[i / queries][i % queries][j] = FSET1(0.0f);
    }
    for (uint32_t d = 0; d < args->head_dim; d += chains) {
        if (ahead) __builtin_prefetch(ahead + d * args->k_stride, 0, 2);
        UNROLL
        for (uint32_t c = 0; c < chains; ++c, k += args->k_stride) {
            FVEC row[MAX_VECTORS];
            UNROLL
            for (uint32_t j = 0; j < vectors; ++j) row[j] = vectors == 1 ? FLOAD_SOME(k, left) : FLOAD(k + FLANES * j);
            UNROLL
            for (uint32_t i = 0; i < queries; ++i) {
                const FVEC x = FSET1(q[i * args->head_dim + d + c]);
                UNROLL
                for (uint32_t j = 0; j < vectors; ++j) acc[c][i][j] = FFMA(x, row[j], acc[c][i][j]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j)
            FSTORE(s[i] + first + FLANES * j, chains == 1 ? acc[0][i][j] : FADD(acc[0][i][j], acc[CHAINS - 1][i][j]));
    }
}

/* Scores of positions [lo, hi), and of those that share a vector with them. */
ALWAYS_INLINE void score_positions(const ramet_attend_args *args, const float *q, uint32_t queries, uint32_t lo,
                                   uint32_t hi, const float *ahead, float s[][SEGMENT]) {
    const uint32_t wide = widest_tile(queries), narrow = wide / 2;
    uint32_t p = lo / FLANES * FLANES;
    const uint32_t end = hi + FLANES - 1 < args->n ? hi + FLANES - 1 : args->n;
    for (; p + wide * FLANES <= end; p += wide * FLANES)
        score_tile(args, q, queries, p, wide, p == 0 ? ahead : NULL, s);
    for (; p + narrow * FLANES <= end; p += narrow * FLANES) score_tile(args, q, queries, p, narrow, NULL, s);
    for (; p < hi; p += FLANES) score_tile(args, q, queries, p, 1, NULL, s);
}

/* The largest visible score. `whole`: every position is visible. */
ALWAYS_INLINE float max_score(const float *s, uint32_t lo, uint32_t hi, bool whole) {
    FVEC max[GROUPS];
    UNROLL
    for (uint32_t j = 0; j < GROUPS; ++j) max[j] = FSET1(-INFINITY);
    for (uint32_t p = lo / 16 * 16; p < hi; p += 16) {
        UNROLL
        for (uint32_t j = 0; j < GROUPS; ++j) {
            const uint32_t first = p + FLANES * j;
            const FVEC larger = FMAX(max[j], FLOAD(s + first));
            max[j] = whole ? larger : FSELECT(visible_lanes(first, lo, hi), larger, max[j]);
        }
    }
    return tree16_max(max);
}

/* Visible scores become weights exp(s - m); returns their sum. Absent lanes add +0 to a sum that is never -0. */
ALWAYS_INLINE float weigh_positions(float *s, uint32_t lo, uint32_t hi, float m, bool whole) {
    FVEC sum[GROUPS];
    UNROLL
    for (uint32_t j = 0; j < GROUPS; ++j) sum[j] = FSET1(0.0f);
    for (uint32_t p = lo / 16 * 16; p < hi; p += 16) {
        UNROLL
        for (uint32_t j = 0; j < GROUPS; ++j) {
            const uint32_t first = p + FLANES * j;
            FVEC w = exp_lanes(FSUB(FLOAD(s + first), FSET1(m)));
            if (!whole) w = FSELECT(visible_lanes(first, lo, hi), w, FSET1(0.0f));
            FSTORE(s + first, w);
            sum[j] = FADD(sum[j], w);
        }
    }
    return tree16_add(sum);
}

/* Scores of queries i .. become weights; their m and l move on. a: the factor of what came before. */
ALWAYS_INLINE void weigh_queries(const ramet_attend_args *args, uint32_t i, uint32_t queries, bool whole,
                                 float s[][SEGMENT], float a[FLANES]) {
    const uint8_t *lo = args->lo + i, *hi = args->hi + i;
    float *m = args->m + i, *l = args->l + i, next[FLANES] = {0}, sum[FLANES] = {0};
    for (uint32_t j = 0; j < queries; ++j)
        next[j] = ramet_max(m[j], whole ? max_score(s[j], 0, SEGMENT, true) : max_score(s[j], lo[j], hi[j], false));
    for (uint32_t j = 0; j < queries; ++j)
        sum[j] = whole ? weigh_positions(s[j], 0, SEGMENT, next[j], true)
                       : weigh_positions(s[j], lo[j], hi[j], next[j], false);
    const FVEC factor = exp_lanes(FSUB(FLOAD_SOME(m, queries), FLOAD(next)));
    FSTORE(a, factor);
    FSTORE_SOME(l, queries, FFMA(FLOAD_SOME(l, queries), factor, FLOAD(sum)));
    FSTORE_SOME(m, queries, FLOAD(next));
}

/* o[i][d ..] = o * a[i], then + w * v over positions [lo, hi), for `vectors` vectors of dimensions. One may be partial. */
ALWAYS_INLINE void value_tile(const ramet_attend_args *args, float *o, const float *a, uint32_t queries, uint32_t d,
                              uint32_t vectors, uint32_t lo, uint32_t hi, const float *ahead, float s[][SEGMENT]) {
    const uint32_t left = args->head_dim - d;
    const uint32_t chains = chains_of(queries, vectors);
    FVEC acc[CHAINS][MAX_QUERIES][MAX_VECTORS];
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) {
            const float *at = o + i * args->head_dim + d + FLANES * j;
            acc[CHAINS - 1][i][j] = FSET1(0.0f);
            acc[0][i][j] = FMUL(vectors == 1 ? FLOAD_SOME(at, left) : FLOAD(at), FSET1(a[i]));
        }
    }
    const float *v = args->v + lo * args->v_stride + d;
    for (uint32_t p = lo; p < hi; p += chains) {
        if (ahead) __builtin_prefetch(ahead + p * args->v_stride, 0, 2);
        UNROLL
        for (uint32_t c = 0; c < chains; ++c, v += args->v_stride) {
            FVEC row[MAX_VECTORS];
            UNROLL
            for (uint32_t j = 0; j < vectors; ++j) row[j] = vectors == 1 ? FLOAD_SOME(v, left) : FLOAD(v + FLANES * j);
            UNROLL
            for (uint32_t i = 0; i < queries; ++i) {
                const FVEC w = FSET1(s[i][p + c]);
                UNROLL
                for (uint32_t j = 0; j < vectors; ++j) acc[c][i][j] = FFMA(w, row[j], acc[c][i][j]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < queries; ++i) {
        UNROLL
        for (uint32_t j = 0; j < vectors; ++j) {
            float *at = o + i * args->head_dim + d + FLANES * j;
            const FVEC sum = chains == 1 ? acc[0][i][j] : FADD(acc[0][i][j], acc[CHAINS - 1][i][j]);
            if (vectors == 1)
                FSTORE_SOME(at, left, sum);
            else
                FSTORE(at, sum);
        }
    }
}

ALWAYS_INLINE void add_values(const ramet_attend_args *args, float *o, const float *a, uint32_t queries, uint32_t lo,
                              uint32_t hi, const float *ahead, float s[][SEGMENT]) {
    const uint32_t wide = widest_tile(queries), narrow = wide / 2, head_dim = args->head_dim;
    uint32_t d = 0;
    for (; d + wide * FLANES <= head_dim; d += wide * FLANES)
        value_tile(args, o, a, queries, d, wide, lo, hi, d == 0 ? ahead : NULL, s);
    for (; d + narrow * FLANES <= head_dim; d += narrow * FLANES)
        value_tile(args, o, a, queries, d, narrow, lo, hi, NULL, s);
    for (; d < head_dim; d += FLANES) value_tile(args, o, a, queries, d, 1, lo, hi, NULL, s);
}

/* The same for one query of a tile over positions that the others may not see; afterwards its factor is spent. */
static void add_values_alone(const ramet_attend_args *args, float *o, float *a, uint32_t lo, uint32_t hi,
                             float s[][SEGMENT]) {
    if (lo >= hi) return;
    add_values(args, o, a, 1, lo, hi, NULL, s);
    *a = 1.0f;
}

/* A tile: queries i .., each of which sees something. */
ALWAYS_INLINE void attend_queries(const ramet_attend_args *args, uint32_t i, uint32_t queries) {
    const uint8_t *lo = args->lo + i, *hi = args->hi + i;
    uint32_t first = SEGMENT, end = 0, all_lo = 0, all_hi = SEGMENT; /* what any sees, what all see */
    for (uint32_t j = 0; j < queries; ++j) {
        first = lo[j] < first ? lo[j] : first, all_lo = lo[j] > all_lo ? lo[j] : all_lo;
        end = hi[j] > end ? hi[j] : end, all_hi = hi[j] < all_hi ? hi[j] : all_hi;
    }
    if (all_lo >= all_hi) all_lo = all_hi = end;

    const size_t head_dim = args->head_dim;
    float s[MAX_QUERIES][SEGMENT], a[FLANES], *o = args->o + i * head_dim;
    score_positions(args, args->q + i * head_dim, queries, first, end, line_ahead(args, args->next_k, i, SEGMENT), s);
    if (all_lo == 0 && all_hi == SEGMENT)
        weigh_queries(args, i, queries, true, s, a);
    else
        weigh_queries(args, i, queries, false, s, a);
    for (uint32_t j = 0; first < all_lo && j < queries; ++j)
        add_values_alone(args, o + j * head_dim, &a[j], lo[j], hi[j] < all_lo ? hi[j] : all_lo, s + j);
    add_values(args, o, a, queries, all_lo, all_hi, line_ahead(args, args->next_v, i, args->head_dim), s);
    for (uint32_t j = 0; all_hi < end && j < queries; ++j) {
        a[j] = 1.0f;
        add_values_alone(args, o + j * head_dim, &a[j], all_hi, hi[j], s + j);
    }
}

/* Queries from i on that see something, up to MAX_QUERIES. */
static uint32_t count_seeing(const ramet_attend_args *args, uint32_t i) {
    uint32_t n = 0;
    while (n < MAX_QUERIES && i + n < args->n_q && args->lo[i + n] < args->hi[i + n]) ++n;
    return n;
}

static void attend_segment(const ramet_attend_args *args) {
    RAMET_ASSERT(args->n <= SEGMENT, "segment of %u positions", args->n);
    for (uint32_t i = 0; i < args->n_q;) {
        const uint32_t n = count_seeing(args, i);
#define ATTEND_TILE(size)                                                                                              \
    if (n >= size) {                                                                                                   \
        attend_queries(args, i, size);                                                                                 \
        i += size;                                                                                                     \
        continue;                                                                                                      \
    }
        TILE_SIZES(ATTEND_TILE)
#undef ATTEND_TILE
        ++i; /* sees nothing */
    }
}

static void fill_attend(ramet_kernels *table) {
    table->attend = attend_segment;
}

#endif
