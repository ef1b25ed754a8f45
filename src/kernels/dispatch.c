/* dispatch.c - fills the table: C first, then what this CPU has, an early return per instruction set.
 * Owns the detection and the names; refuses to know what a kernel computes. */
#include "kernels/tables.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports also asks whether the operating system saves the registers; f16c has no name in older clang.
 */
static bool has_avx2(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_F16C)) return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* The dot product of bytes; half precision and fma come with every AArch64. Apple's have had it from the first Mac on. */
static bool has_neon(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__APPLE__)
    return true;
#else
    return false; /* no way to ask is known */
#endif
}
#endif

void ramet_kernels_fill_c(ramet_kernels *table) {
    *table = (ramet_kernels){.name = "c"};
    ramet_quantize_fill_c(table);
    ramet_matmul_fill_c(table);
    ramet_vector_fill_c(table);
    ramet_attend_fill_c(table);
}

#if defined(__x86_64__)
static void fill_avx2(ramet_kernels *table) {
    table->name = "avx2";
    ramet_matmul_fill_avx2(table);
    ramet_lanes_fill_avx2(table);
    ramet_quantize_fill_avx2(table);
}

static void fill_avx512(ramet_kernels *table) {
    table->name = "avx512";
    ramet_matmul_fill_avx512(table);
    ramet_lanes_fill_avx512(table);
}
#elif defined(__aarch64__)
static void fill_neon(ramet_kernels *table) {
    table->name = "neon";
    ramet_matmul_fill_neon(table);
    ramet_lanes_fill_neon(table);
    ramet_quantize_fill_neon(table);
}
#endif

/* One rung above C: an instruction set, slowest first. */
typedef struct rung {
    const char *name;
    bool (*has)(void);
    void (*fill)(ramet_kernels *table);
} rung;

static const rung ladder[] = {
#if defined(__x86_64__)
    {"avx2", has_avx2, fill_avx2},
    {"avx512", has_avx512, fill_avx512},
#elif defined(__aarch64__)
    {"neon", has_neon, fill_neon},
#endif
    {NULL, NULL, NULL},
};

bool ramet_kernels_init(ramet_kernels *out, const char *limit) {
    ramet_kernels_fill_c(out);
    for (const rung *r = ladder; r->name && r->has(); ++r) {
        if (limit && strcmp(limit, out->name) == 0) break;
        r->fill(out);
    }
    bool reached = !limit || strcmp(limit, out->name) == 0;
    if (!reached) ramet_kernels_fill_c(out);
#if RAMET_TEETH
    ramet_kernels_reorder(out);
#endif
    return reached;
}

const char *const *ramet_kernels_available(uint32_t *out_n) {
    static const char *const names[] = {
        "c",
#if defined(__x86_64__)
        "avx2",
        "avx512",
#elif defined(__aarch64__)
        "neon",
#endif
    };
    uint32_t n = 1;
    for (const rung *r = ladder; r->name && r->has(); ++r) ++n;
    *out_n = n;
    return names;
}

void ramet_kernels_reorder(ramet_kernels *table) {
    ramet_matmul_fill_backward(table);
}
