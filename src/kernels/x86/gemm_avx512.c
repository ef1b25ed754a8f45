/* gemm_avx512.c - two panels at once over many columns. What bounds a product of one panel is loads: each multiplication
 * reads its four activations. Two panels share them. A chunk of both is unpacked once, into words of unsigned quants and a
 * few row vectors per block of 32; the tiles that then pass over it know no type any more. The chain of an output goes on
 * from chunk to chunk through `out`, which rounds nothing. Owns that blocking; the order of the sums is kernels.h's. */
#if defined(__x86_64__)
#include "kernels/x86/gemm.h"
#include "kernels/x86/rows_avx512.h"

enum { PANELS = 2, CHUNK_BLOCKS = 16, CHUNK_FLOATS = 128, MAX_PLAIN = 6, MAX_SCALED = 4, MAX_FLOAT = 12 };

/* One block of 32 of one panel. */
typedef struct rows {
    _Alignas(64) uint8_t words[8][64];
    float step[RAMET_LANES], wstep[RAMET_LANES]; /* wstep = step * (float)wsum */
    float scale[2][RAMET_LANES];                 /* of runs, where there are such */
    float offset[2][RAMET_LANES];                /* per block, or of runs: Q2_K */
} rows;

/* What tiles read: the chunk, its activations from block (or element) `at` of the first column, and the outputs. */
typedef struct tile {
    rows w[CHUNK_BLOCKS][PANELS];
    _Alignas(64) float floats[CHUNK_FLOATS][PANELS][RAMET_LANES];
    const ramet_acts *acts;
    size_t at;
    uint32_t n; /* blocks, or floats */
    float *out;
    size_t out_stride;
    int32_t start[MAX_PLAIN][2 * CHUNK_BLOCKS]; /* of integer sums: what takes the offset of the quants off again */
} tile;

typedef void (*tile_fn)(const tile *t);

/* ---- unpacking */

/* One half of 32; `i` counts halves in the panel's block. */
ALWAYS_INLINE void unpack_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half, rows *to) {
    const uint32_t i = part * halves_per_part(type) + half;
    const __m512 step = load_step(type, block, i);
    __m512 wsum = _mm512_setzero_ps();
    UNROLL
    for (uint32_t run = 0; run < 2; ++run) {
        __m512i sum = _mm512_set1_epi32(-quant_offset(type) * 16);
        UNROLL
        for (uint32_t word = 0; word < 4; ++word) {
            const __m512i w = unpack_word(type, block, part, 2 * half + run, word, 0);
            _mm512_store_si512(to->words[4 * run + word], w);
            sum = _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi8(1));
        }
        __m512 scaled = _mm512_cvtepi32_ps(sum); /* exact, as in sum_block */
        if (has_run_scales(type)) {
            const __m512 scale = _mm512_cvtepi32_ps(load_run_scale(type, block, 2 * i + run));
            _mm512_store_ps(to->scale[run], scale);
            scaled = _mm512_mul_ps(scale, scaled);
        }
        if (type == RAMET_Q2_K) _mm512_store_ps(to->offset[run], load_offset16(block, 2 * i + run));
        wsum = _mm512_add_ps(wsum, scaled);
    }
    _mm512_store_ps(to->step, step);
    _mm512_store_ps(to->wstep, _mm512_mul_ps(step, wsum));
    if (has_offset32(type)) _mm512_store_ps(to->offset[0], load_offset32(type, block, i));
}

ALWAYS_INLINE void unpack_blocks(ramet_dtype type, const uint8_t *block, uint32_t n_blocks, uint32_t panel, tile *t) {
    const uint32_t parts = parts_per_block(type), halves = halves_per_part(type), bytes = block_bytes(type);
    uint32_t to = 0;
    for (uint32_t b = 0; b < n_blocks; ++b, block += bytes)
        for (uint32_t part = 0; part < parts; ++part) {
            UNROLL
            for (uint32_t half = 0; half < halves; ++half) unpack_half(type, block, part, half, &t->w[to++][panel]);
        }
}

/* ---- tiles of int8: PANELS panels times a constant number of columns */

/* sum[p][c] = (float)isum of block b. Scaled runs are put together as floats, exactly: of Q6_K, the largest, each product is
 * at most 128 * 16 * 32 * 127 = 8323072, and two are below 2^24. */
ALWAYS_INLINE void sum_block(bool scaled, bool is_signed, uint32_t columns, const tile *t, uint32_t b, const int8_t *x,
                             __m512 sum[PANELS][MAX_PLAIN]) {
    const uint32_t n_runs = scaled ? 2 : 1;
    const size_t n_k = t->acts->n_k;
    UNROLL
    for (uint32_t run = 0; run < n_runs; ++run) {
        __m512i isum[PANELS][MAX_PLAIN];
        UNROLL
        for (uint32_t c = 0; c < columns; ++c)
            isum[0][c] = isum[1][c] = _mm512_set1_epi32(is_signed ? t->start[c][n_runs * b + run] : 0);
        UNROLL
        for (uint32_t word = 0; word < 8 / n_runs; ++word) {
            const __m512i w0 = _mm512_load_si512(t->w[b][0].words[4 * run + word]);
            const __m512i w1 = _mm512_load_si512(t->w[b][1].words[4 * run + word]);
            UNROLL
            for (uint32_t c = 0; c < columns; ++c) {
                const __m512i v = broadcast_4_bytes(x + c * n_k + 16 * run + 4 * word);
                isum[0][c] = _mm512_dpbusd_epi32(isum[0][c], w0, v);
                isum[1][c] = _mm512_dpbusd_epi32(isum[1][c], w1, v);
            }
        }
        UNROLL
        for (uint32_t p = 0; p < PANELS; ++p) {
            const __m512 scale = _mm512_load_ps(t->w[b][p].scale[run]);
            UNROLL
            for (uint32_t c = 0; c < columns; ++c) {
                const __m512 v = _mm512_cvtepi32_ps(isum[p][c]);
                sum[p][c] = !scaled ? v : run == 0 ? _mm512_mul_ps(scale, v) : _mm512_fmadd_ps(scale, v, sum[p][c]);
            }
        }
    }
}

/* The float chain of block b; activation block `at` is the first column's. */
ALWAYS_INLINE void add_block(bool scaled, bool is_signed, uint32_t columns, const tile *t, uint32_t b, size_t at,
                             __m512 sum[PANELS][MAX_PLAIN], __m512 acc[CHAINS][PANELS][MAX_PLAIN]) {
    const ramet_acts *acts = t->acts;
    const size_t stride = acts->n_k / 32;
    UNROLL
    for (uint32_t p = 0; p < PANELS; ++p) {
        const rows *w = &t->w[b][p];
        const __m512 step = _mm512_load_ps(w->step), wstep = _mm512_load_ps(w->wstep);
        const __m512 first = _mm512_load_ps(w->offset[0]), second = _mm512_load_ps(w->offset[1]);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            const size_t i = at + c * stride;
            const __m512 d = _mm512_mul_ps(step, _mm512_set1_ps(acts->d[i]));
            __m512 *chain = &acc[CHAINS - 1][p][c];
            acc[0][p][c] = _mm512_fmadd_ps(d, sum[p][c], acc[0][p][c]);
            *chain = _mm512_fmadd_ps(wstep, _mm512_set1_ps(acts->z[i]), *chain);
            if (is_signed) continue;
            *chain = _mm512_fmadd_ps(first, _mm512_set1_ps(scaled ? acts->s16[2 * i] : acts->s32[i]), *chain);
            if (scaled) *chain = _mm512_fmadd_ps(second, _mm512_set1_ps(acts->s16[2 * i + 1]), *chain);
        }
    }
}

/* Signed quants came with an offset, and have none of their own. */
ALWAYS_INLINE void multiply_tile(bool scaled, bool is_signed, uint32_t columns, const tile *t) {
    __m512 acc[CHAINS][PANELS][MAX_PLAIN];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        acc[CHAINS - 1][0][c] = acc[CHAINS - 1][1][c] = _mm512_setzero_ps();
        acc[0][0][c] = _mm512_loadu_ps(t->out + c * t->out_stride);
        acc[0][1][c] = _mm512_loadu_ps(t->out + c * t->out_stride + RAMET_LANES);
    }
    for (uint32_t b = 0; b < t->n; ++b) {
        __m512 sum[PANELS][MAX_PLAIN];
        sum_block(scaled, is_signed, columns, t, b, t->acts->q + 32 * (t->at + b), sum);
        add_block(scaled, is_signed, columns, t, b, t->at + b, sum, acc);
    }
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        UNROLL
        for (uint32_t p = 0; p < PANELS; ++p) {
            if (CHAINS > 1) acc[0][p][c] = _mm512_add_ps(acc[0][p][c], acc[CHAINS - 1][p][c]);
            _mm512_storeu_ps(t->out + c * t->out_stride + p * RAMET_LANES, acc[0][p][c]);
        }
    }
}

/* ---- tiles of floats */

ALWAYS_INLINE void multiply_float_tile(uint32_t columns, const tile *t) {
    const size_t n_k = t->acts->n_k;
    const float *x = t->acts->f32 + t->at;
    __m512 acc[PANELS][MAX_FLOAT];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        acc[0][c] = _mm512_loadu_ps(t->out + c * t->out_stride);
        acc[1][c] = _mm512_loadu_ps(t->out + c * t->out_stride + RAMET_LANES);
    }
    for (uint32_t k = 0; k < t->n; ++k) {
        const __m512 w0 = _mm512_load_ps(t->floats[k][0]), w1 = _mm512_load_ps(t->floats[k][1]);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            const __m512 v = _mm512_set1_ps(x[c * n_k + k]);
            acc[0][c] = _mm512_fmadd_ps(w0, v, acc[0][c]);
            acc[1][c] = _mm512_fmadd_ps(w1, v, acc[1][c]);
        }
    }
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        _mm512_storeu_ps(t->out + c * t->out_stride, acc[0][c]);
        _mm512_storeu_ps(t->out + c * t->out_stride + RAMET_LANES, acc[1][c]);
    }
}

/* A table of tiles by their number of columns, each compiled for a constant. */
#define TILE_DEFINE(name, n, call)                                                                                     \
    static void tile_##name##_##n(const tile *t) {                                                                     \
        call;                                                                                                          \
    }
#define TILES_4(name, X)              X(name, 1) X(name, 2) X(name, 3) X(name, 4)
#define TILES_6(name, X)              TILES_4(name, X) X(name, 5) X(name, 6)
#define TILES_12(name, X)             TILES_6(name, X) X(name, 7) X(name, 8) X(name, 9) X(name, 10) X(name, 11) X(name, 12)
#define TILE_NAME(name, n)            tile_##name##_##n,
#define DEFINE_SIGNED(name, n)        TILE_DEFINE(name, n, multiply_tile(false, true, n, t))
#define DEFINE_OFFSET(name, n)        TILE_DEFINE(name, n, multiply_tile(false, false, n, t))
#define DEFINE_SCALED(name, n)        TILE_DEFINE(name, n, multiply_tile(true, true, n, t))
#define DEFINE_SCALED_OFFSET(name, n) TILE_DEFINE(name, n, multiply_tile(true, false, n, t))
#define DEFINE_FLOAT(name, n)         TILE_DEFINE(name, n, multiply_float_tile(n, t))
TILES_6(signed, DEFINE_SIGNED)
TILES_6(offset, DEFINE_OFFSET)
TILES_4(scaled, DEFINE_SCALED)
TILES_4(scaled_offset, DEFINE_SCALED_OFFSET)
TILES_12(float, DEFINE_FLOAT)
static const tile_fn signed_tiles[] = {NULL, TILES_6(signed, TILE_NAME)};
static const tile_fn offset_tiles[] = {NULL, TILES_6(offset, TILE_NAME)};
static const tile_fn scaled_tiles[] = {NULL, TILES_4(scaled, TILE_NAME)};
static const tile_fn scaled_offset_tiles[] = {NULL, TILES_4(scaled_offset, TILE_NAME)};
static const tile_fn float_tiles[] = {NULL, TILES_12(float, TILE_NAME)};

/* ---- all columns */

ALWAYS_INLINE void fill_start(ramet_dtype type, uint32_t columns, tile *t) {
    const uint32_t per_block = has_run_scales(type) ? 2 : 1;
    const int32_t offset = quant_offset(type), *sums = has_run_scales(type) ? t->acts->sum16 : t->acts->sum32;
    if (!offset) return;
    for (uint32_t c = 0; c < columns; ++c) {
        const int32_t *from = sums + per_block * (t->at + c * (t->acts->n_k / 32));
        for (uint32_t i = 0; i < per_block * t->n; ++i) t->start[c][i] = -offset * from[i];
    }
}

ALWAYS_INLINE void multiply_blocks(ramet_dtype type, const uint8_t *panels, const ramet_acts *acts, uint32_t col,
                                   uint32_t n_cols, float *out, size_t out_stride) {
    const uint32_t halves = parts_per_block(type) * halves_per_part(type), n_blocks = acts->n_k / 32;
    const size_t panel_bytes = (size_t)(n_blocks / halves) * block_bytes(type);
    const bool scaled = has_run_scales(type), is_signed = quant_offset(type) != 0;
    const tile_fn *tiles = scaled      ? is_signed ? scaled_tiles : scaled_offset_tiles
                           : is_signed ? signed_tiles
                                       : offset_tiles;
    tile t; /* large: not cleared */
    t.acts = acts, t.out_stride = out_stride;
    clear_out(PANELS * RAMET_LANES, n_cols, out, out_stride);
    for (uint32_t first = 0; first < n_blocks; first += t.n) {
        t.n = halves * even_piece((n_blocks - first) / halves, CHUNK_BLOCKS / halves);
        for (uint32_t p = 0; p < PANELS; ++p)
            unpack_blocks(type, panels + p * panel_bytes + (size_t)(first / halves) * block_bytes(type), t.n / halves,
                          p, &t);
        for (uint32_t c = 0, columns; c < n_cols; c += columns) {
            columns = even_piece(n_cols - c, scaled ? MAX_SCALED : MAX_PLAIN);
            t.at = (size_t)(col + c) * n_blocks + first;
            t.out = out + c * out_stride;
            fill_start(type, columns, &t);
            tiles[columns](&t);
        }
    }
}

ALWAYS_INLINE void multiply_floats(ramet_dtype type, const uint8_t *panels, const ramet_acts *acts, uint32_t col,
                                   uint32_t n_cols, float *out, size_t out_stride) {
    const uint32_t bytes = type == RAMET_F32 ? 64 : 32;
    tile t; /* large: not cleared */
    t.acts = acts, t.out_stride = out_stride;
    clear_out(PANELS * RAMET_LANES, n_cols, out, out_stride);
    for (uint32_t first = 0; first < acts->n_k; first += t.n) {
        t.n = even_piece(acts->n_k - first, CHUNK_FLOATS);
        for (uint32_t p = 0; p < PANELS; ++p)
            for (uint32_t k = 0; k < t.n; ++k)
                _mm512_store_ps(t.floats[k][p],
                                load_weights(type, panels + (p * (size_t)acts->n_k + first + k) * bytes));
        for (uint32_t c = 0, columns; c < n_cols; c += columns) {
            columns = even_piece(n_cols - c, MAX_FLOAT);
            t.at = (size_t)(col + c) * acts->n_k + first;
            t.out = out + c * out_stride;
            float_tiles[columns](&t);
        }
    }
}

GEMM_TABLE

void ramet_gemm_fill_avx512(ramet_kernels *table) {
    fill_gemm(table);
}
#endif
