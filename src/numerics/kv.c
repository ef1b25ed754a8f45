/* kv.c - see kv.h. One description of where a head's vector lies (in a page, or in an exported row) serves writing,
 * reading, export and import; page and row differ in strides alone. One-bit values are stored as +-1 in a whole byte
 * with the q8 layout: what counts is how little they say. */
#include "numerics/kv.h"
#include "numerics/half.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "exported rows are little-endian and copied as they are");

enum { AREA_ALIGN = 64, SCALE_BYTES = 2, MAX_PAGE_TOKENS = 256 };

static size_t get_width(ramet_kv_code code) {
    return code == RAMET_KV_CODE_F32 ? 4 : code == RAMET_KV_CODE_F16 ? 2 : 1;
}

static bool has_scales(ramet_kv_code code) {
    return code >= RAMET_KV_CODE_Q8;
}

/* ----------------------------------------------------------------- names ---- */

static const char *const names[] = {
    [RAMET_KV_F32] = "f32", [RAMET_KV_F16] = "f16", [RAMET_KV_VQ8] = "vq8", [RAMET_KV_Q8] = "q8"};
enum { N_NAMES = sizeof names / sizeof names[0] };

const char *ramet_kv_name(ramet_kv kv) {
    return (size_t)kv < N_NAMES ? names[kv] : "unknown";
}

bool ramet_kv_parse(const char *name, ramet_kv *out) {
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (ramet_kv)i;
            return true;
        }
    return false;
}

/* ---------------------------------------------------------------- layout ---- */

static bool choose_codes(ramet_kv_layout *l) {
    static const ramet_kv_code codes[][2] = {
        [RAMET_KV_F32] = {RAMET_KV_CODE_F32, RAMET_KV_CODE_F32},
        [RAMET_KV_F16] = {RAMET_KV_CODE_F16, RAMET_KV_CODE_F16},
        [RAMET_KV_VQ8] = {RAMET_KV_CODE_F16, RAMET_KV_CODE_Q8},
        [RAMET_KV_Q8] = {RAMET_KV_CODE_Q8, RAMET_KV_CODE_Q8},
        [RAMET_KV_ONE_BIT] = {RAMET_KV_CODE_BIT, RAMET_KV_CODE_BIT},
    };
    if (l->precision < RAMET_KV_F32 || l->precision > RAMET_KV_ONE_BIT) return false;
    l->k_code = codes[l->precision][0];
    l->v_code = codes[l->precision][1];
    return true;
}

/* One vector's exported bytes, and the bytes and the scales' place of an area of page_tokens of them. */
static bool size_area(const ramet_kv_layout *l, ramet_kv_code code, size_t *vector, size_t *area, size_t *scales_off) {
    uint64_t elements = (uint64_t)l->head_dim * get_width(code); /* 2^34 at most, and so on */
    uint64_t scales = has_scales(code) ? (uint64_t)l->n_blocks * SCALE_BYTES : 0;
    uint64_t bytes = ((elements + scales) * l->page_tokens + AREA_ALIGN - 1) & ~(uint64_t)(AREA_ALIGN - 1);
    if (bytes > SIZE_MAX) return false;
    *vector = (size_t)(elements + scales);
    *scales_off = (size_t)(elements * l->page_tokens);
    *area = (size_t)bytes;
    return true;
}

static bool multiply_sizes(uint64_t a, uint64_t b, uint64_t c, size_t *out) {
    uint64_t product;
    if (!ramet_mul_u64(a, b, &product) || !ramet_mul_u64(product, c, &product) || product > SIZE_MAX) return false;
    *out = (size_t)product;
    return true;
}

bool ramet_kv_layout_init(ramet_kv_layout *out, int precision, uint32_t n_layers, uint32_t n_kv_heads,
                          uint32_t head_dim, uint32_t page_tokens) {
    if (!n_layers || !n_kv_heads || !head_dim || !page_tokens) return false;
    if (page_tokens > MAX_PAGE_TOKENS || (page_tokens & (page_tokens - 1))) return false;

    ramet_kv_layout l = {.n_layers = n_layers,
                         .n_kv_heads = n_kv_heads,
                         .head_dim = head_dim,
                         .page_tokens = page_tokens,
                         .precision = precision,
                         .n_blocks = head_dim / RAMET_KV_BLOCK + (head_dim % RAMET_KV_BLOCK != 0)};
    if (!choose_codes(&l) || !size_area(&l, l.k_code, &l.k_vector_bytes, &l.k_head_bytes, &l.k_scales_off) ||
        !size_area(&l, l.v_code, &l.v_vector_bytes, &l.v_head_bytes, &l.v_scales_off) ||
        !multiply_sizes(n_kv_heads, l.k_head_bytes + l.v_head_bytes, 1, &l.layer_bytes) ||
        !multiply_sizes(n_layers, l.layer_bytes, 1, &l.page_bytes) ||
        !multiply_sizes(n_layers, n_kv_heads, l.k_vector_bytes + l.v_vector_bytes, &l.row_bytes))
        return false;
    *out = l;
    return true;
}

/* ---------------------------------------------------------------- vectors ---- */

/* Where the elements and the scales of one head's vector lie, from the start of a page. */
typedef struct vector_place {
    ramet_kv_code code;
    size_t width, off, stride, scales_off, scales_stride;
} vector_place;

static vector_place locate_k(const ramet_kv_layout *l, uint32_t layer, uint32_t head, uint32_t slot) {
    size_t area = ramet_kv_k_off(l, layer, head), width = get_width(l->k_code);
    return (vector_place){.code = l->k_code,
                          .width = width,
                          .off = area + slot * width,
                          .stride = l->page_tokens * width,
                          .scales_off = area + l->k_scales_off + slot * SCALE_BYTES,
                          .scales_stride = (size_t)l->page_tokens * SCALE_BYTES};
}

static vector_place locate_v(const ramet_kv_layout *l, uint32_t layer, uint32_t head, uint32_t slot) {
    size_t area = ramet_kv_v_off(l, layer, head), width = get_width(l->v_code);
    return (vector_place){.code = l->v_code,
                          .width = width,
                          .off = area + (size_t)slot * l->head_dim * width,
                          .stride = width,
                          .scales_off = area + l->v_scales_off + (size_t)slot * l->n_blocks * SCALE_BYTES,
                          .scales_stride = SCALE_BYTES};
}

static void put_u16(uint8_t *p, uint16_t value) {
    memcpy(p, &value, sizeof value);
}

static float get_half(const uint8_t *p) {
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return ramet_f16_to_f32(value);
}

/* Half to even for |x| up to 2^22. */
static float round_even(float x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

static int8_t quantize_value(float x, float scale) {
    float q = round_even(x / scale);
    return (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
}

/* The scale of x[0..n) as binary16; NaN when the block cannot be represented. */
static uint16_t choose_scale(const float *x, uint32_t n, bool one_bit) {
    float amax = 0, sum = 0;
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        finite = finite && a <= 0x1.fffffep127f; /* false for NaN */
        amax = a > amax ? a : amax;
        sum += a;
    }
    uint16_t scale = ramet_f32_to_f16(one_bit ? sum / (float)n : amax / 127.0f);
    return finite && scale < 0x7c00 ? scale : 0x7e00;
}

static void write_block(const vector_place *at, uint8_t *page, uint32_t block, uint32_t n, const float *x) {
    bool one_bit = at->code == RAMET_KV_CODE_BIT;
    uint16_t bits = choose_scale(x, n, one_bit);
    float scale = ramet_f16_to_f32(bits);
    put_u16(page + at->scales_off + block * at->scales_stride, bits);
    uint8_t *element = page + at->off + (size_t)block * RAMET_KV_BLOCK * at->stride;
    for (uint32_t i = 0; i < n; i++, element += at->stride) {
        int8_t q = !(scale > 0) ? 0 : one_bit ? (int8_t)(x[i] < 0 ? -1 : 1) : quantize_value(x[i], scale);
        *element = (uint8_t)q;
    }
}

static void write_vector(const vector_place *at, uint8_t *page, uint32_t head_dim, const float *x) {
    if (has_scales(at->code)) {
        for (uint32_t d = 0; d < head_dim; d += RAMET_KV_BLOCK) {
            uint32_t n = head_dim - d < RAMET_KV_BLOCK ? head_dim - d : RAMET_KV_BLOCK;
            write_block(at, page, d / RAMET_KV_BLOCK, n, x + d);
        }
        return;
    }
    uint8_t *element = page + at->off;
    for (uint32_t d = 0; d < head_dim; d++, element += at->stride) {
        if (at->code == RAMET_KV_CODE_F32)
            memcpy(element, &x[d], sizeof x[d]);
        else
            put_u16(element, ramet_f32_to_f16(x[d]));
    }
}

static float read_element(const vector_place *at, const uint8_t *page, uint32_t d) {
    const uint8_t *element = page + at->off + d * at->stride;
    if (has_scales(at->code))
        return get_half(page + at->scales_off + d / RAMET_KV_BLOCK * at->scales_stride) * (float)(int8_t)*element;
    if (at->code == RAMET_KV_CODE_F16) return get_half(element);
    float value;
    memcpy(&value, element, sizeof value);
    return value;
}

static void check_slots(const ramet_kv_layout *l, uint32_t layer, uint32_t slot, uint32_t n) {
    RAMET_ASSERT(layer < l->n_layers && n <= l->page_tokens && slot <= l->page_tokens - n,
                 "kv: layer %u of %u, slots %u + %u of %u", layer, l->n_layers, slot, n, l->page_tokens);
}

void ramet_kv_write(const ramet_kv_layout *l, uint8_t *page, uint32_t layer, uint32_t slot, const float *k,
                    const float *v) {
    check_slots(l, layer, slot, 1);
    for (uint32_t head = 0; head < l->n_kv_heads; head++) {
        vector_place to_k = locate_k(l, layer, head, slot), to_v = locate_v(l, layer, head, slot);
        write_vector(&to_k, page, l->head_dim, k + (size_t)head * l->head_dim);
        write_vector(&to_v, page, l->head_dim, v + (size_t)head * l->head_dim);
    }
}

void ramet_kv_read_k(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                     uint32_t n, float *out, size_t stride) {
    check_slots(l, layer, slot, n);
    for (uint32_t i = 0; i < n; i++) {
        vector_place from = locate_k(l, layer, head, slot + i);
        for (uint32_t d = 0; d < l->head_dim; d++) out[d * stride + i] = read_element(&from, page, d);
    }
}

void ramet_kv_read_v(const ramet_kv_layout *l, const uint8_t *page, uint32_t layer, uint32_t head, uint32_t slot,
                     uint32_t n, float *out) {
    check_slots(l, layer, slot, n);
    for (uint32_t i = 0; i < n; i++) {
        vector_place from = locate_v(l, layer, head, slot + i);
        for (uint32_t d = 0; d < l->head_dim; d++) out[(size_t)i * l->head_dim + d] = read_element(&from, page, d);
    }
}

/* ---------------------------------------------------------------- rows ---- */

/* Where vectors lie on both sides: unit u of vector i at off + i * vector_stride + u * unit_stride. */
typedef struct grid {
    size_t vector_stride, unit_stride;
} grid;

/* Units in tiles that are one cache line of the exported side, so that both sides stay in cache. */
static inline void copy_tiles(uint8_t *to, grid t, const uint8_t *from, grid f, size_t n_vectors, size_t n_units,
                              size_t width) {
    const size_t tile = 64 / width;
    for (size_t first = 0; first < n_units; first += tile) {
        size_t end = first + tile < n_units ? first + tile : n_units;
        for (size_t i = 0; i < n_vectors; i++)
            for (size_t u = first; u < end; u++)
                memcpy(to + i * t.vector_stride + u * t.unit_stride, from + i * f.vector_stride + u * f.unit_stride,
                       width);
    }
}

/* n_vectors vectors of n_units units of 1, 2 or 4 bytes. */
static void copy_grid(uint8_t *to, grid t, const uint8_t *from, grid f, size_t n_vectors, size_t n_units,
                      size_t width) {
    if (t.unit_stride == width && f.unit_stride == width)
        for (size_t i = 0; i < n_vectors; i++)
            memcpy(to + i * t.vector_stride, from + i * f.vector_stride, n_units * width);
    else if (width == 4)
        copy_tiles(to, t, from, f, n_vectors, n_units, 4);
    else if (width == 2)
        copy_tiles(to, t, from, f, n_vectors, n_units, 2);
    else
        copy_tiles(to, t, from, f, n_vectors, n_units, 1);
}

/* One head's K or V of n positions from slot on, between a page and rows; `in_row` is its place in a row. */
static void move_vectors(const ramet_kv_layout *l, const vector_place *at, const vector_place *next, uint8_t *page,
                         uint8_t *in_row, uint32_t n, bool is_export) {
    const size_t elements = l->head_dim * at->width;
    const grid page_side = {next->off - at->off, at->stride}, row_side = {l->row_bytes, at->width};
    const grid page_scales = {next->scales_off - at->scales_off, at->scales_stride},
               row_scales = {l->row_bytes, SCALE_BYTES};
    uint8_t *scales = in_row + elements;
    if (is_export)
        copy_grid(in_row, row_side, page + at->off, page_side, n, l->head_dim, at->width);
    else
        copy_grid(page + at->off, page_side, in_row, row_side, n, l->head_dim, at->width);
    if (!has_scales(at->code)) return;
    if (is_export)
        copy_grid(scales, row_scales, page + at->scales_off, page_scales, n, l->n_blocks, SCALE_BYTES);
    else
        copy_grid(page + at->scales_off, page_scales, scales, row_scales, n, l->n_blocks, SCALE_BYTES);
}

static void move_rows(const ramet_kv_layout *l, uint8_t *page, uint32_t slot, uint32_t n, uint8_t *rows,
                      bool is_export) {
    check_slots(l, 0, slot, n);
    for (uint32_t layer = 0; layer < l->n_layers; layer++) {
        for (uint32_t head = 0; head < l->n_kv_heads; head++, rows += l->k_vector_bytes) {
            vector_place at = locate_k(l, layer, head, slot), next = locate_k(l, layer, head, slot + 1);
            move_vectors(l, &at, &next, page, rows, n, is_export);
        }
        for (uint32_t head = 0; head < l->n_kv_heads; head++, rows += l->v_vector_bytes) {
            vector_place at = locate_v(l, layer, head, slot), next = locate_v(l, layer, head, slot + 1);
            move_vectors(l, &at, &next, page, rows, n, is_export);
        }
    }
}

void ramet_kv_export(const ramet_kv_layout *l, const uint8_t *page, uint32_t slot, uint32_t n, uint8_t *out) {
    move_rows(l, (uint8_t *)(uintptr_t)page, slot, n, out, true); /* read only */
}

void ramet_kv_import(const ramet_kv_layout *l, uint8_t *page, uint32_t slot, uint32_t n, const uint8_t *rows) {
    move_rows(l, page, slot, n, (uint8_t *)(uintptr_t)rows, false); /* read only */
}
