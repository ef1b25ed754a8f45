/* heap_map.h - file mappings that lie on the heap: in a target linked with --wrap, ramet_file_map_open gives a copy of the
 * fuzzer's bytes for any path. Exactly as large as the file, so that a sanitizer sees a read past its end, which in a
 * mapping it cannot: the rest of the last page is there and zero. */
#ifndef RAMET_FUZZ_HEAP_MAP_H
#define RAMET_FUZZ_HEAP_MAP_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of every file from now on; borrowed. */
void heap_map_set(const uint8_t *data, size_t bytes);
/* But for the second part of a split model, "-00002-of-" in its name: these. */
void heap_map_set_second(const uint8_t *data, size_t bytes);

#endif
