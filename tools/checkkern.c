/* checkkern.c - ramet-checkkern: every kernel against its C definition, bit for bit, and the time that each takes.
 *   ramet-checkkern [--seed N] [--only NAME] [--rounds N] [--control] [--list] [--bench]
 * Compares only functions that it has not seen in a slower table. --control checks the checker: the tables that add
 * backwards must be found different. Exit status 1: a difference (or, under --control, a missed one). */
#include "checkkern.h"

#include "kernels/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kernel_case *const groups[] = {matmul_cases, vector_cases, attend_cases};

typedef struct options {
    uint64_t seed;
    uint32_t rounds; /* 0: each case's own */
    const char *only;
    bool list, bench, control;
} options;

typedef void (*any_fn)(void);

static any_fn take_function(const ramet_kernels *table, const kernel_case *k) {
    any_fn f;
    memcpy(&f, (const char *)table + k->offset, sizeof f);
    return f;
}

/* Whether the same seed gives the same record; prints how to see a difference again. */
static bool compare_round(const kernel_case *k, uint64_t seed, const ramet_kernels *c, const ramet_kernels *table,
                          bool quiet) {
    record want = {0}, got = {0};
    rng r = {.state = seed};
    k->run(k, &r, c, &want);
    r.state = seed;
    k->run(k, &r, table, &got);
    const ptrdiff_t at = record_difference(&want, &got);
    if (at >= 0 && !quiet)
        printf("%s %s: word %td of %zu is %08x, C has %08x; again: --only %s --rounds 1 --seed %llu\n", table->name,
               k->name, at, want.n, got.words[at], want.words[at], k->name, (unsigned long long)seed);
    record_free(&want);
    record_free(&got);
    return at < 0;
}

/* The number of rounds that differ. */
static uint32_t compare_case(const options *o, const kernel_case *k, const ramet_kernels *c, const ramet_kernels *table,
                             bool quiet) {
    const uint32_t rounds = o->rounds ? o->rounds : k->rounds;
    uint32_t n_different = 0;
    for (uint32_t i = 0; i < rounds; ++i) n_different += !compare_round(k, o->seed + i, c, table, quiet || n_different);
    return n_different;
}

static uint32_t check_all(const options *o) {
    uint32_t n_names, n_failed = 0, n_checked = 0;
    const char *const *names = ramet_kernels_available(&n_names);
    ramet_kernels c, slower, table;
    ramet_kernels_fill_c(&c);
    slower = c;
    for (uint32_t i = 0; i < n_names; ++i, slower = table) {
        ramet_kernels_init(&table, names[i]);
        for (size_t g = 0; g < sizeof groups / sizeof *groups; ++g)
            for (const kernel_case *k = groups[g]; k->name; ++k) {
                if (o->only && !strstr(k->name, o->only)) continue;
                if (take_function(&table, k) == take_function(&slower, k)) continue;
                n_failed += compare_case(o, k, &c, &table, false) > 0;
                ++n_checked;
            }
    }
    printf("%u functions compared with C, %u differ (seed %llu)\n", n_checked, n_failed, (unsigned long long)o->seed);
    return n_failed;
}

/* Every backward matmul must be caught. */
static uint32_t check_control(const options *o) {
    ramet_kernels c, backward;
    ramet_kernels_fill_c(&c);
    backward = c;
    ramet_kernels_reorder(&backward);
    uint32_t n_missed = 0;
    for (const kernel_case *k = matmul_cases; k->name; ++k) {
        if (take_function(&backward, k) == take_function(&c, k)) continue;
        const uint32_t n = compare_case(o, k, &c, &backward, true);
        printf("backward %s: %u rounds differ\n", k->name, n);
        n_missed += n == 0;
    }
    return n_missed;
}

static void bench_all(const options *o) {
    static const char *const units[] = {"G/s", "GB/s from memory"};
    uint32_t n_names;
    const char *const *names = ramet_kernels_available(&n_names);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; ++g)
        for (const kernel_case *k = groups[g]; k->name; ++k)
            for (int kind = 0; kind < BENCH_KINDS; ++kind) {
                if (o->only && !strstr(k->name, o->only)) continue;
                double first = 0.0;
                any_fn seen = NULL;
                for (uint32_t i = 0; i < n_names; ++i) {
                    ramet_kernels table;
                    ramet_kernels_init(&table, names[i]);
                    if (i > 0 && take_function(&table, k) == seen) continue;
                    seen = take_function(&table, k);
                    const double rate = k->bench(k, &table, kind);
                    if (rate <= 0.0) break;
                    if (i == 0) first = rate, printf("%-14s %-17s", k->name, units[kind]);
                    printf("  %s %.2f (%.1fx)", names[i], rate, rate / first);
                    fflush(stdout);
                }
                if (first > 0.0) puts("");
            }
}

static void list_all(void) {
    for (size_t g = 0; g < sizeof groups / sizeof *groups; ++g)
        for (const kernel_case *k = groups[g]; k->name; ++k) puts(k->name);
}

static bool read_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; ++i) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--list") == 0)
            o->list = true;
        else if (strcmp(argv[i], "--bench") == 0)
            o->bench = true;
        else if (strcmp(argv[i], "--control") == 0)
            o->control = true;
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            o->seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0 && has_value)
            o->rounds = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0 && has_value)
            o->only = argv[++i];
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    options o = {.seed = 1};
    if (!read_options(argc, argv, &o)) {
        fputs("usage: ramet-checkkern [--seed N] [--only NAME] [--rounds N] [--control] [--list] [--bench]\n", stderr);
        return 2;
    }
    if (o.list) return list_all(), 0;
    if (o.bench) return bench_all(&o), bench_freed(o.only), bench_attention(o.only), 0;
    return (o.control ? check_control(&o) : check_all(&o)) > 0;
}
