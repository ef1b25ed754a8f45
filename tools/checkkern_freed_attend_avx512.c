/* checkkern_freed_attend_avx512.c - the library's attention with the order of its sums freed: see CHAINS in
 * attend_tiles.h. */
#if defined(__x86_64__)
#define CHAINS                  2
#define ramet_lanes_fill_avx512 ramet_attend_fill_freed
#include "kernels/x86/lanes_avx512.c"
#endif
