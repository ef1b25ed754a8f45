/* kv.c - see kv.h. One description of where a head's vector lies in a page serves writing and reading; export and import
 * see a page and a tile as the same matrices with other strides. One-bit values are stored as +-1 in a whole byte with
 * the q8 layout: what counts is how little they say. */
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

/* ---------------------------------------------------------------- tiles ---- */

/* Bytes [from, to) of a tile, those of its positions that lie in one page; bytes[0] is byte `from`. */
typedef struct tile_copy {
    const ramet_kv_layout *l;
    ramet_kv_span span;
    uint8_t *page, *bytes;
    size_t from, to;
    bool is_export;
} tile_copy;

/* n bytes that are adjacent on both sides. */
static inline void copy_run(const tile_copy *c, size_t page_off, size_t tile_off, size_t n) {
    size_t begin = tile_off > c->from ? tile_off : c->from, end = tile_off + n < c->to ? tile_off + n : c->to;
    if (begin >= end) return;
    uint8_t *in_page = c->page + page_off + (begin - tile_off), *in_tile = c->bytes + (begin - c->from);
    if (c->is_export)
        memcpy(in_tile, in_page, end - begin);
    else
        memcpy(in_page, in_tile, end - begin);
}

/* n_rows rows of `unit` bytes a position. One run where the tile is the whole page. */
static void copy_matrix(const tile_copy *c, size_t page_off, size_t tile_off, size_t n_rows, size_t unit) {
    const size_t page_stride = c->l->page_tokens * unit, tile_stride = c->span.tile_tokens * unit;
    const size_t run = c->span.n * unit;
    if (run == page_stride && run == tile_stride) {
        copy_run(c, page_off, tile_off, n_rows * run);
        return;
    }
    page_off += c->span.slot * unit;
    tile_off += c->span.first * unit;
    size_t row = tile_off < c->from ? (c->from - tile_off) / tile_stride : 0;
    for (; row < n_rows && tile_off + row * tile_stride < c->to; row++)
        copy_run(c, page_off + row * page_stride, tile_off + row * tile_stride, run);
}

static void copy_k(const tile_copy *c, size_t page_off, size_t tile_off) {
    const size_t width = get_width(c->l->k_code), elements = c->l->head_dim * width;
    copy_matrix(c, page_off, tile_off, c->l->head_dim, width);
    if (!has_scales(c->l->k_code)) return;
    copy_matrix(c, page_off + c->l->k_scales_off, tile_off + elements * c->span.tile_tokens, c->l->n_blocks,
                SCALE_BYTES);
}

static void copy_v(const tile_copy *c, size_t page_off, size_t tile_off) {
    const size_t elements = c->l->head_dim * get_width(c->l->v_code);
    copy_matrix(c, page_off, tile_off, 1, elements);
    if (!has_scales(c->l->v_code)) return;
    copy_matrix(c, page_off + c->l->v_scales_off, tile_off + elements * c->span.tile_tokens, 1,
                (size_t)c->l->n_blocks * SCALE_BYTES);
}

static void copy_tile(const tile_copy *c) {
    const ramet_kv_layout *l = c->l;
    const ramet_kv_span *s = &c->span;
    RAMET_ASSERT(s->n <= l->page_tokens && s->slot <= l->page_tokens - s->n && s->n <= s->tile_tokens &&
                     s->first <= s->tile_tokens - s->n,
                 "kv: %u positions, from %u of a tile of %u, from slot %u of %u", s->n, s->first, s->tile_tokens,
                 s->slot, l->page_tokens);
    const size_t k_bytes = l->k_vector_bytes * s->tile_tokens, v_bytes = l->v_vector_bytes * s->tile_tokens;
    const size_t layer_bytes = l->n_kv_heads * (k_bytes + v_bytes);
    for (size_t layer = c->from / layer_bytes; layer < l->n_layers && layer * layer_bytes < c->to; layer++) {
        size_t off = layer * layer_bytes;
        for (uint32_t head = 0; head < l->n_kv_heads; head++, off += k_bytes)
            copy_k(c, ramet_kv_k_off(l, (uint32_t)layer, head), off);
        for (uint32_t head = 0; head < l->n_kv_heads; head++, off += v_bytes)
            copy_v(c, ramet_kv_v_off(l, (uint32_t)layer, head), off);
    }
}

void ramet_kv_export_tile(const ramet_kv_layout *l, const uint8_t *page, ramet_kv_span span, size_t from, size_t to,
                          uint8_t *out) {
    const tile_copy c = {.l = l,
                         .span = span,
                         .page = (uint8_t *)(uintptr_t)page, /* read only */
                         .bytes = out,
                         .from = from,
                         .to = to,
                         .is_export = true};
    copy_tile(&c);
}

void ramet_kv_import_tile(const ramet_kv_layout *l, uint8_t *page, ramet_kv_span span, size_t from, size_t to,
                          const uint8_t *bytes) {
    const tile_copy c = {.l = l,
                         .span = span,
                         .page = page,
                         .bytes = (uint8_t *)(uintptr_t)bytes, /* read only */
                         .from = from,
                         .to = to};
    copy_tile(&c);
}

/* ---------------------------------------------------------------- rows ---- */

static ramet_kv_span row_at(uint32_t slot) {
    return (ramet_kv_span){.tile_tokens = 1, .slot = slot, .n = 1};
}

void ramet_kv_export(const ramet_kv_layout *l, const uint8_t *page, uint32_t slot, uint32_t n, uint8_t *out) {
    for (uint32_t i = 0; i < n; i++)
        ramet_kv_export_tile(l, page, row_at(slot + i), 0, l->row_bytes, out + i * l->row_bytes);
}

void ramet_kv_import(const ramet_kv_layout *l, uint8_t *page, uint32_t slot, uint32_t n, const uint8_t *rows) {
    for (uint32_t i = 0; i < n; i++)
        ramet_kv_import_tile(l, page, row_at(slot + i), 0, l->row_bytes, rows + i * l->row_bytes);
}
