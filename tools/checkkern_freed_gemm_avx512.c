/* checkkern_freed_gemm_avx512.c - see checkkern_freed_avx512.c. */
#if defined(__x86_64__)
#define CHAINS                 2
#define ramet_gemm_fill_avx512 ramet_gemm_fill_freed
#include "kernels/x86/gemm_avx512.c"
#endif
