/* attend_avx512.c - attention 16 lanes wide, four queries at a time. */
#if defined(__x86_64__)
#include "kernels/x86/weigh_avx2.h"

ALWAYS_INLINE __mmask16 first_16_lanes(uint32_t n) {
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff);
}

#define FVEC                 __m512
#define FLANES               16
#define FLOAD                _mm512_loadu_ps
#define FLOAD_SOME(p, n)     _mm512_maskz_loadu_ps(first_16_lanes(n), p)
#define FSTORE               _mm512_storeu_ps
#define FSTORE_SOME(p, n, v) _mm512_mask_storeu_ps(p, first_16_lanes(n), v)
#define FSET1                _mm512_set1_ps
#define FMUL                 _mm512_mul_ps
#define FFMA                 _mm512_fmadd_ps
#define MAX_QUERIES          4

ALWAYS_INLINE uint32_t widest_tile(uint32_t queries) {
    (void)queries;
    return 4;
}

#include "kernels/attend_tiles.h"

void ramet_attend_fill_avx512(ramet_kernels *table) {
    table->attend = attend_segment;
}
#endif
