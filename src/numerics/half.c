/* half.c - binary16 and bfloat16 conversions in integer arithmetic: no hardware conversion, no float rounding mode.
 * NaN stays NaN: the payload's upper bits are kept and the quiet bit is set, as the hardware conversions do. */
#include "numerics/half.h"

#include <string.h>

static float make_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t read_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float ramet_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude > 0x7c00) return make_float(sign | 0x7fc00000 | magnitude << 13); /* NaN, made quiet */
    if (magnitude == 0x7c00) return make_float(sign | 0x7f800000);
    if (magnitude >= 0x0400) return make_float(sign | ((magnitude << 13) + (112u << 23)));
    /* Zero or denormal: an integer of at most 10 bits times 2^-24; both steps are exact. */
    float value = (float)(int32_t)magnitude * 0x1p-24f;
    return make_float(sign | read_bits(value));
}

uint16_t ramet_f32_to_f16(float f) {
    uint32_t bits = read_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x01ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* from 65520, halfway past the largest, on */
    if (magnitude <= 0x33000000) return (uint16_t)sign;            /* up to 2^-25, halfway to the smallest */

    uint32_t exponent = magnitude >> 23, mantissa = (magnitude & 0x007fffff) | 0x00800000;
    /* Bits of the mantissa to drop: 13, and for a denormal result (exponent below 113) as many more. */
    uint32_t drop = exponent < 113 ? 126 - exponent : 13;
    uint32_t base = exponent < 113 ? 0 : (exponent - 113) << 10;
    uint32_t kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    /* A normal's implicit bit is in `kept` and carries one exponent step, and so does a mantissa that rounds over. */
    return (uint16_t)(sign | (base + kept));
}

float ramet_bf16_to_f32(uint16_t h) {
    return make_float((uint32_t)h << 16);
}
