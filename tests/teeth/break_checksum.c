/* break_checksum.c - a fault for tests/faults: the checksum of a chunk is the same whatever its bytes. */
#include "base/hash.h"

#include <string.h>

void __wrap_ramet_xxh128_pair(const void *data, size_t bytes, const void *more, size_t more_bytes, uint8_t out[16]);

void __wrap_ramet_xxh128_pair(const void *data, size_t bytes, const void *more, size_t more_bytes, uint8_t out[16]) {
    (void)data, (void)bytes, (void)more, (void)more_bytes;
    memset(out, 0, 16);
}
