/* fuzz.c - see fuzz.h. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool fuzz_was_taken, fuzz_control;

void fuzz_fail(const char *condition, const char *format, ...) {
    va_list args;
    fprintf(stderr, "fuzz: not so: %s: ", condition);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    if (!fuzz_control) abort();
    puts("control: the planted fault was noticed");
    exit(0);
}

bool fuzz_is_clean(const char *text) {
    for (; *text; text++)
        if ((uint8_t)*text < 0x20 || *text == 0x7f) return false;
    return true;
}

void fuzz_check_refusal(ramet_status status, const ramet_error *error, const void *out) {
    FUZZ_CHECK(status != RAMET_OK, "refused with OK");
    FUZZ_CHECK(error->code == status, "returned %s, wrote %s", ramet_status_name(status),
               ramet_status_name(error->code));
    FUZZ_CHECK(memchr(error->message, 0, sizeof error->message) && error->message[0], "no message for %s",
               ramet_status_name(status));
    FUZZ_CHECK(fuzz_is_clean(error->message), "a control character in '%s'", error->message);
    FUZZ_CHECK(!out, "something is left after '%s'", error->message);
}

const char *fuzz_file(const uint8_t *data, size_t bytes) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) {
        perror("fuzz: no file in memory");
        exit(1);
    }
    return path;
}

static uint64_t draw(fuzz_random *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t fuzz_below(fuzz_random *r, uint32_t n) {
    return n ? (uint32_t)((draw(r) >> 32) * n >> 32) : 0;
}

uint64_t fuzz_odd_number(fuzz_random *r) {
    switch (fuzz_below(r, 4)) {
    case 0: return fuzz_below(r, 20);
    case 1: return (1ull << fuzz_below(r, 64)) - 2 + fuzz_below(r, 4);
    case 2: return UINT64_MAX - fuzz_below(r, 70);
    default: return draw(r) >> fuzz_below(r, 64);
    }
}

uint64_t fuzz_load(const uint8_t *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void fuzz_store(uint8_t *at, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}
