/* lanes_neon.c - all but the products and their activations, with the vectors of lanes_neon.h. */
#if defined(__aarch64__)
#include "kernels/arm/lanes_neon.h"

/* Up to 16 sums at once, of 32 registers. */
#define TILE_SIZES(X) X(4) X(3) X(2) X(1)
enum { MAX_QUERIES = 4 };

ALWAYS_INLINE uint32_t widest_tile(uint32_t queries) {
    return queries >= 3 ? 4 : 8;
}
#include "kernels/attend_tiles.h"
#include "kernels/kv_lanes.h"
#include "kernels/vector_lanes.h"

void ramet_lanes_fill_neon(ramet_kernels *table) {
    fill_attend(table);
    fill_kv(table);
    fill_vector(table);
}
#endif
