/* utf8.c - see utf8.h. */
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>

/* Length that a first byte promises, 0 for a byte that starts nothing; and the range of the byte after it, which is
 * where overlong forms, surrogates and code points past U+10FFFF are shut out. */
static size_t promised_bytes(uint8_t first, uint8_t *low, uint8_t *high) {
    *low = 0x80, *high = 0xBF;
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    if (first < 0xE0) return 2;
    if (first == 0xE0) *low = 0xA0;
    if (first == 0xED) *high = 0x9F;
    if (first < 0xF0) return 3;
    if (first == 0xF0) *low = 0x90;
    if (first == 0xF4) *high = 0x8F;
    return 4;
}

ramet_utf8 ramet_utf8_scan(const char *text, size_t bytes, size_t *out_bytes) {
    const uint8_t *p = (const uint8_t *)text;
    uint8_t low, high;
    size_t wanted = promised_bytes(p[0], &low, &high), have = 1;
    while (have < wanted && have < bytes && p[have] >= low && p[have] <= high) {
        have++;
        low = 0x80, high = 0xBF;
    }
    *out_bytes = have;
    if (have == wanted) return RAMET_UTF8_WHOLE;
    return wanted != 0 && have == bytes ? RAMET_UTF8_CUT : RAMET_UTF8_BROKEN;
}

size_t ramet_utf8_valid_bytes(const char *text, size_t bytes) {
    size_t at = 0, n;
    while (at < bytes && ramet_utf8_scan(text + at, bytes - at, &n) == RAMET_UTF8_WHOLE) at += n;
    return at;
}
