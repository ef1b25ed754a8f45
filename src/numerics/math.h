/* math.h - our own elementary functions: polynomials with a written-down order of fma, the same bits everywhere.
 * No libm. Owns the definitions; kernels repeat them in SIMD, bit for bit. NaN in, NaN out (some NaN); the other
 * special values stand at each function. Errors given are of the whole domain, measured. */
#ifndef RAMET_NUMERICS_MATH_H
#define RAMET_NUMERICS_MATH_H

/* binary32, for the model path */

/* 1 ulp, denormal results included. exp(+-0) is exactly 1; below -103.98 exactly 0; above 88.73 +inf. */
float ramet_expf(float x);
/* 1.5 ulp. +-0 is kept; from about 9.02 on exactly 1. */
float ramet_tanhf(float x);
/* 1 / (1 + exp(-x)): 2.5 ulp. Exactly 0 below -88.73, where the true value is denormal. */
float ramet_sigmoidf(float x);
/* x / (1 + exp(-x)): 2.5 ulp. -0 below -88.73; -inf gives NaN. */
float ramet_siluf(float x);
/* The tanh form 0.5 x (1 + tanh y), y = sqrt(2/pi) (x + 0.044715 x^3), computed as x / (1 + exp(-2 y)): 3 ulp above -1;
 * below, the error in ulps grows with |2 y| while the value vanishes. -inf gives NaN. */
float ramet_geluf(float x);
/* 1 ulp. log(+-0) = -inf; below 0 NaN. */
float ramet_logf(float x);
/* IEEE square root. */
float ramet_sqrtf(float x);

/* binary64, for rope tables and log-probabilities. Relative errors below 2e-16; sin and cos absolute below 1e-16. */
double ramet_exp2(double x);
double ramet_log2(double x); /* log2(+-0) = -inf; below 0 NaN */
double ramet_log(double x);
double ramet_pow(double base, double exponent);                /* base positive and finite, else NaN */
void ramet_sincos(double x, double *out_sin, double *out_cos); /* |x| up to 1e9, NaN beyond */

#endif
