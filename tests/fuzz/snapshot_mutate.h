/* snapshot_mutate.h - a mutator that renews what a snapshot's header says of its sizes, and its checksums, so that a
 * fuzzer gets behind them; and where the body lies. */
#ifndef RAMET_FUZZ_SNAPSHOT_MUTATE_H
#define RAMET_FUZZ_SNAPSHOT_MUTATE_H

#include <stddef.h>
#include <stdint.h>

enum { SNAPSHOT_HEADER_BYTES_OFF = 12 };

typedef struct snapshot_body {
    const uint8_t *data;
    size_t bytes;
} snapshot_body;

/* Of a file that is sound; empty when there is none within `bytes`. */
snapshot_body snapshot_body_of(const uint8_t *data, size_t bytes);

/* Changes data[0..bytes) in place, up to `most` bytes; returns how many there are now. */
size_t snapshot_mutate(uint8_t *data, size_t bytes, size_t most, unsigned seed);

#endif
