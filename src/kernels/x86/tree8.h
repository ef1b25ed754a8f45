/* tree8.h - the fixed tree of tables.h from 8 lanes down, for both widths. */
#ifndef RAMET_KERNELS_X86_TREE8_H
#define RAMET_KERNELS_X86_TREE8_H

#include "kernels/inline.h"

#include <immintrin.h>

#define DEFINE_TREE8(op)                                                                                               \
    ALWAYS_INLINE float tree8_##op(__m256 t8) {                                                                        \
        const __m128 t4 = _mm_##op##_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));                     \
        const __m128 t2 = _mm_##op##_ps(t4, _mm_movehl_ps(t4, t4));                                                    \
        return _mm_cvtss_f32(_mm_##op##_ss(t2, _mm_movehdup_ps(t2)));                                                  \
    }
DEFINE_TREE8(add)
DEFINE_TREE8(max)
DEFINE_TREE8(min)

#endif
