/* dtype.h - the tensor types of GGUF that ramet reads: names, block sizes, block bytes. Numbers are GGUF's.
 * Owns the table; refuses to know where blocks come from. */
#ifndef RAMET_NUMERICS_DTYPE_H
#define RAMET_NUMERICS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ramet_dtype {
    RAMET_F32 = 0,
    RAMET_F16 = 1,
    RAMET_Q4_0 = 2,
    RAMET_Q4_1 = 3,
    RAMET_Q5_0 = 6,
    RAMET_Q5_1 = 7,
    RAMET_Q8_0 = 8,
    RAMET_Q2_K = 10,
    RAMET_Q3_K = 11,
    RAMET_Q4_K = 12,
    RAMET_Q5_K = 13,
    RAMET_Q6_K = 14,
    RAMET_BF16 = 30,
    RAMET_DTYPE_COUNT = 31,
} ramet_dtype;

typedef struct ramet_dtype_info {
    const char *name;     /* "Q4_K"; NULL: not a type that ramet reads */
    uint32_t block;       /* elements per block */
    uint32_t block_bytes; /* in the file */
    uint32_t lane_bytes;  /* of one row's block inside a panel; see panel.h */
} ramet_dtype_info;

/* NULL for a number that is not one of ours. */
const ramet_dtype_info *ramet_dtype_get(uint32_t dtype);

#endif
