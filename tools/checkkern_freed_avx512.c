/* checkkern_freed_avx512.c - the library's matmuls with the order of their sums freed: two float chains per output. */
#if defined(__x86_64__)
#define CHAINS                   2
#define ramet_matmul_fill_avx512 ramet_matmul_fill_freed
#define ramet_gemm_fill_avx512   ramet_gemm_fill_freed
#include "kernels/x86/matmul_avx512.c"
#endif
