/* vector_avx2.c - norm, rotation, gates and the int8 activations, 8 lanes wide. What the compiler makes of the C add,
 * scale and finish is as fast. */
#if defined(__x86_64__)
#include "kernels/tables.h"
#include "kernels/x86/lanes_avx2.h"
#include "numerics/math.h"

#include <float.h>
#include <math.h>

static void normalize_rms(const float *x, const float *w, uint32_t n, float eps, float *y) {
    __m256 low = _mm256_setzero_ps(), high = low;
    for (uint32_t i = 0; i < n; i += 16) { /* absent lanes add +0 to a sum that is never -0 */
        __m256 a = load_some(x + i, n - i);
        low = _mm256_fmadd_ps(a, a, low);
        if (n - i <= 8) break;
        __m256 b = load_some(x + i + 8, n - i - 8);
        high = _mm256_fmadd_ps(b, b, high);
    }
    const float mean = tree16_add(low, high) / (float)n;
    const __m256 r = _mm256_set1_ps(1.0f / ramet_sqrtf(mean + eps));
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_some(x + i, n - i), r);
        store_some(y + i, n - i, _mm256_mul_ps(v, load_some(w + i, n - i)));
    }
}

static inline void rotate_lanes(__m256 *a, __m256 *b, __m256 cos, __m256 sin) {
    __m256 x = *a, y = *b;
    *a = _mm256_fmsub_ps(x, cos, _mm256_mul_ps(y, sin));
    *b = _mm256_fmadd_ps(x, sin, _mm256_mul_ps(y, cos));
}

/* Lanes 0 1 4 5 2 3 6 7: the order in which shuffles leave the first (or second) halves of 8 neighbouring pairs. */
static inline __m256 load_swapped(const float *p) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_loadu_ps(p)), 0xd8));
}

static uint32_t rotate_neighbours(float *x, const float *cos, const float *sin, uint32_t n_pairs) {
    uint32_t i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        __m256 v0 = _mm256_loadu_ps(x + 2 * i), v1 = _mm256_loadu_ps(x + 2 * i + 8);
        __m256 a = _mm256_shuffle_ps(v0, v1, 0x88), b = _mm256_shuffle_ps(v0, v1, 0xdd);
        rotate_lanes(&a, &b, load_swapped(cos + i), load_swapped(sin + i));
        _mm256_storeu_ps(x + 2 * i, _mm256_unpacklo_ps(a, b));
        _mm256_storeu_ps(x + 2 * i + 8, _mm256_unpackhi_ps(a, b));
    }
    return i;
}

static uint32_t rotate_halves(float *x, const float *cos, const float *sin, uint32_t n_pairs) {
    uint32_t i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + n_pairs + i);
        rotate_lanes(&a, &b, _mm256_loadu_ps(cos + i), _mm256_loadu_ps(sin + i));
        _mm256_storeu_ps(x + i, a);
        _mm256_storeu_ps(x + n_pairs + i, b);
    }
    return i;
}

static void rotate_pairs(float *x, const float *cos, const float *sin, uint32_t n_pairs, bool neighbours) {
    uint32_t i = neighbours ? rotate_neighbours(x, cos, sin, n_pairs) : rotate_halves(x, cos, sin, n_pairs);
    for (; i < n_pairs; ++i) {
        float *first = neighbours ? x + 2 * i : x + i, *second = neighbours ? first + 1 : first + n_pairs;
        float a = *first, b = *second;
        *first = fmaf(a, cos[i], -(b * sin[i]));
        *second = fmaf(a, sin[i], b * cos[i]);
    }
}

static void multiply_silu(const float *gate, const float *up, uint32_t n, float *out) {
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 x = load_some(gate + i, n - i);
        __m256 silu = _mm256_div_ps(x, _mm256_add_ps(one, exp_lanes(_mm256_xor_ps(x, sign))));
        store_some(out + i, n - i, _mm256_mul_ps(silu, load_some(up + i, n - i)));
    }
}

static void multiply_gelu(const float *gate, const float *up, uint32_t n, float *out) {
    const __m256 one = _mm256_set1_ps(1.0f);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 x = load_some(gate + i, n - i);
        __m256 square = _mm256_mul_ps(_mm256_set1_ps(0x1.6e4e26p-5f), _mm256_mul_ps(x, x));
        __m256 cubic = _mm256_fmadd_ps(square, x, x);
        __m256 e = exp_lanes(_mm256_mul_ps(_mm256_set1_ps(-0x1.988454p0f), cubic));
        __m256 gelu = _mm256_div_ps(x, _mm256_add_ps(one, e));
        store_some(out + i, n - i, _mm256_mul_ps(gelu, load_some(up + i, n - i)));
    }
}

static void add_scaled(float *x, float factor, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 sum = _mm256_fmadd_ps(_mm256_set1_ps(factor), load_some(y + i, n - i), load_some(x + i, n - i));
        store_some(x + i, n - i, sum);
    }
}

/* ---- int8 activations: see c/quantize.c */

/* lo and hi of 32 elements; false when one is not finite or their distance is not. */
static inline bool find_range(const __m256 v[4], float *out_lo, float *out_hi) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), largest = _mm256_set1_ps(FLT_MAX);
    __m256 finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int i = 0; i < 4; ++i)
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(_mm256_and_ps(v[i], magnitude), largest, _CMP_LE_OQ));
    *out_lo = tree16_min(_mm256_min_ps(v[0], v[2]), _mm256_min_ps(v[1], v[3]));
    *out_hi = tree16_max(_mm256_max_ps(v[0], v[2]), _mm256_max_ps(v[1], v[3]));
    return _mm256_movemask_ps(finite) == 0xff && *out_hi - *out_lo <= FLT_MAX;
}

/* 8 elements as int32; the conversion rounds half to even. */
static inline __m256i quantize_lanes(__m256 x, __m256 z, __m256 id) {
    __m256 t = _mm256_mul_ps(_mm256_sub_ps(x, z), id);
    t = _mm256_max_ps(_mm256_min_ps(t, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(t);
}

static inline __m256i quantize_32(const __m256 v[4], __m256 z, __m256 id) {
    __m256i a = _mm256_packs_epi32(quantize_lanes(v[0], z, id), quantize_lanes(v[1], z, id));
    __m256i b = _mm256_packs_epi32(quantize_lanes(v[2], z, id), quantize_lanes(v[3], z, id));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The sums of q over each run of 16. */
static inline void sum_runs(__m256i q, int32_t out[2]) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i v = _mm_hadd_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    v = _mm_hadd_epi32(v, v);
    out[0] = _mm_cvtsi128_si32(v), out[1] = _mm_extract_epi32(v, 1);
}

static inline void quantize_block(ramet_acts *acts, size_t at, const float *x) {
    __m256 v[4];
    float lo, hi;
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
    const bool finite = find_range(v, &lo, &hi);
    const float range = hi - lo;
    const bool flat = range < RAMET_FLAT_RANGE;
    const float d = !finite ? NAN : flat ? 0.0f : range / 254.0f;
    const float z = finite ? fmaf(0.5f, lo, 0.5f * hi) : NAN;
    __m256i q = _mm256_setzero_si256();
    if (finite && !flat) q = quantize_32(v, _mm256_set1_ps(z), _mm256_set1_ps(254.0f / range));
    _mm256_storeu_si256((__m256i *)(void *)(acts->q + 32 * at), q);
    int32_t *sums = acts->sum16 + 2 * at;
    sum_runs(q, sums);
    acts->d[at] = d;
    acts->z[at] = z;
    acts->s16[2 * at] = fmaf(d, (float)sums[0], 16.0f * z);
    acts->s16[2 * at + 1] = fmaf(d, (float)sums[1], 16.0f * z);
    acts->sum32[at] = sums[0] + sums[1];
    acts->s32[at] = fmaf(d, (float)acts->sum32[at], 32.0f * z);
}

static void quantize_column(ramet_acts *acts, uint32_t col, const float *x) {
    const size_t n_blocks = acts->n_k / 32;
    for (size_t b = 0; b < n_blocks; ++b) quantize_block(acts, col * n_blocks + b, x + 32 * b);
}

void ramet_vector_fill_avx2(ramet_kernels *table) {
    table->quantize = quantize_column;
    table->rms_norm = normalize_rms;
    table->rope = rotate_pairs;
    table->silu_mul = multiply_silu;
    table->gelu_mul = multiply_gelu;
    table->axpy = add_scaled;
}
#endif
