/* words.h - quants of a panel as vectors of unsigned bytes, for whatever width the including file chose. It defines
 *   VEC, VLOAD(p), VAND, VOR, VXOR, VBYTES(b) b in every byte, VSLL(v, n), VSRL(v, n) on lanes of 8 or 16 bits.
 * A block is cut into runs of 16 elements, a run into 4 words of 4. The caller loops over `outer` and unrolls over
 * `inner` and `word`, so that shifts by these are constants. Signed types come with quant_offset added.
 *
 * Owns the picking apart of bytes (panel.h has the layout); refuses to know sums. */
#ifndef RAMET_KERNELS_WORDS_H
#define RAMET_KERNELS_WORDS_H

#include "kernels/inline.h"
#include "numerics/panel.h"

/* What is added to the signed quant to make it the unsigned one of unpack_word. */
ALWAYS_INLINE int32_t quant_offset(ramet_dtype type) {
    switch (type) {
    case RAMET_Q4_0: return 8;
    case RAMET_Q5_0: return 16;
    case RAMET_Q8_0: return 128;
    case RAMET_Q3_K: return 4;
    case RAMET_Q6_K: return 32;
    default: return 0;
    }
}

ALWAYS_INLINE bool is_q45_k(ramet_dtype type) {
    return type == RAMET_Q4_K || type == RAMET_Q5_K;
}
/* Types with an integer scale for each run of 16. */
ALWAYS_INLINE bool has_run_scales(ramet_dtype type) {
    return type == RAMET_Q2_K || type == RAMET_Q3_K || type == RAMET_Q6_K;
}
ALWAYS_INLINE bool has_offset32(ramet_dtype type) {
    return type == RAMET_Q4_1 || type == RAMET_Q5_1 || is_q45_k(type);
}

/* A block is cut into parts whose quants share bytes, a part into halves of 32 elements, a half into 2 runs. */
ALWAYS_INLINE uint32_t parts_per_block(ramet_dtype type) {
    return is_q45_k(type) ? 4 : has_run_scales(type) ? 2 : 1;
}
ALWAYS_INLINE uint32_t halves_per_part(ramet_dtype type) {
    return is_q45_k(type) ? 2 : has_run_scales(type) ? 4 : 1;
}

/* Moves bit field `from` to bit `to` of each byte, and clears the rest; mask is of the result. */
ALWAYS_INLINE VEC move_bits(VEC v, int from, int to, char mask) {
    if (from < to) v = VSLL(v, to - from);
    if (from > to) v = VSRL(v, from - to);
    return VAND(v, VBYTES(mask));
}

ALWAYS_INLINE VEC unpack_q4(const uint8_t *qs, uint32_t inner, uint32_t word) {
    return move_bits(VLOAD(qs + 64 * word), inner ? 4 : 0, 0, 0x0f);
}

ALWAYS_INLINE VEC unpack_q5(const uint8_t *qh, const uint8_t *qs, uint32_t inner, uint32_t word) {
    return VOR(unpack_q4(qs, inner, word), move_bits(VLOAD(qh), (int)(4 * inner + word), 4, 0x10));
}

/* inner = 2 * nibble + run of the sub-block. */
ALWAYS_INLINE VEC unpack_q4_k(const uint8_t *qs, uint32_t outer, uint32_t inner, uint32_t word) {
    return move_bits(VLOAD(qs + 64 * (8 * outer + 4 * (inner % 2) + word)), inner / 2 ? 4 : 0, 0, 0x0f);
}

ALWAYS_INLINE VEC unpack_q5_k(const uint8_t *qh, const uint8_t *qs, uint32_t outer, uint32_t inner, uint32_t word) {
    VEC high = VSRL(VLOAD(qh + 64 * (4 * (inner % 2) + word)), (int)(2 * outer));
    return VOR(unpack_q4_k(qs, outer, inner, word), move_bits(high, (int)(inner / 2), 4, 0x10));
}

/* inner = 2 * (32 elements) + run of them, here and below. */
ALWAYS_INLINE VEC unpack_q6_k(const uint8_t *ql, const uint8_t *qh, uint32_t outer, uint32_t inner, uint32_t word) {
    uint32_t pair = inner / 2, at = 4 * (inner % 2) + word;
    VEC low = VLOAD(ql + 64 * (16 * outer + 8 * (pair % 2) + at)), high = VLOAD(qh + 64 * (8 * outer + at));
    return VOR(move_bits(low, pair / 2 ? 4 : 0, 0, 0x0f), move_bits(high, (int)(2 * pair), 4, 0x30));
}

ALWAYS_INLINE VEC unpack_q2_k(const uint8_t *qs, uint32_t outer, uint32_t inner, uint32_t word) {
    return move_bits(VLOAD(qs + 64 * (8 * outer + 4 * (inner % 2) + word)), (int)(2 * (inner / 2)), 0, 0x03);
}

ALWAYS_INLINE VEC unpack_q3_k(const uint8_t *hmask, const uint8_t *qs, uint32_t outer, uint32_t inner, uint32_t word) {
    VEC high = VSRL(VLOAD(hmask + 64 * (4 * (inner % 2) + word)), (int)(4 * outer));
    return VOR(unpack_q2_k(qs, outer, inner, word), move_bits(high, (int)(inner / 2), 2, 0x04));
}

/* Word `word` of a run, 4 bytes for each of the rows that start `at` bytes into each word of 16 rows. */
ALWAYS_INLINE VEC unpack_word(ramet_dtype type, const uint8_t *block, uint32_t outer, uint32_t inner, uint32_t word,
                              uint32_t at) {
    const uint8_t *b = block + at;
    switch (type) {
    case RAMET_Q4_0: return unpack_q4(b + RAMET_Q4_0_QS, inner, word);
    case RAMET_Q4_1: return unpack_q4(b + RAMET_Q4_1_QS, inner, word);
    case RAMET_Q5_0: return unpack_q5(b + RAMET_Q5_0_QH, b + RAMET_Q5_0_QS, inner, word);
    case RAMET_Q5_1: return unpack_q5(b + RAMET_Q5_1_QH, b + RAMET_Q5_1_QS, inner, word);
    case RAMET_Q2_K: return unpack_q2_k(b + RAMET_Q2_K_QS, outer, inner, word);
    case RAMET_Q3_K: return unpack_q3_k(b + RAMET_Q3_K_HMASK, b + RAMET_Q3_K_QS, outer, inner, word);
    case RAMET_Q4_K: return unpack_q4_k(b + RAMET_Q4_K_QS, outer, inner, word);
    case RAMET_Q5_K: return unpack_q5_k(b + RAMET_Q5_K_QH, b + RAMET_Q5_K_QS, outer, inner, word);
    case RAMET_Q6_K: return unpack_q6_k(b + RAMET_Q6_K_QL, b + RAMET_Q6_K_QH, outer, inner, word);
    default: return VXOR(VLOAD(b + RAMET_Q8_0_QS + 64 * (4 * inner + word)), VBYTES((char)0x80)); /* Q8_0 */
    }
}

ALWAYS_INLINE uint32_t block_bytes(ramet_dtype type) {
    switch (type) {
    case RAMET_Q4_0: return RAMET_Q4_0_BYTES;
    case RAMET_Q4_1: return RAMET_Q4_1_BYTES;
    case RAMET_Q5_0: return RAMET_Q5_0_BYTES;
    case RAMET_Q5_1: return RAMET_Q5_1_BYTES;
    case RAMET_Q8_0: return RAMET_Q8_0_BYTES;
    case RAMET_Q2_K: return RAMET_Q2_K_BYTES;
    case RAMET_Q3_K: return RAMET_Q3_K_BYTES;
    case RAMET_Q4_K: return RAMET_Q4_K_BYTES;
    case RAMET_Q5_K: return RAMET_Q5_K_BYTES;
    default: return RAMET_Q6_K_BYTES;
    }
}

/* Every block starts with its 16 d; with a second array of 16, it comes next. */
enum { SECOND_SCALE = 32 };

ALWAYS_INLINE const uint8_t *run_scales(ramet_dtype type, const uint8_t *block) {
    return block + (type == RAMET_Q6_K || type == RAMET_Q3_K ? RAMET_Q6_K_SCALES : RAMET_Q4_K_SCALES);
}

#endif
