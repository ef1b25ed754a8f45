/* half.h - IEEE binary16 and bfloat16, exact conversions; to narrower: round to nearest, ties to even. */
#ifndef RAMET_NUMERICS_HALF_H
#define RAMET_NUMERICS_HALF_H

#include <stdint.h>

float ramet_f16_to_f32(uint16_t h);
uint16_t ramet_f32_to_f16(float f);
float ramet_bf16_to_f32(uint16_t h);

#endif
