/* dtype.c - see dtype.h. */
#include "numerics/dtype.h"

static const ramet_dtype_info table[RAMET_DTYPE_COUNT] = {
    [RAMET_F32] = {"F32", 1, 4, 4},         [RAMET_F16] = {"F16", 1, 2, 2},
    [RAMET_BF16] = {"BF16", 1, 2, 2},       [RAMET_Q4_0] = {"Q4_0", 32, 18, 18},
    [RAMET_Q4_1] = {"Q4_1", 32, 20, 20},    [RAMET_Q5_0] = {"Q5_0", 32, 22, 22},
    [RAMET_Q5_1] = {"Q5_1", 32, 24, 24},    [RAMET_Q8_0] = {"Q8_0", 32, 34, 34},
    [RAMET_Q2_K] = {"Q2_K", 256, 84, 84},   [RAMET_Q3_K] = {"Q3_K", 256, 110, 114},
    [RAMET_Q4_K] = {"Q4_K", 256, 144, 148}, [RAMET_Q5_K] = {"Q5_K", 256, 176, 180},
    [RAMET_Q6_K] = {"Q6_K", 256, 210, 210},
};

const ramet_dtype_info *ramet_dtype_get(uint32_t dtype) {
    return dtype < RAMET_DTYPE_COUNT && table[dtype].name ? &table[dtype] : 0;
}
