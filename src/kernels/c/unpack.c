/* unpack.c - see unpack.h. Plain on purpose: this is the definition that the vector kernels are measured against. */
#include "kernels/c/unpack.h"

#include "numerics/half.h"

#include <string.h>

static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Byte `b` of row r's quants; words of 4 bytes lie row after row. */
static uint32_t read_quant(const uint8_t *words, uint32_t b, uint32_t r) {
    return words[(b / 4 * RAMET_LANES + r) * 4 + b % 4];
}

static const uint8_t *take_halves(const uint8_t *p, float out[RAMET_LANES]) {
    for (uint32_t r = 0; r < RAMET_LANES; ++r) out[r] = ramet_f16_to_f32(read_u16(p + 2 * r));
    return p + 2 * RAMET_LANES;
}

static void fill_step(ramet_unpacked *out, uint32_t n_halves, const float d[RAMET_LANES]) {
    for (uint32_t i = 0; i < n_halves; ++i) memcpy(out->step[i], d, sizeof out->step[i]);
}

/* A block of 32: d, then m where there is one; no integer scales. Returns what comes after. */
static const uint8_t *unpack_block32_scales(const uint8_t *p, bool has_min, ramet_unpacked *out) {
    p = take_halves(p, out->step[0]);
    for (uint32_t i = 0; i < 2; ++i)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) out->scale[i][r] = 1;
    if (!has_min) return p;
    p = take_halves(p, out->offset[0]);
    memcpy(out->offset[1], out->offset[0], sizeof out->offset[1]);
    return p;
}

static void unpack_q4(const uint8_t *p, bool has_min, int32_t offset, ramet_unpacked *out) {
    p = unpack_block32_scales(p, has_min, out);
    for (uint32_t b = 0; b < 16; ++b)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            uint32_t byte = read_quant(p, b, r);
            out->q[b][r] = (int8_t)((int32_t)(byte & 15) - offset);
            out->q[16 + b][r] = (int8_t)((int32_t)(byte >> 4) - offset);
        }
}

/* Fifth bit of element e: bit e / 4 of byte e % 4 of the row's qh word. */
static void unpack_q5(const uint8_t *p, bool has_min, int32_t offset, ramet_unpacked *out) {
    p = unpack_block32_scales(p, has_min, out);
    const uint8_t *high = p, *low = p + 4 * RAMET_LANES;
    for (uint32_t e = 0; e < 32; ++e)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            uint32_t nibble = read_quant(low, e % 16, r) >> (e / 16 * 4) & 15;
            uint32_t bit = read_quant(high, e % 4, r) >> (e / 4) & 1;
            out->q[e][r] = (int8_t)((int32_t)(nibble | bit << 4) - offset);
        }
}

static void unpack_q8(const uint8_t *p, ramet_unpacked *out) {
    p = unpack_block32_scales(p, false, out);
    for (uint32_t e = 0; e < 32; ++e)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) out->q[e][r] = (int8_t)(uint8_t)read_quant(p, e, r);
}

/* Q4_K and Q5_K: 8 sub-blocks of 32, two to a row of nibbles, each with an unsigned scale and minimum. */
static void unpack_q45_k(const uint8_t *p, bool has_high, ramet_unpacked *out) {
    float d[RAMET_LANES], dmin[RAMET_LANES];
    p = take_halves(p, d);
    p = take_halves(p, dmin);
    const uint8_t *scale = p, *min = p + 8 * RAMET_LANES;
    p += 16 * RAMET_LANES;
    for (uint32_t i = 0; i < 16; ++i)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            out->step[i / 2][r] = d[r] * (float)scale[i / 2 * RAMET_LANES + r];
            out->offset[i][r] = -(dmin[r] * (float)min[i / 2 * RAMET_LANES + r]);
            out->scale[i][r] = 1;
        }
    const uint8_t *high = p, *low = has_high ? p + 32 * RAMET_LANES : p;
    for (uint32_t e = 0; e < 256; ++e)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            uint32_t nibble = read_quant(low, e / 64 * 32 + e % 32, r) >> (e / 32 % 2 * 4) & 15;
            uint32_t bit = has_high ? read_quant(high, e % 32, r) >> (e / 32) & 1 : 0;
            out->q[e][r] = (int8_t)(nibble | bit << 4);
        }
}

static void unpack_q6_k(const uint8_t *p, ramet_unpacked *out) {
    float d[RAMET_LANES];
    p = take_halves(p, d);
    fill_step(out, 8, d);
    const uint8_t *scale = p, *low = p + 16 * RAMET_LANES, *high = low + 128 * RAMET_LANES;
    for (uint32_t i = 0; i < 16; ++i)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) out->scale[i][r] = (int8_t)scale[i * RAMET_LANES + r];
    for (uint32_t e = 0; e < 256; ++e) {
        uint32_t half = e / 128, in_half = e % 128, l = e % 32;
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            uint32_t nibble = read_quant(low, half * 64 + in_half % 64, r) >> (in_half / 64 * 4) & 15;
            uint32_t bits = read_quant(high, half * 32 + l, r) >> (in_half / 32 * 2) & 3;
            out->q[e][r] = (int8_t)((int32_t)(nibble | bits << 4) - 32);
        }
    }
}

/* Element e of Q2_K and of the low bits of Q3_K: two bits of byte e / 128 * 32 + e % 32. */
static uint32_t read_two_bits(const uint8_t *words, uint32_t e, uint32_t r) {
    return read_quant(words, e / 128 * 32 + e % 32, r) >> (e % 128 / 32 * 2) & 3;
}

static void unpack_q2_k(const uint8_t *p, ramet_unpacked *out) {
    float d[RAMET_LANES], dmin[RAMET_LANES];
    p = take_halves(p, d);
    p = take_halves(p, dmin);
    fill_step(out, 8, d);
    for (uint32_t i = 0; i < 16; ++i)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            out->scale[i][r] = p[i * RAMET_LANES + r] & 15;
            out->offset[i][r] = -(dmin[r] * (float)(p[i * RAMET_LANES + r] >> 4));
        }
    p += 16 * RAMET_LANES;
    for (uint32_t e = 0; e < 256; ++e)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) out->q[e][r] = (int8_t)read_two_bits(p, e, r);
}

static void unpack_q3_k(const uint8_t *p, ramet_unpacked *out) {
    float d[RAMET_LANES];
    p = take_halves(p, d);
    fill_step(out, 8, d);
    const uint8_t *scale = p, *high = p + 16 * RAMET_LANES, *low = high + 32 * RAMET_LANES;
    for (uint32_t i = 0; i < 16; ++i)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) out->scale[i][r] = (int8_t)scale[i * RAMET_LANES + r];
    for (uint32_t e = 0; e < 256; ++e)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) {
            uint32_t bit = read_quant(high, e % 32, r) >> (e / 32) & 1;
            out->q[e][r] = (int8_t)((int32_t)(read_two_bits(low, e, r) | bit << 2) - 4);
        }
}

void ramet_unpack(ramet_dtype dtype, const uint8_t *block, ramet_unpacked *out) {
    switch (dtype) {
    case RAMET_Q4_0: unpack_q4(block, false, 8, out); break;
    case RAMET_Q4_1: unpack_q4(block, true, 0, out); break;
    case RAMET_Q5_0: unpack_q5(block, false, 16, out); break;
    case RAMET_Q5_1: unpack_q5(block, true, 0, out); break;
    case RAMET_Q8_0: unpack_q8(block, out); break;
    case RAMET_Q2_K: unpack_q2_k(block, out); break;
    case RAMET_Q3_K: unpack_q3_k(block, out); break;
    case RAMET_Q4_K: unpack_q45_k(block, false, out); break;
    case RAMET_Q5_K: unpack_q45_k(block, true, out); break;
    case RAMET_Q6_K: unpack_q6_k(block, out); break;
    case RAMET_F32:
    case RAMET_F16:
    case RAMET_BF16:
    case RAMET_DTYPE_COUNT: break;
    }
}

void ramet_unpack_float(ramet_dtype dtype, const uint8_t *block, float out[RAMET_LANES]) {
    if (dtype == RAMET_F32) memcpy(out, block, RAMET_LANES * sizeof(float));
    if (dtype == RAMET_F16) take_halves(block, out);
    if (dtype == RAMET_BF16)
        for (uint32_t r = 0; r < RAMET_LANES; ++r) out[r] = ramet_bf16_to_f32(read_u16(block + 2 * r));
}
