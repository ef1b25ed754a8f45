/* lanes_avx512.c - all but the products and their activations, with the vectors of lanes_avx512.h. */
#if defined(__x86_64__)
#include "kernels/x86/lanes_avx512.h"

/* Up to 24 sums at once, of 32 registers. */
#define TILE_SIZES(X) X(6) X(4) X(3) X(2) X(1)
enum { MAX_QUERIES = 6 };

ALWAYS_INLINE uint32_t widest_tile(uint32_t queries) {
    (void)queries;
    return 4;
}
#include "kernels/attend_tiles.h"
#include "kernels/kv_lanes.h"
#include "kernels/vector_lanes.h"

void ramet_lanes_fill_avx512(ramet_kernels *table) {
    fill_attend(table);
    fill_kv(table);
    fill_vector(table);
}
#endif
