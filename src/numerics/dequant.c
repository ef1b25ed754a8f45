/* dequant.c - what the bytes of a GGUF block mean, as float32. This is the definition; panels and kernels follow it.
 *
 * A weight is  d q,  d q + m,  (d s) q  or  (d s) q - (dmin n):  d, m, dmin are binary16 widened exactly, s and n are
 * the sub-block's integer scale and min, q the integer quant. Every product and sum is one binary32 operation, rounded,
 * in the order that the brackets show; nothing is fused. */
#include "numerics/half.h"
#include "numerics/panel.h"
#include "numerics/scales.h"

#include "base/error.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF tensors are read in place as little-endian words");

static uint16_t read_u16(const uint8_t *p) {
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static float read_half(const uint8_t *p) {
    return ramet_f16_to_f32(read_u16(p));
}

static void decode_f32(const uint8_t *block, float *out) {
    memcpy(out, block, sizeof *out);
}
static void decode_f16(const uint8_t *block, float *out) {
    *out = read_half(block);
}
static void decode_bf16(const uint8_t *block, float *out) {
    *out = ramet_bf16_to_f32(read_u16(block));
}

/* ---- blocks of 32 ---- */

/* Byte i of qs holds elements i (low half) and 16 + i (high half); bit e of qh is element e's fifth. */

static int read_nibble(const uint8_t *qs, int e) {
    return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
}
static int read_fifth(const uint8_t *qh, int e) {
    return (qh[e / 8] >> e % 8 & 1) << 4;
}

static void decode_q4_0(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int e = 0; e < 32; e++) out[e] = d * (float)(read_nibble(block + 2, e) - 8);
}

static void decode_q4_1(const uint8_t *block, float *out) {
    float d = read_half(block), m = read_half(block + 2);
    for (int e = 0; e < 32; e++) out[e] = d * (float)read_nibble(block + 4, e) + m;
}

static void decode_q5_0(const uint8_t *block, float *out) {
    float d = read_half(block);
    const uint8_t *qh = block + 2, *qs = block + 6;
    for (int e = 0; e < 32; e++) out[e] = d * (float)((read_nibble(qs, e) | read_fifth(qh, e)) - 16);
}

static void decode_q5_1(const uint8_t *block, float *out) {
    float d = read_half(block), m = read_half(block + 2);
    const uint8_t *qh = block + 4, *qs = block + 8;
    for (int e = 0; e < 32; e++) out[e] = d * (float)(read_nibble(qs, e) | read_fifth(qh, e)) + m;
}

static void decode_q8_0(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int e = 0; e < 32; e++) out[e] = d * (float)(int8_t)block[2 + e];
}

/* ---- K-quants, blocks of 256 ---- */

/* Two bits of element e: 128 elements share 32 bytes, which hold elements l, 32 + l, 64 + l, 96 + l from bit 0 up. */
static int read_pair(const uint8_t *qs, int e) {
    return qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3;
}

static void decode_q2_k(const uint8_t *block, float *out) {
    const uint8_t *scales = block, *qs = block + 16;
    float d = read_half(block + 80), dmin = read_half(block + 82);
    for (int e = 0; e < 256; e++) {
        float scale = d * (float)(scales[e / 16] & 15), min = dmin * (float)(scales[e / 16] >> 4);
        out[e] = scale * (float)read_pair(qs, e) - min;
    }
}

static void decode_q3_k(const uint8_t *block, float *out) {
    const uint8_t *hmask = block, *qs = block + 32;
    uint8_t scales[RAMET_SCALES_SPREAD];
    ramet_scales_spread_q3(block + 96, scales);
    float d = read_half(block + 108);
    for (int e = 0; e < 256; e++) {
        int third = hmask[e % 32] >> (e / 32) & 1; /* set: nothing to subtract */
        out[e] = d * (float)(int8_t)scales[e / 16] * (float)(read_pair(qs, e) - (third ? 0 : 4));
    }
}

/* Half a byte of element e: each 64 elements share 32 bytes, the first 32 in the low halves. */
static int read_half_byte(const uint8_t *qs, int e) {
    return qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15;
}

/* qh is NULL for Q4_K. */
static void decode_q45_k(const uint8_t *block, const uint8_t *qh, const uint8_t *qs, float *out) {
    float d = read_half(block), dmin = read_half(block + 2);
    uint8_t spread[RAMET_SCALES_SPREAD];
    ramet_scales_spread_q4(block + 4, spread);
    for (int e = 0; e < 256; e++) {
        float scale = d * (float)spread[e / 32], min = dmin * (float)spread[8 + e / 32];
        int fifth = qh ? (qh[e % 32] >> (e / 32) & 1) << 4 : 0;
        out[e] = scale * (float)(read_half_byte(qs, e) | fifth) - min;
    }
}

static void decode_q4_k(const uint8_t *block, float *out) {
    decode_q45_k(block, NULL, block + 16, out);
}
static void decode_q5_k(const uint8_t *block, float *out) {
    decode_q45_k(block, block + 16, block + 48, out);
}

/* ql: each 128 elements share 64 bytes, the first 64 in the low halves. qh: as read_pair. */
static void decode_q6_k(const uint8_t *block, float *out) {
    const uint8_t *ql = block, *qh = block + 128, *scales = block + 192;
    float d = read_half(block + 208);
    for (int e = 0; e < 256; e++) {
        int low = ql[e / 128 * 64 + e % 64] >> (e / 64 % 2 * 4) & 15;
        out[e] = d * (float)(int8_t)scales[e / 16] * (float)((low | read_pair(qh, e) << 4) - 32);
    }
}

static void (*const decoders[RAMET_DTYPE_COUNT])(const uint8_t *block, float *out) = {
    [RAMET_F32] = decode_f32,   [RAMET_F16] = decode_f16,   [RAMET_BF16] = decode_bf16, [RAMET_Q4_0] = decode_q4_0,
    [RAMET_Q4_1] = decode_q4_1, [RAMET_Q5_0] = decode_q5_0, [RAMET_Q5_1] = decode_q5_1, [RAMET_Q8_0] = decode_q8_0,
    [RAMET_Q2_K] = decode_q2_k, [RAMET_Q3_K] = decode_q3_k, [RAMET_Q4_K] = decode_q4_k, [RAMET_Q5_K] = decode_q5_k,
    [RAMET_Q6_K] = decode_q6_k,
};

void ramet_dequantize_row(ramet_dtype dtype, const uint8_t *row, uint64_t n_k, float *out) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    RAMET_ASSERT(info && n_k % info->block == 0, "dequantize: type %d, %llu elements", (int)dtype,
                 (unsigned long long)n_k);
    for (uint64_t k = 0; k < n_k; k += info->block, row += info->block_bytes) decoders[dtype](row, out + k);
}
