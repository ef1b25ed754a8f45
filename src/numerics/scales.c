/* scales.c - see scales.h. */
#include "numerics/scales.h"

#include <string.h>

/* Bytes 0..3: the scale of sub-block j below 4, bytes 4..7: the min of j below 4, in their low 6 bits. Byte 8 + j: the
 * low four bits of the scale and, above them, of the min of sub-block 4 + j, whose upper two bits top bytes j and 4 +
 * j. */
void ramet_scales_spread_q4(const uint8_t *packed, uint8_t *out) {
    for (int j = 0; j < 4; j++) {
        out[j] = packed[j] & 63;
        out[8 + j] = packed[4 + j] & 63;
        out[4 + j] = (uint8_t)((packed[8 + j] & 15) | (packed[j] >> 6) << 4);
        out[12 + j] = (uint8_t)(packed[8 + j] >> 4 | (packed[4 + j] >> 6) << 4);
    }
}

void ramet_scales_pack_q4(const uint8_t *spread, uint8_t *out) {
    for (int j = 0; j < 4; j++) {
        out[j] = (uint8_t)(spread[j] | (spread[4 + j] >> 4) << 6);
        out[4 + j] = (uint8_t)(spread[8 + j] | (spread[12 + j] >> 4) << 6);
        out[8 + j] = (uint8_t)((spread[4 + j] & 15) | (spread[12 + j] & 15) << 4);
    }
}

/* The low four bits of scales 0..7 and 8..15 are the low and the high halves of bytes 0..7; the upper two bits of scale
 * j are bits 2 (j / 4) and up of byte 8 + j % 4. */
void ramet_scales_spread_q3(const uint8_t *packed, uint8_t *out) {
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
        int high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
        out[j] = (uint8_t)((low | high << 4) - 32);
    }
}

void ramet_scales_pack_q3(const uint8_t *spread, uint8_t *out) {
    memset(out, 0, RAMET_SCALES_PACKED);
    for (int j = 0; j < 16; j++) {
        int value = (spread[j] + 32) & 63;
        out[j % 8] |= (uint8_t)((value & 15) << (j < 8 ? 0 : 4));
        out[8 + j % 4] |= (uint8_t)((value >> 4) << (2 * (j / 4)));
    }
}
