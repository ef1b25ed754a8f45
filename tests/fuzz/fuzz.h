/* fuzz.h - what the fuzz targets share: the functions that libFuzzer and replay.c call, files in memory, and how a target
 * says that ramet broke a promise. A target is one fuzz_<name>.c; docs/TESTING.md tells how to run them.
 *
 * A target never judges an input: any bytes may come. It judges ramet: no fault that a sanitizer sees, no lie in what it
 * gives back. */
#ifndef RAMET_FUZZ_H
#define RAMET_FUZZ_H

#include "base/error.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most); /* libFuzzer's own, or replay.c's */

/* Was the last input taken? Seeds say in their names what should be: ok-*, bad-*. */
extern bool fuzz_was_taken;
/* replay --control: the target plants a fault in what ramet gives back. Its own checks must notice: the first that does
 * ends the process well. */
extern bool fuzz_control;

/* Prints and aborts, which libFuzzer records with the input. */
#define FUZZ_CHECK(condition, ...)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) fuzz_fail(#condition, __VA_ARGS__);                                                          \
    } while (0)
_Noreturn void fuzz_fail(const char *condition, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Without control characters: what comes from a file and goes to a terminal. */
bool fuzz_is_clean(const char *text);
/* A refusal is no success, has a message, and left nothing behind. */
void fuzz_check_refusal(ramet_status status, const ramet_error *error, const void *out);

/* Puts the bytes into a file without a name; the path is good until the process ends. */
const char *fuzz_file(const uint8_t *data, size_t bytes);

/* A small generator for mutators. */
typedef struct fuzz_random {
    uint64_t state;
} fuzz_random;
uint32_t fuzz_below(fuzz_random *r, uint32_t n); /* 0 for n = 0 */
/* A number that has broken parsers before: a power of two or near one, a small one, or any. */
uint64_t fuzz_odd_number(fuzz_random *r);

/* Little-endian integers at any address. */
uint64_t fuzz_load(const uint8_t *at, size_t bytes);
void fuzz_store(uint8_t *at, uint64_t value, size_t bytes);

#endif
