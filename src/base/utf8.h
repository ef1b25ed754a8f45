/* utf8.h - one character at a time. Owns what counts as well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates,
 * nothing past U+10FFFF). Refuses to know tokens. */
#ifndef RAMET_BASE_UTF8_H
#define RAMET_BASE_UTF8_H

#include <stddef.h>

#define RAMET_UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

typedef enum ramet_utf8 {
    RAMET_UTF8_WHOLE,  /* a character */
    RAMET_UTF8_CUT,    /* all `bytes` are the beginning of one */
    RAMET_UTF8_BROKEN, /* no continuation can make these a character */
} ramet_utf8;

/* Looks at the front of text[0..bytes), bytes > 0. *out_bytes: the character's length; when CUT, `bytes`; when BROKEN,
 * the longest beginning of a character that is there, at least 1 (what one U+FFFD stands for). */
ramet_utf8 ramet_utf8_scan(const char *text, size_t bytes, size_t *out_bytes);

/* Length of the longest front of text[0..bytes) that consists of whole characters. */
size_t ramet_utf8_valid_bytes(const char *text, size_t bytes);

#endif
