/* inline.h - how the vector kernels ask the compiler for straight code. */
#ifndef RAMET_KERNELS_INLINE_H
#define RAMET_KERNELS_INLINE_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* In front of a loop whose count is constant once inlined. Sanitizers check each access: unrolled, it takes minutes. */
#ifdef RAMET_SANITIZED
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
