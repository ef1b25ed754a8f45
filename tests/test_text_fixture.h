/* test_text_fixture.h - reads the files of tests/data/tokenizers (layout: scripts/make_tokenizer_fixture.py) into a
 * ramet_vocab_source, and has the small things that all tests of the text room need. */
#ifndef TEST_TEXT_FIXTURE_H
#define TEST_TEXT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs those above */

#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct golden {
    ramet_text_slice text;
    int32_t *ids;
    uint32_t n;
} golden;

typedef struct fixture {
    ramet_vocab_source source;
    golden *lists[2]; /* texts, chats */
    uint32_t counts[2];
    char *file;
    void *owned[16];
    int n_owned;
} fixture;

/* A fixture is ours, so that a fault in it is a fault of the test: plain asserts. */
typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static inline const uint8_t *take(cursor *c, size_t n) {
    assert_true((size_t)(c->end - c->at) >= n);
    c->at += n;
    return c->at - n;
}

static inline uint32_t take_number(cursor *c, unsigned bytes) {
    const uint8_t *p = take(c, bytes);
    uint32_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint32_t)p[i] << (8 * i);
    return value;
}

static inline void *own(fixture *f, size_t n, size_t size) {
    void *memory = calloc(n ? n : 1, size);
    assert_non_null(memory);
    assert_true(f->n_owned < 16);
    return f->owned[f->n_owned++] = memory;
}

static inline ramet_text_slice take_string(cursor *c) {
    uint32_t bytes = take_number(c, 4);
    return (ramet_text_slice){(const char *)take(c, bytes), bytes};
}

static inline char *take_name(fixture *f, cursor *c) {
    ramet_text_slice s = take_string(c);
    char *name = own(f, s.bytes + 1, 1);
    memcpy(name, s.data, s.bytes);
    return name;
}

static inline void read_pieces(fixture *f, cursor *c, bool has_scores, bool has_types) {
    uint32_t n = f->source.n_tokens;
    ramet_text_slice *pieces = own(f, n, sizeof *pieces);
    for (uint32_t i = 0; i < n; i++) pieces[i].bytes = take_number(c, 2);
    for (uint32_t i = 0; i < n; i++) pieces[i].data = (const char *)take(c, pieces[i].bytes);
    f->source.pieces = pieces;
    if (has_scores) {
        float *scores = own(f, n, sizeof *scores);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = take_number(c, 4);
            memcpy(&scores[i], &bits, 4);
        }
        f->source.scores = scores;
    }
    if (has_types) {
        int32_t *types = own(f, n, sizeof *types);
        for (uint32_t i = 0; i < n; i++) types[i] = (int32_t)take_number(c, 1);
        f->source.types = types;
    }
}

static inline void read_merges(fixture *f, cursor *c) {
    uint32_t n = f->source.n_merges;
    unsigned width = f->source.n_tokens <= 65536 ? 2 : 4;
    ramet_text_slice *merges = own(f, n, sizeof *merges);
    size_t total = 0;
    const uint8_t *ids = c->at;
    for (uint32_t i = 0; i < 2 * n; i++) total += f->source.pieces[take_number(c, width)].bytes + 1;
    char *text = own(f, total, 1);
    cursor again = {ids, c->end};
    for (uint32_t i = 0; i < n; i++) {
        ramet_text_slice left = f->source.pieces[take_number(&again, width)];
        ramet_text_slice right = f->source.pieces[take_number(&again, width)];
        merges[i] = (ramet_text_slice){text, left.bytes + 1 + right.bytes};
        memcpy(text, left.data, left.bytes);
        text[left.bytes] = ' ';
        memcpy(text + left.bytes + 1, right.data, right.bytes);
        text += merges[i].bytes;
    }
    f->source.merges = merges;
}

static inline void read_goldens(fixture *f, cursor *c, int list) {
    f->counts[list] = take_number(c, 4);
    f->lists[list] = own(f, f->counts[list], sizeof(golden));
    const uint8_t *start = c->at;
    size_t total = 0;
    for (uint32_t i = 0; i < f->counts[list]; i++) {
        take_string(c);
        uint32_t n = take_number(c, 4);
        take(c, (size_t)n * 4);
        total += n;
    }
    int32_t *ids = own(f, total, sizeof *ids);
    cursor again = {start, c->end};
    for (uint32_t i = 0; i < f->counts[list]; i++) {
        golden *g = &f->lists[list][i];
        g->text = take_string(&again);
        g->n = take_number(&again, 4);
        g->ids = ids;
        for (uint32_t k = 0; k < g->n; k++) *ids++ = (int32_t)take_number(&again, 4);
    }
}

/* `name` is a path, or the name of a file of tests/data/tokenizers. */
static inline void fixture_open(fixture *f, const char *name) {
    *f = (fixture){0};
    char path[1024];
    snprintf(path, sizeof path, strchr(name, '/') ? "%s" : RAMET_TEST_DATA "/tokenizers/%s", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    f->file = own(f, bytes, 1);
    assert_int_equal(fread(f->file, 1, bytes, file), bytes);
    fclose(file);
    cursor c = {(const uint8_t *)f->file, (const uint8_t *)f->file + bytes};
    assert_memory_equal(take(&c, 4), "RTOK", 4);
    assert_int_equal(take_number(&c, 4), 1);
    f->source.kind = take_name(f, &c);
    bool has_pre = take_number(&c, 1);
    const char *pre = take_name(f, &c);
    f->source.pre = has_pre ? pre : NULL;
    f->source.n_tokens = take_number(&c, 4);
    f->source.n_merges = take_number(&c, 4);
    bool has_scores = take_number(&c, 1), has_types = take_number(&c, 1);
    int32_t *ids[] = {&f->source.bos, &f->source.eos, &f->source.eot, &f->source.unk, &f->source.pad};
    for (int i = 0; i < 5; i++) *ids[i] = (int32_t)take_number(&c, 4);
    f->source.add_bos = (int8_t)take_number(&c, 1);
    f->source.add_eos = (int8_t)take_number(&c, 1);
    f->source.add_space_prefix = (int8_t)take_number(&c, 1);
    read_pieces(f, &c, has_scores, has_types);
    read_merges(f, &c);
    for (int list = 0; list < 2; list++) read_goldens(f, &c, list);
    assert_true(c.at == c.end);
}

static inline void fixture_close(fixture *f) {
    for (int i = 0; i < f->n_owned; i++) free(f->owned[i]);
}

static inline ramet_vocab *create_vocab(const ramet_vocab_source *source) {
    ramet_vocab *v;
    ramet_error error = {0};
    if (ramet_vocab_create(source, &v, &error) != RAMET_OK) fail_msg("ramet_vocab_create: %s", error.message);
    return v;
}

typedef struct id_list {
    int32_t *ids;
    size_t n;
} id_list;

static inline id_list encode_bytes(const ramet_vocab *v, const char *text, size_t bytes, unsigned flags) {
    id_list out;
    ramet_error error = {0};
    if (ramet_vocab_encode(v, text, bytes, flags, &out.ids, &out.n, &error) != RAMET_OK) fail_msg("%s", error.message);
    return out;
}

static inline bool has_ids(id_list got, const int32_t *ids, size_t n) {
    return got.n == n && (n == 0 || memcmp(got.ids, ids, n * sizeof *ids) == 0);
}

static inline void print_ids(const char *what, const int32_t *ids, size_t n) {
    print_message("  %s:", what);
    for (size_t i = 0; i < n && i < 60; i++) print_message(" %" PRId32, ids[i]);
    print_message("\n");
}

/* Do `tokens` decode to exactly this text? */
static inline bool decodes_to(const ramet_vocab *v, const int32_t *tokens, size_t n, bool special, const char *text,
                              size_t bytes) {
    char *out;
    size_t out_bytes;
    ramet_error error = {0};
    if (ramet_vocab_decode(v, tokens, n, special, &out, &out_bytes, &error) != RAMET_OK) fail_msg("%s", error.message);
    bool same = out_bytes == bytes && memcmp(out, text, bytes) == 0 && out[bytes] == 0;
    free(out);
    return same;
}

/* A small generator, the same everywhere. */
static inline uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* The seed of a random test: argv[1], RAMET_SEED, or the fixed one; printed, so that a failure can be replayed. */
static inline uint64_t choose_seed(int argc, char **argv) {
    const char *given = argc > 1 ? argv[1] : getenv("RAMET_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20260101;
    print_message("seed %" PRIu64 "; replay: %s %" PRIu64 "\n", seed, argv[0], seed);
    return seed;
}

#endif
