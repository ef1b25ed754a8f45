/* gemm_avx2.c - two panels over many columns, one after the other. A chunk of a panel is unpacked once, into words of unsigned
 * quants and a few row vectors per block of 32; tiles of 16 rows by up to 4 columns then pass over it. Types whose unpacked
 * blocks are alike share their tiles. The chain of an output goes on from chunk to chunk through `out`, which rounds nothing.
 * Owns that blocking; the order of the sums is kernels.h's. */
#if defined(__x86_64__)
#include "kernels/x86/gemm.h"
#include "kernels/x86/rows_avx2.h"

enum { PANELS = 2, CHUNK_BLOCKS = 16, CHUNK_FLOATS = 128, MAX_COLUMNS = 4, MAX_FLOAT = 6 };

/* One block of 32 of 16 rows; arrays of rows are two vectors. */
typedef struct rows {
    _Alignas(32) uint8_t words[2][8][2][32];     /* the second eight are the upper nibbles of Q8_0 */
    float step[RAMET_LANES], wstep[RAMET_LANES]; /* wstep = step * (float)wsum */
    float offset[2][RAMET_LANES];                /* per block, or of runs: Q2_K */
    int32_t scale[2][RAMET_LANES];               /* of runs, where there are such: the int16 twice */
    int32_t excess[RAMET_LANES];                 /* quant_offset times these scales, an int16 for each run */
} rows;

/* What tiles read: the chunk, its activations from block (or element) `at` of the first column, and the outputs. */
typedef struct tile {
    rows w[CHUNK_BLOCKS];
    _Alignas(32) float floats[CHUNK_FLOATS][RAMET_LANES];
    const ramet_acts *acts;
    size_t at;
    uint32_t n; /* blocks, or floats */
    float *out;
    size_t out_stride;
} tile;

typedef void (*tile_fn)(const tile *t);

/* ---- unpacking */

ALWAYS_INLINE __m256i *as_words(void *p) {
    return (__m256i *)p;
}

ALWAYS_INLINE void store_word(ramet_dtype type, __m256i w, uint32_t word, uint32_t r, rows *to) {
    if (type == RAMET_Q8_0) *as_words(to->words[1][word][r]) = move_bits(w, 4, 0, 0x0f);
    *as_words(to->words[0][word][r]) = type == RAMET_Q8_0 ? move_bits(w, 0, 0, 0x0f) : w;
}

/* One run of 8 rows; returns the sum of its quants. */
ALWAYS_INLINE __m256i unpack_run(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half, uint32_t run,
                                 uint32_t r, rows *to) {
    __m256i sum = _mm256_setzero_si256();
    UNROLL
    for (uint32_t word = 0; word < 4; ++word) {
        const __m256i w = unpack_word(type, block, part, 2 * half + run, word, 32 * r);
        store_word(type, w, 4 * run + word, r, to);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, _mm256_set1_epi8(1)));
    }
    return _mm256_sub_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), _mm256_set1_epi32(16 * quant_offset(type)));
}

ALWAYS_INLINE __m256i pair_up(__m256i low, __m256i high) {
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(high, 16));
}

/* One half of 32, of the 8 rows from 8 * r; `i` counts halves in the panel's block. */
ALWAYS_INLINE void unpack_half(ramet_dtype type, const uint8_t *block, uint32_t part, uint32_t half, uint32_t r,
                               rows *to) {
    const uint32_t i = part * halves_per_part(type) + half, row = 8 * r;
    const __m256 step = load_step(type, block, i, row);
    __m256i wsum = _mm256_setzero_si256(), scale[2] = {wsum, wsum};
    UNROLL
    for (uint32_t run = 0; run < 2; ++run) {
        __m256i sum = unpack_run(type, block, part, half, run, r, to);
        if (has_run_scales(type)) {
            scale[run] = load_run_scale(type, block, 2 * i + run, row);
            *as_words(to->scale[run] + row) = pair_up(scale[run], scale[run]);
            sum = _mm256_mullo_epi32(scale[run], sum);
        }
        if (type == RAMET_Q2_K) _mm256_store_ps(to->offset[run] + row, load_offset16(block, 2 * i + run, row));
        wsum = _mm256_add_epi32(wsum, sum);
    }
    if (has_run_scales(type) && quant_offset(type)) {
        const __m256i offset = _mm256_set1_epi32(quant_offset(type));
        *as_words(to->excess + row) =
            pair_up(_mm256_mullo_epi32(offset, scale[0]), _mm256_mullo_epi32(offset, scale[1]));
    }
    _mm256_store_ps(to->step + row, step);
    _mm256_store_ps(to->wstep + row, _mm256_mul_ps(step, _mm256_cvtepi32_ps(wsum)));
    if (has_offset32(type)) _mm256_store_ps(to->offset[0] + row, load_offset32(type, block, i, row));
}

ALWAYS_INLINE void unpack_blocks(ramet_dtype type, const uint8_t *block, uint32_t n_blocks, tile *t) {
    const uint32_t parts = parts_per_block(type), halves = halves_per_part(type), bytes = block_bytes(type);
    rows *to = t->w;
    for (uint32_t b = 0; b < n_blocks; ++b, block += bytes)
        for (uint32_t part = 0; part < parts; ++part) {
            UNROLL
            for (uint32_t half = 0; half < halves; ++half, ++to) {
                unpack_half(type, block, part, half, 0, to);
                unpack_half(type, block, part, half, 1, to);
            }
        }
}

/* ---- tiles of int8: 16 rows times a constant number of columns */

/* How many words of a block go to one int16 sum: see rows_avx2.h. */
ALWAYS_INLINE uint32_t words_per_sum(ramet_dtype type) {
    return type == RAMET_Q6_K ? 2 : type == RAMET_Q4_0 || type == RAMET_Q4_1 || type == RAMET_Q8_0 ? 8 : 4;
}

/* dot[r][c] = the int16 sums of words [first, first + n) of eight. */
ALWAYS_INLINE void sum_words(const uint8_t words[8][2][32], uint32_t first, uint32_t n, uint32_t columns,
                             const int8_t *x, size_t n_k, __m256i dot[2][MAX_COLUMNS]) {
    UNROLL
    for (uint32_t word = first; word < first + n; ++word) {
        const __m256i w0 = VLOAD(words[word][0]), w1 = VLOAD(words[word][1]);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            const __m256i v = broadcast_4_bytes(x + c * n_k + 4 * word);
            const __m256i p0 = _mm256_maddubs_epi16(w0, v), p1 = _mm256_maddubs_epi16(w1, v);
            dot[0][c] = word == first ? p0 : _mm256_add_epi16(dot[0][c], p0);
            dot[1][c] = word == first ? p1 : _mm256_add_epi16(dot[1][c], p1);
        }
    }
}

/* What the offset of the quants adds to the integer sum of 8 rows. */
ALWAYS_INLINE __m256i excess_of(ramet_dtype type, const rows *w, uint32_t r, const ramet_acts *acts, size_t at) {
    if (!has_run_scales(type)) return _mm256_set1_epi32(quant_offset(type) * acts->sum32[at]);
    const uint32_t pair = (uint32_t)acts->sum16[2 * at + 1] << 16 | ((uint32_t)acts->sum16[2 * at] & 0xffff);
    return _mm256_madd_epi16(VLOAD(w->excess + 8 * r), _mm256_set1_epi32((int32_t)pair));
}

/* isum of block b of the chunk; `at` is the first column's block of activations. */
ALWAYS_INLINE void sum_block(ramet_dtype type, uint32_t columns, const tile *t, uint32_t b, size_t at,
                             __m256i isum[2][MAX_COLUMNS]) {
    const rows *w = &t->w[b];
    const uint32_t n_nibbles = type == RAMET_Q8_0 ? 2 : 1, n_words = words_per_sum(type);
    const size_t n_k = t->acts->n_k;
    UNROLL
    for (uint32_t nibble = 0; nibble < n_nibbles; ++nibble) {
        UNROLL
        for (uint32_t first = 0; first < 8; first += n_words) {
            __m256i dot[2][MAX_COLUMNS];
            sum_words(w->words[nibble], first, n_words, columns, t->acts->q + 32 * at, n_k, dot);
            UNROLL
            for (uint32_t r = 0; r < 2; ++r) {
                const __m256i factor =
                    has_run_scales(type) ? VLOAD(w->scale[first / 4] + 8 * r) : _mm256_set1_epi16(nibble ? 16 : 1);
                UNROLL
                for (uint32_t c = 0; c < columns; ++c) {
                    const __m256i sum = _mm256_madd_epi16(dot[r][c], factor);
                    isum[r][c] = nibble + first == 0 ? sum : _mm256_add_epi32(isum[r][c], sum);
                }
            }
        }
    }
    if (!quant_offset(type)) return;
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        UNROLL
        for (uint32_t r = 0; r < 2; ++r)
            isum[r][c] = _mm256_sub_epi32(isum[r][c], excess_of(type, w, r, t->acts, at + c * (n_k / 32)));
    }
}

/* The float chain of block b. */
ALWAYS_INLINE void add_block(ramet_dtype type, uint32_t columns, const tile *t, uint32_t b, size_t at,
                             __m256i isum[2][MAX_COLUMNS], __m256 acc[2][MAX_COLUMNS]) {
    const rows *w = &t->w[b];
    const ramet_acts *acts = t->acts;
    UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
        const __m256 step = _mm256_load_ps(w->step + 8 * r), wstep = _mm256_load_ps(w->wstep + 8 * r);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            const size_t i = at + c * (acts->n_k / 32);
            const __m256 d = _mm256_mul_ps(step, _mm256_set1_ps(acts->d[i]));
            acc[r][c] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum[r][c]), acc[r][c]);
            acc[r][c] = _mm256_fmadd_ps(wstep, _mm256_set1_ps(acts->z[i]), acc[r][c]);
            if (has_offset32(type))
                acc[r][c] =
                    _mm256_fmadd_ps(_mm256_load_ps(w->offset[0] + 8 * r), _mm256_set1_ps(acts->s32[i]), acc[r][c]);
            if (type != RAMET_Q2_K) continue;
            acc[r][c] =
                _mm256_fmadd_ps(_mm256_load_ps(w->offset[0] + 8 * r), _mm256_set1_ps(acts->s16[2 * i]), acc[r][c]);
            acc[r][c] =
                _mm256_fmadd_ps(_mm256_load_ps(w->offset[1] + 8 * r), _mm256_set1_ps(acts->s16[2 * i + 1]), acc[r][c]);
        }
    }
}

ALWAYS_INLINE void multiply_tile(ramet_dtype type, uint32_t columns, const tile *t) {
    __m256 acc[2][MAX_COLUMNS];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        acc[0][c] = _mm256_loadu_ps(t->out + c * t->out_stride);
        acc[1][c] = _mm256_loadu_ps(t->out + c * t->out_stride + 8);
    }
    for (uint32_t b = 0; b < t->n; ++b) {
        __m256i isum[2][MAX_COLUMNS];
        sum_block(type, columns, t, b, t->at + b, isum);
        add_block(type, columns, t, b, t->at + b, isum, acc);
    }
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        _mm256_storeu_ps(t->out + c * t->out_stride, acc[0][c]);
        _mm256_storeu_ps(t->out + c * t->out_stride + 8, acc[1][c]);
    }
}

/* ---- tiles of floats */

ALWAYS_INLINE void multiply_float_tile(uint32_t columns, const tile *t) {
    const size_t n_k = t->acts->n_k;
    const float *x = t->acts->f32 + t->at;
    __m256 acc[2][MAX_FLOAT];
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        acc[0][c] = _mm256_loadu_ps(t->out + c * t->out_stride);
        acc[1][c] = _mm256_loadu_ps(t->out + c * t->out_stride + 8);
    }
    for (uint32_t k = 0; k < t->n; ++k) {
        const __m256 w0 = _mm256_load_ps(t->floats[k]), w1 = _mm256_load_ps(t->floats[k] + 8);
        UNROLL
        for (uint32_t c = 0; c < columns; ++c) {
            const __m256 v = _mm256_set1_ps(x[c * n_k + k]);
            acc[0][c] = _mm256_fmadd_ps(w0, v, acc[0][c]);
            acc[1][c] = _mm256_fmadd_ps(w1, v, acc[1][c]);
        }
    }
    UNROLL
    for (uint32_t c = 0; c < columns; ++c) {
        _mm256_storeu_ps(t->out + c * t->out_stride, acc[0][c]);
        _mm256_storeu_ps(t->out + c * t->out_stride + 8, acc[1][c]);
    }
}

/* Tiles by their number of columns, each compiled for a constant, per type; Q4_K's are Q4_1's and Q5_K's are Q5_1's. */
#define DEFINE_TILE(name, n)                                                                                           \
    static void tile_##name##_##n(const tile *t) {                                                                     \
        multiply_tile(RAMET_##name, n, t);                                                                             \
    }
#define DEFINE_FLOAT(name, n)                                                                                          \
    static void tile_##name##_##n(const tile *t) {                                                                     \
        multiply_float_tile(n, t);                                                                                     \
    }
#define TILES_4(name, X)   X(name, 1) X(name, 2) X(name, 3) X(name, 4)
#define TILES_6(name, X)   TILES_4(name, X) X(name, 5) X(name, 6)
#define TILE_NAME(name, n) tile_##name##_##n,
#define TILE_TYPES(X)      X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) X(Q6_K)
#define DEFINE_TILES(name) TILES_4(name, DEFINE_TILE)
#define TILE_ROW(name)     [RAMET_##name] = {NULL, TILES_4(name, TILE_NAME)},
TILE_TYPES(DEFINE_TILES)
TILES_6(float, DEFINE_FLOAT)
static const tile_fn block_tiles[RAMET_DTYPE_COUNT][MAX_COLUMNS + 1] = {TILE_TYPES(TILE_ROW)};
static const tile_fn float_tiles[] = {NULL, TILES_6(float, TILE_NAME)};

ALWAYS_INLINE ramet_dtype tile_type(ramet_dtype type) {
    return type == RAMET_Q4_K ? RAMET_Q4_1 : type == RAMET_Q5_K ? RAMET_Q5_1 : type;
}

/* ---- all columns */

ALWAYS_INLINE void multiply_block_panel(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                        uint32_t n_cols, float *out, size_t out_stride) {
    const uint32_t halves = parts_per_block(type) * halves_per_part(type), n_blocks = acts->n_k / 32;
    tile t; /* large: not cleared */
    t.acts = acts, t.out_stride = out_stride;
    for (uint32_t first = 0; first < n_blocks; first += t.n) {
        t.n = halves * even_piece((n_blocks - first) / halves, CHUNK_BLOCKS / halves);
        unpack_blocks(type, panel + (size_t)(first / halves) * block_bytes(type), t.n / halves, &t);
        for (uint32_t c = 0, columns; c < n_cols; c += columns) {
            columns = even_piece(n_cols - c, MAX_COLUMNS);
            t.at = (size_t)(col + c) * n_blocks + first;
            t.out = out + c * out_stride;
            block_tiles[tile_type(type)][columns](&t);
        }
    }
}

ALWAYS_INLINE void multiply_float_panel(ramet_dtype type, const uint8_t *panel, const ramet_acts *acts, uint32_t col,
                                        uint32_t n_cols, float *out, size_t out_stride) {
    const uint32_t bytes = type == RAMET_F32 ? 64 : 32;
    tile t; /* large: not cleared */
    t.acts = acts, t.out_stride = out_stride;
    for (uint32_t first = 0; first < acts->n_k; first += t.n) {
        t.n = even_piece(acts->n_k - first, CHUNK_FLOATS);
        for (uint32_t k = 0; k < t.n; ++k) {
            _mm256_store_ps(t.floats[k], load_8_weights(type, panel + (size_t)(first + k) * bytes, 0));
            _mm256_store_ps(t.floats[k] + 8, load_8_weights(type, panel + (size_t)(first + k) * bytes, 1));
        }
        for (uint32_t c = 0, columns; c < n_cols; c += columns) {
            columns = even_piece(n_cols - c, MAX_FLOAT);
            t.at = (size_t)(col + c) * acts->n_k + first;
            t.out = out + c * out_stride;
            float_tiles[columns](&t);
        }
    }
}

ALWAYS_INLINE void multiply_blocks(ramet_dtype type, const uint8_t *panels, const ramet_acts *acts, uint32_t col,
                                   uint32_t n_cols, float *out, size_t out_stride) {
    const size_t panel_bytes = (size_t)ramet_panel_bytes(type, acts->n_k);
    clear_out(PANELS * RAMET_LANES, n_cols, out, out_stride);
    for (uint32_t p = 0; p < PANELS; ++p)
        multiply_block_panel(type, panels + p * panel_bytes, acts, col, n_cols, out + p * RAMET_LANES, out_stride);
}

ALWAYS_INLINE void multiply_floats(ramet_dtype type, const uint8_t *panels, const ramet_acts *acts, uint32_t col,
                                   uint32_t n_cols, float *out, size_t out_stride) {
    const size_t panel_bytes = (size_t)ramet_panel_bytes(type, acts->n_k);
    clear_out(PANELS * RAMET_LANES, n_cols, out, out_stride);
    for (uint32_t p = 0; p < PANELS; ++p)
        multiply_float_panel(type, panels + p * panel_bytes, acts, col, n_cols, out + p * RAMET_LANES, out_stride);
}

GEMM_TABLE

void ramet_gemm_fill_avx2(ramet_kernels *table) {
    fill_gemm(table);
}
#endif
