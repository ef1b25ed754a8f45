/* bytes.h - numbers as bytes in files, nonces and hashes: little-endian whatever the machine. */
#ifndef RAMET_BASE_BYTES_H
#define RAMET_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* The lowest `bytes` of them. */
static inline void ramet_put_le(uint8_t *out, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t ramet_get_le(const uint8_t *in, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

#endif
