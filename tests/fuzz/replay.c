/* replay.c - a fuzz target without libFuzzer: runs every file of a corpus once, with any compiler and sanitizer.
 *
 *     fuzz_gguf_replay CORPUS [--mutations N] [--seed S]    ok-* must be taken and bad-* refused; then N mutations of each
 *     fuzz_gguf_replay CORPUS --control                     the target plants faults: its checks must notice one
 *
 * A seed named any-* is neither. Both kinds being there, a target that takes or refuses everything fails. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 16 };

static fuzz_random mutations;

#pragma weak LLVMFuzzerCustomMutator

/* The plainest mutator there is: some bytes become others, sometimes the end goes. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most) {
    (void)most;
    for (uint32_t i = 1 + fuzz_below(&mutations, 4); i > 0 && bytes; i--)
        data[fuzz_below(&mutations, (uint32_t)bytes)] = (uint8_t)fuzz_odd_number(&mutations);
    if (bytes > 1 && fuzz_below(&mutations, 8) == 0) bytes -= 1 + fuzz_below(&mutations, (uint32_t)bytes - 1);
    return bytes;
}

typedef struct tally {
    uint32_t n_files, n_wrong, n_runs, n_taken;
} tally;

/* A copy of exactly this size, so that a sanitizer sees a read past its end. */
static void run(const uint8_t *data, size_t bytes, tally *t) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    memcpy(copy, data, bytes);
    fuzz_was_taken = false;
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
    t->n_runs++;
    t->n_taken += fuzz_was_taken;
}

static void run_seed(const char *path, const char *name, uint32_t n_mutations, tally *t) {
    static uint8_t seed[MOST_BYTES], mutated[MOST_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t bytes = fread(seed, 1, sizeof seed, file);
    fclose(file);
    run(seed, bytes, t);
    t->n_files++;
    if ((strncmp(name, "ok-", 3) == 0 && !fuzz_was_taken) || (strncmp(name, "bad-", 4) == 0 && fuzz_was_taken)) {
        fprintf(stderr, "replay: %s was %s\n", path, fuzz_was_taken ? "taken" : "refused");
        t->n_wrong++;
    }
    for (uint32_t i = 0; i < n_mutations; i++) {
        memcpy(mutated, seed, bytes);
        size_t n = LLVMFuzzerCustomMutator
                       ? LLVMFuzzerCustomMutator(mutated, bytes, sizeof mutated, fuzz_below(&mutations, UINT32_MAX))
                       : LLVMFuzzerMutate(mutated, bytes, sizeof mutated);
        run(mutated, n, t);
    }
}

static int usage(void) {
    fprintf(stderr, "usage: replay CORPUS [--mutations N] [--seed S] [--control]\n");
    return 2;
}

int main(int argc, char **argv) {
    tally t = {0};
    uint32_t n_mutations = 0;
    uint64_t seed = 20260101;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--control") == 0)
            fuzz_control = true;
        else if (i + 1 < argc && strcmp(argv[i], "--mutations") == 0)
            n_mutations = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 0);
        else
            return usage();
    }
    struct dirent **names;
    int n = argc > 1 ? scandir(argv[1], &names, NULL, alphasort) : -1;
    if (n < 0) return usage();
    mutations.state = seed;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", argv[1], names[i]->d_name);
        if (names[i]->d_name[0] != '.') run_seed(path, names[i]->d_name, n_mutations, &t);
        free(names[i]);
    }
    free(names);
    printf("%u seeds, %u runs, %u taken, %u seeds other than their names say; seed %llu\n", t.n_files, t.n_runs,
           t.n_taken, t.n_wrong, (unsigned long long)seed);
    if (fuzz_control) printf("control: nothing was noticed\n");
    return t.n_files == 0 || t.n_wrong > 0 || fuzz_control;
}
