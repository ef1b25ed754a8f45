/* lanes_avx2.c - all but the products and their activations, with the vectors of lanes_avx2.h. */
#if defined(__x86_64__)
#include "kernels/x86/lanes_avx2.h"

/* Eight to twelve sums at once hide the latency of an fma and leave registers, of 16, for the rest. */
#define TILE_SIZES(X) X(6) X(4) X(3) X(2) X(1)
enum { MAX_QUERIES = 6 };

ALWAYS_INLINE uint32_t widest_tile(uint32_t queries) {
    return queries == 1 ? 8 : queries == 2 ? 4 : 2;
}
#include "kernels/attend_tiles.h"
#include "kernels/kv_lanes.h"
#include "kernels/vector_lanes.h"

void ramet_lanes_fill_avx2(ramet_kernels *table) {
    fill_attend(table);
    fill_kv(table);
    fill_vector(table);
}
#endif
