/* gguf_mutate.h - a mutator that knows where things lie in a GGUF file. A changed length makes everything behind it
 * nonsense, so plain mutation rarely gets past the first keys; this one changes a value, a name, a shape, an entry of an
 * array, and leaves the rest in step. Half of the mutations stay plain. */
#ifndef RAMET_FUZZ_GGUF_MUTATE_H
#define RAMET_FUZZ_GGUF_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* Changes data[0..bytes) in place, up to `most` bytes; returns how many there are now. */
size_t gguf_mutate(uint8_t *data, size_t bytes, size_t most, unsigned seed);

#endif
