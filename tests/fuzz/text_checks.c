/* text_checks.c - see text_checks.h. */
#include "text_checks.h"

#include "base/utf8.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

typedef struct ids {
    int32_t *ids;
    size_t n;
} ids;

static ids encode(const ramet_vocab *v, const char *text, size_t bytes, unsigned flags) {
    ids out;
    ramet_error error;
    if (ramet_vocab_encode(v, text, bytes, flags, &out.ids, &out.n, &error) != RAMET_OK)
        fuzz_fail("any text can be encoded", "%s", error.message);
    return out;
}

/* ---- what should come back ---- */

/* And ids cannot tell a BOS that is a plain word of the vocabulary from that word. */
static bool can_come_back(const ramet_vocab *v, ids list, const char *text, size_t bytes) {
    if (list.n && list.ids[0] == v->bos && !ramet_vocab_is_control(v, v->bos)) return false;
    for (size_t i = 0; i < bytes; i++)
        if (v->byte_tokens[(uint8_t)text[i]] < 0) return false;
    return true;
}

/* Each broken character is one U+FFFD, as docs of the stream say. `out` has 3 bytes for each of text. */
static size_t repair(const char *text, size_t bytes, char *out) {
    size_t n_out = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        bool whole = ramet_utf8_scan(text + at, bytes - at, &n) == RAMET_UTF8_WHOLE;
        memcpy(out + n_out, whole ? text + at : RAMET_UTF8_REPLACEMENT, whole ? n : 3);
        n_out += whole ? n : 3;
    }
    return n_out;
}

void check_stream(const ramet_vocab *v, const int32_t *tokens, size_t n, const char *text, size_t bytes) {
    char *wanted = malloc(3 * bytes + 1), *got = malloc(3 * bytes + 1);
    if (!wanted || !got) abort();
    size_t n_wanted = repair(text, bytes, wanted), n_got = 0;
    ramet_stream *stream;
    ramet_error error;
    if (ramet_stream_create(v, true, &stream, &error) != RAMET_OK) abort();
    for (size_t i = 0; i <= n; i++) {
        const char *part;
        size_t part_bytes;
        if (i == n)
            ramet_stream_finish(stream, &part, &part_bytes);
        else if (ramet_stream_push(stream, tokens[i], &part, &part_bytes, &error) != RAMET_OK)
            fuzz_fail("a push goes well", "%s", error.message);
        FUZZ_CHECK(part[part_bytes] == 0, "a part without an end");
        FUZZ_CHECK(ramet_utf8_valid_bytes(part, part_bytes) == part_bytes, "half a character at token %zu", i);
        FUZZ_CHECK(part_bytes <= 3 * bytes - n_got, "the stream gives more than there is");
        memcpy(got + n_got, part, part_bytes);
        n_got += part_bytes;
    }
    ramet_stream_destroy(&stream);
    FUZZ_CHECK(n_got == n_wanted && memcmp(got, wanted, n_got) == 0, "the stream gives another text");
    free(wanted);
    free(got);
}

/* ---- text ---- */

static void check_ids(const ramet_vocab *v, ids list, bool allow_control) {
    for (size_t i = 0; i < list.n; i++) {
        FUZZ_CHECK(list.ids[i] >= 0 && (uint32_t)list.ids[i] < v->n_tokens, "id %d", (int)list.ids[i]);
        FUZZ_CHECK(allow_control || !ramet_vocab_is_control(v, list.ids[i]), "control token %d without leave",
                   (int)list.ids[i]);
    }
}

static void check_bos(const ramet_vocab *v, const char *text, size_t bytes, unsigned flags, ids plain) {
    ids with = encode(v, text, bytes, flags | RAMET_TOKENIZE_BOS);
    size_t added = v->adds_bos && (plain.n == 0 || plain.ids[0] != v->bos);
    FUZZ_CHECK(with.n == plain.n + added, "%zu ids with BOS, %zu without", with.n, plain.n);
    if (added) FUZZ_CHECK(with.ids[0] == v->bos, "begins with %d", (int)with.ids[0]);
    if (plain.n) FUZZ_CHECK(memcmp(with.ids + added, plain.ids, plain.n * sizeof *plain.ids) == 0, "BOS changes more");
    free(with.ids);
}

void check_text(const ramet_vocab *v, const char *text, size_t bytes, unsigned flags) {
    char *wanted = malloc(bytes + 1), *back;
    size_t n_wanted = bytes, back_bytes;
    ramet_error error;
    if (!wanted) abort();
    memcpy(wanted, text, bytes);
    if (!v->byte_level) n_wanted = ramet_text_copy_spaces(text, bytes, wanted);
    ids list = encode(v, text, bytes, flags & RAMET_TOKENIZE_SPECIAL);
    check_ids(v, list, flags & RAMET_TOKENIZE_SPECIAL);
    if (flags & RAMET_TOKENIZE_BOS) check_bos(v, text, bytes, flags, list);
    if (fuzz_control && list.n) list.n--;
    if (ramet_vocab_decode(v, list.ids, list.n, true, &back, &back_bytes, &error) != RAMET_OK)
        fuzz_fail("what was encoded decodes", "%s", error.message);
    if (can_come_back(v, list, text, bytes))
        FUZZ_CHECK(back_bytes == n_wanted && memcmp(back, wanted, n_wanted) == 0, "\"%.*s\" comes back as \"%s\"",
                   (int)bytes, text, back);
    check_stream(v, list.ids, list.n, back, back_bytes);
    free(list.ids);
    free(back);
    free(wanted);
}
