/* lanes.h - what every width of vector has in common, written once over the names that lanes_avx2.h, lanes_avx512.h or
 * lanes_neon.h defines before it includes this:
 *   FVEC, FLANES (4, 8 or 16), FMASK (an integer type or vector: & works on it)
 *   FLOAD(p), FLOAD_SOME(p, n): the first n floats, then zeros, FSTORE(p, v), FSTORE_SOME(p, n, v), FSET1(x)
 *   FADD, FSUB, FMUL, FDIV, FNEG, FABS, FFMA(a, b, c) = a * b + c
 *   FMAX(a, b) = a > b ? a : b and FMIN(a, b) = a < b ? a : b, also when one is NaN
 *   FLESS_EQUAL(a, b), FALL(mask), FSELECT(mask, a, b) = mask ? a : b
 *   visible_lanes(first, lo, hi): lanes i with lo <= first + i < hi
 *   tree16_add, tree16_max, tree16_min(t): the trees of tables.h, lane i of the 16 in t[i / FLANES]
 *   multiply_power(p, n, shifted): p * 2^n, rounded once; shifted is n + 1.5 * 2^23, n between -151 and 129
 *   load_pairs(p, &a, &b), store_pairs(p, a, b): 2 FLANES floats, a the even ones
 *   load_halves(p), store_halves(p, v): binary16; load_bytes(p), store_bytes(p, v): int8, rounded half to even */
#ifndef RAMET_KERNELS_LANES_H
#define RAMET_KERNELS_LANES_H

enum { GROUPS = 16 / FLANES }; /* vectors that make up the 16 lanes of a reduction */

/* ramet_expf of numerics/math.c, step by step. */
ALWAYS_INLINE FVEC exp_lanes(FVEC x) {
    x = FMIN(FSET1(89.0f), x);
    x = FMAX(FSET1(-104.0f), x);

    const FVEC magic = FSET1(0x1.8p23f);
    const FVEC shifted = FFMA(x, FSET1(0x1.715476p0f), magic);
    const FVEC n = FSUB(shifted, magic);
    FVEC r = FFMA(n, FSET1(-0x1.62e43p-1f), x);
    r = FFMA(n, FSET1(0x1.05c61p-29f), r);

    FVEC p = FSET1(0x1.6a53ecp-10f);
    p = FFMA(p, r, FSET1(0x1.123986p-7f));
    p = FFMA(p, r, FSET1(0x1.5558aep-5f));
    p = FFMA(p, r, FSET1(0x1.555492p-3f));
    p = FFMA(p, r, FSET1(0x1.fffffcp-2f));
    p = FFMA(p, r, FSET1(1.0f));
    p = FFMA(p, r, FSET1(1.0f));
    return multiply_power(p, n, shifted);
}

#endif
