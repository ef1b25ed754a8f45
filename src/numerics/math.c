/* math.c - see math.h. Every line below is part of the numerics contract: a change of a constant or of an order changes
 * bits, and so the contract's version.
 *
 * The polynomials are least-maximum-error fits of our own, coefficients rounded one by one from the lowest up. Binary32
 * functions use binary32 alone, and only what a SIMD lane can repeat: add, mul, fma, div, compare and select, integer
 * add and shift. Refuses to know libm but for fma, which is one IEEE operation. */
#include "numerics/math.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "the contract needs arithmetic in the declared type, without excess precision");

static float make_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t read_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static double make_double(uint64_t bits) {
    double f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint64_t read_double(double f) {
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* ---------------------------------------------------------------- binary32 ---- */

/* exp(x) = 2^n exp(r), n the integer nearest to x / ln 2, |r| <= ln 2 / 2 and a little. */
float ramet_expf(float x) {
    /* Outside this range the result is 0 or infinity anyway. NaN fails both comparisons and goes on. */
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;

    /* Adding 1.5 * 2^23 rounds to an integer, half to even, and leaves it in the low bits. */
    const float magic = 0x1.8p23f;
    float shifted = fmaf(x, 0x1.715476p0f, magic);
    float n = shifted - magic;
    float r = fmaf(n, -0x1.62e43p-1f, x); /* exact */
    r = fmaf(n, 0x1.05c61p-29f, r);

    float p = 0x1.6a53ecp-10f;
    p = fmaf(p, r, 0x1.123986p-7f);
    p = fmaf(p, r, 0x1.5558aep-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);

    /* 2^n in two factors, both normal numbers: the first product is exact, so a denormal result rounds once. For NaN
     * the factors are arbitrary bits, and p stays NaN. */
    uint32_t whole = read_float(shifted) - read_float(magic);
    uint32_t half = (uint32_t)((int32_t)whole >> 1);
    return p * make_float((half + 127) << 23) * make_float((whole - half + 127) << 23);
}

/* Below 0.625 a polynomial, above it 1 - 2 / (exp(2 |x|) + 1): compute both and select. */
float ramet_tanhf(float x) {
    uint32_t sign = read_float(x) & 0x80000000;
    float a = make_float(read_float(x) & 0x7fffffff), u = a * a;

    float p = -0x1.756d1cp-8f;
    p = fmaf(p, u, 0x1.520a3ap-6f);
    p = fmaf(p, u, -0x1.b83792p-5f);
    p = fmaf(p, u, 0x1.1106fep-3f);
    p = fmaf(p, u, -0x1.555532p-2f);
    float small = fmaf(a * u, p, a);
    float large = 1.0f - 2.0f / (ramet_expf(2.0f * a) + 1.0f);
    return make_float(read_float(a < 0.625f ? small : large) | sign);
}

float ramet_sigmoidf(float x) {
    return 1.0f / (1.0f + ramet_expf(-x));
}

float ramet_siluf(float x) {
    return x / (1.0f + ramet_expf(-x));
}

/* (1 + tanh y) / 2 is 1 / (1 + exp(-2 y)): this form has no cancellation for negative x, and one division. */
float ramet_geluf(float x) {
    float cubic = fmaf(0x1.6e4e26p-5f * (x * x), x, x);     /* x + 0.044715 x^3 */
    return x / (1.0f + ramet_expf(-0x1.988454p0f * cubic)); /* 2 sqrt(2 / pi) */
}

/* log(x) = e ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)). */
float ramet_logf(float x) {
    if (!(x > 0.0f)) return x == 0.0f ? -HUGE_VALF : make_float(0x7fc00000);
    if (x == HUGE_VALF) return x;

    float denormal = x < FLT_MIN ? 25.0f : 0.0f;
    uint32_t bits = read_float(x < FLT_MIN ? x * 0x1p25f : x) - 0x3f3504f3; /* sqrt(1/2): exponent steps there */
    float e = (float)((int32_t)bits >> 23) - denormal;
    float f = make_float((bits & 0x007fffff) + 0x3f3504f3) - 1.0f; /* exact */

    float p = -0x1.38d81ap-4f;
    p = fmaf(p, f, 0x1.056160p-3f);
    p = fmaf(p, f, -0x1.0d81c6p-3f);
    p = fmaf(p, f, 0x1.22d910p-3f);
    p = fmaf(p, f, -0x1.547292p-3f);
    p = fmaf(p, f, 0x1.99a01ep-3f);
    p = fmaf(p, f, -0x1.000226p-2f);
    p = fmaf(p, f, 0x1.555554p-2f);
    float f2 = f * f;
    float tail = fmaf(f2 * f, p, -0.5f * f2);
    tail = fmaf(e, -0x1.05c61p-29f, tail);
    return fmaf(e, 0x1.62e43p-1f, f + tail);
}

float ramet_sqrtf(float x) {
    return __builtin_sqrtf(x);
}

/* ---------------------------------------------------------------- binary64 ---- */

/* 2^(hi + lo); |lo| is far below 1. */
static double raise_two(double hi, double lo) {
    if (hi > 1100.0) return HUGE_VAL;
    if (hi < -1100.0) return 0.0;
    if (hi != hi) return hi;

    const double magic = 0x1.8p52;
    double shifted = (hi + lo) + magic;
    double r = (hi - (shifted - magic)) + lo;

    double p = 0x1.e80baf0a0ef34p-32;
    p = fma(p, r, 0x1.e611a71dae64fp-28);
    p = fma(p, r, 0x1.b5260fe8b15a0p-24);
    p = fma(p, r, 0x1.62bfcddae9820p-20);
    p = fma(p, r, 0x1.ffcbfbf7a5a13p-17);
    p = fma(p, r, 0x1.4309130c0234fp-13);
    p = fma(p, r, 0x1.5d87fe78b3f4cp-10);
    p = fma(p, r, 0x1.3b2ab6fba11f2p-7);
    p = fma(p, r, 0x1.c6b08d704a0d3p-5);
    p = fma(p, r, 0x1.ebfbdff82c59cp-3);
    p = fma(p, r, 0x1.62e42fefa39efp-1);
    p = fma(p, r, 1.0);

    uint64_t whole = read_double(shifted) - read_double(magic);
    uint64_t half = (uint64_t)((int64_t)whole >> 1);
    return p * make_double((half + 1023) << 52) * make_double((whole - half + 1023) << 52);
}

/* log2(x) as an unevaluated sum hi + lo, for positive finite x. With s = f / (2 + f), log(1 + f) = 2 atanh(s). */
static double take_log2(double x, double *out_lo) {
    const uint64_t root_half = 0x3fe6a09e667f3bcd;
    double denormal = x < DBL_MIN ? 54.0 : 0.0;
    uint64_t bits = read_double(x < DBL_MIN ? x * 0x1p54 : x) - root_half;
    double e = (double)((int64_t)bits >> 52) - denormal;
    double m = make_double((bits & 0x000fffffffffffff) + root_half);

    /* s to twice the precision: the sum m + 1 and the quotient with what they rounded away. */
    double f = m - 1.0, sum = m + 1.0;
    double sum_lo = m - (sum - 1.0);
    double s = f / sum;
    double s_lo = (fma(-s, sum, f) - s * sum_lo) / sum;
    double z = s * s;

    double p = 0x1.0f0c7b70ea554p-4;
    p = fma(p, z, 0x1.0f676548e0b10p-4);
    p = fma(p, z, 0x1.3b202346f9557p-4);
    p = fma(p, z, 0x1.745ce1ce60137p-4);
    p = fma(p, z, 0x1.c71c724b5a8c2p-4);
    p = fma(p, z, 0x1.249249243984dp-3);
    p = fma(p, z, 0x1.9999999999d11p-3);
    p = fma(p, z, 0x1.5555555555555p-2);
    double log_hi = 2.0 * s, log_lo = 2.0 * fma(s * z, p, s_lo);

    const double log2e = 0x1.71547652b82fep0, log2e_lo = 0x1.777d0ffda0d24p-56;
    double hi = log_hi * log2e;
    double lo = fma(log_hi, log2e, -hi) + fma(log_hi, log2e_lo, log_lo * log2e);
    double top = e + hi; /* |e| >= 1 > |hi|, or e = 0: either way the next line is exact */
    lo = (hi - (top - e)) + lo;
    double result = top + lo;
    *out_lo = lo - (result - top);
    return result;
}

/* Whether a logarithm's argument needs no arithmetic; then *out is the result. */
static bool settle_log(double x, double *out) {
    if (x > 0.0 && x < HUGE_VAL) return false;
    *out = x == 0.0 ? -HUGE_VAL : x > 0.0 ? x : make_double(0x7ff8000000000000);
    return true;
}

double ramet_exp2(double x) {
    return raise_two(x, 0.0);
}

double ramet_log2(double x) {
    double result, lo;
    return settle_log(x, &result) ? result : take_log2(x, &lo);
}

double ramet_log(double x) {
    double result, lo;
    if (settle_log(x, &result)) return result;
    const double ln2 = 0x1.62e42fefa39efp-1, ln2_lo = 0x1.abc9e3b39803fp-56;
    double hi = take_log2(x, &lo);
    result = hi * ln2;
    return result + (fma(hi, ln2, -result) + fma(hi, ln2_lo, lo * ln2));
}

double ramet_pow(double base, double exponent) {
    double settled, lo;
    if (settle_log(base, &settled)) return make_double(0x7ff8000000000000);
    double log_hi = take_log2(base, &lo);
    double hi = log_hi * exponent;
    return raise_two(hi, fma(log_hi, exponent, -hi) + lo * exponent);
}

/* x = k pi/2 + r + r_lo. The quadrant k picks and signs the two polynomials. */
void ramet_sincos(double x, double *out_sin, double *out_cos) {
    if (!(x >= -1e9 && x <= 1e9)) {
        *out_sin = *out_cos = make_double(0x7ff8000000000000);
        return;
    }
    const double magic = 0x1.8p52, pi2 = 0x1.921fb54442d18p0, pi2_mid = 0x1.1a62633145c07p-54;
    double shifted = fma(x, 0x1.45f306dc9c883p-1, magic);
    double k = shifted - magic;
    double near = fma(-k, pi2, x); /* exact: |k| is below 2^30 */
    double mid = k * pi2_mid, r = near - mid;
    double r_lo = (near - r) - mid; /* what the subtraction lost, then what the product lost, then the third part */
    r_lo = fma(k, 0x1.f1976b7ed8fbcp-110, r_lo - fma(k, pi2_mid, -mid));
    double z = r * r;

    double p = 0x1.5d93a9b69b326p-33;
    p = fma(p, z, -0x1.ae5e68b05f22bp-26);
    p = fma(p, z, 0x1.71de357b29e3ep-19);
    p = fma(p, z, -0x1.a01a019c161d3p-13);
    p = fma(p, z, 0x1.111111110f8a6p-7);
    p = fma(p, z, -0x1.5555555555549p-3);
    double sine = r + fma(r * z, p, r_lo);

    double q = -0x1.8fb1351335e00p-37;
    q = fma(q, z, 0x1.1ee9f15973159p-29);
    q = fma(q, z, -0x1.27e4f812beacap-22);
    q = fma(q, z, 0x1.a01a019cbf68fp-16);
    q = fma(q, z, -0x1.6c16c16c1521fp-10);
    q = fma(q, z, 0x1.555555555554cp-5);
    double half_z = 0.5 * z, most = 1.0 - half_z;
    double cosine = most + (((1.0 - most) - half_z) + fma(z * z, q, -(r * r_lo)));

    uint64_t quadrant = read_double(shifted) & 3;
    double s = quadrant & 1 ? cosine : sine, c = quadrant & 1 ? sine : cosine;
    *out_sin = quadrant & 2 ? -s : s;
    *out_cos = (quadrant + 1) & 2 ? -c : c;
}
