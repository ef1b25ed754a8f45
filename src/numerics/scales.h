/* scales.h - the 6-bit scales of K-quants: 12 bytes in the file, 16 bytes spread. Spreading loses nothing: pack is its
 * exact inverse. Owns these bit layouts; refuses to know the blocks around them. */
#ifndef RAMET_NUMERICS_SCALES_H
#define RAMET_NUMERICS_SCALES_H

#include <stdint.h>

enum { RAMET_SCALES_PACKED = 12, RAMET_SCALES_SPREAD = 16 };

/* Q4_K and Q5_K: out[0..7] are the scales of the sub-blocks, out[8..15] their mins; each 0..63. */
void ramet_scales_spread_q4(const uint8_t *packed, uint8_t *out);
void ramet_scales_pack_q4(const uint8_t *spread, uint8_t *out);
/* Q3_K: 16 scales as int8, each -32..31. */
void ramet_scales_spread_q3(const uint8_t *packed, uint8_t *out);
void ramet_scales_pack_q3(const uint8_t *spread, uint8_t *out);

#endif
