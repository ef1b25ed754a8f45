/* build.c - fills the tables of a vocabulary: texts, index, ranks or merges, byte tokens, specials. Called by
 * ramet_vocab_create only, in that order. The source is hostile: what contradicts itself is RAMET_E_CORRUPT. */
#include "base/memory.h"
#include "base/utf8.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

static ramet_status fail_memory(ramet_error *error) {
    return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the vocabulary");
}

/* The byte that a character of a byte-level piece stands for, -1 if none: printable Latin-1 stands for itself, the
 * other bytes in ascending order for U+0100, U+0101, ... */
static int byte_of_character(uint32_t c) {
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    c -= 0x100;
    if (c <= 0x20) return (int)c;                 /* 00..20 */
    if (c <= 0x42) return (int)(c - 0x21 + 0x7F); /* 7F..A0 */
    return 0xAD;
}

/* Writes the bytes that a byte-level piece stands for; false if a character in it stands for none. */
static bool decode_byte_level(ramet_text_slice piece, char *out, size_t *out_bytes) {
    const uint8_t *p = (const uint8_t *)piece.data;
    size_t n = 0;
    for (size_t at = 0; at < piece.bytes;) {
        size_t length;
        if (ramet_utf8_scan(piece.data + at, piece.bytes - at, &length) != RAMET_UTF8_WHOLE || length > 2) return false;
        uint32_t c = length == 1 ? p[at] : (uint32_t)(p[at] & 0x1F) << 6 | (p[at + 1] & 0x3F);
        int byte = byte_of_character(c);
        if (byte < 0) return false;
        out[n++] = (char)byte;
        at += length;
    }
    *out_bytes = n;
    return true;
}

size_t ramet_text_copy_spaces(const char *text, size_t bytes, char *out) {
    size_t n = 0;
    for (size_t at = 0; at < bytes;) {
        bool mark = bytes - at >= 3 && memcmp(text + at, "\xE2\x96\x81", 3) == 0;
        out[n++] = mark ? ' ' : text[at];
        at += mark ? 3 : 1;
    }
    return n;
}

/* The value of "<0xHH>", or -1. */
static int parse_byte_name(ramet_text_slice piece) {
    static const char digits[] = "0123456789ABCDEF";
    if (piece.bytes != 6 || memcmp(piece.data, "<0x", 3) != 0 || piece.data[5] != '>') return -1;
    const char *high = memchr(digits, piece.data[3], 16), *low = memchr(digits, piece.data[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

/* SentencePiece files without types still mean their byte tokens. An undefined type is a normal one. */
static uint8_t choose_type(const ramet_vocab *v, const ramet_vocab_source *source, uint32_t id) {
    if (source->types) return source->types[id] == 0 ? RAMET_TOKEN_NORMAL : (uint8_t)source->types[id];
    return !v->byte_level && parse_byte_name(source->pieces[id]) >= 0 ? RAMET_TOKEN_BYTE : RAMET_TOKEN_NORMAL;
}

static ramet_status build_text(ramet_vocab *v, uint32_t id, ramet_text_slice piece, ramet_error *error) {
    char *at = v->arena + v->offs[id];
    size_t bytes = piece.bytes;
    if (v->byte_level) {
        bool normal = v->types[id] == RAMET_TOKEN_NORMAL;
        if (!normal || !decode_byte_level(piece, at, &bytes)) {
            if (normal) v->types[id] = RAMET_TOKEN_UNUSED; /* not spelled in bytes: no text leads to it */
            if (piece.bytes) memcpy(at, piece.data, bytes = piece.bytes);
        }
    } else if (v->types[id] == RAMET_TOKEN_BYTE) {
        int byte = parse_byte_name(piece);
        if (byte < 0)
            return ramet_fail(error, RAMET_E_CORRUPT, "token %u is a byte token, but is not named <0x00>..<0xFF>", id);
        at[0] = (char)byte;
        bytes = 1;
    } else {
        bytes = ramet_text_copy_spaces(piece.data, piece.bytes, at);
    }
    v->offs[id + 1] = v->offs[id] + (uint32_t)bytes;
    v->hashes[id] = ramet_text_hash(at, bytes);
    return RAMET_OK;
}

ramet_status ramet_vocab_build_texts(ramet_vocab *v, const ramet_vocab_source *source, ramet_error *error) {
    uint64_t total = 1; /* a text is never longer than its piece, and a piece has at most 4,096 bytes */
    for (uint32_t id = 0; id < v->n_tokens; id++) total += source->pieces[id].bytes;
    if (total > UINT32_MAX)
        return ramet_fail(error, RAMET_E_UNSUPPORTED, "the tokens have %llu bytes of text; ramet takes up to 4 GiB",
                          (unsigned long long)total);
    v->arena = ramet_alloc((size_t)total, 1);
    v->offs = ramet_alloc((size_t)v->n_tokens + 1, sizeof *v->offs);
    v->types = ramet_alloc(v->n_tokens, 1);
    v->ends = ramet_alloc(v->n_tokens, 1);
    v->hashes = ramet_alloc(v->n_tokens, sizeof *v->hashes);
    v->powers = ramet_alloc(RAMET_TEXT_MAX_PIECE + 1u, sizeof *v->powers);
    if (!v->arena || !v->offs || !v->types || !v->ends || !v->hashes || !v->powers) return fail_memory(error);
    ramet_text_hash_powers(v->powers);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        v->types[id] = choose_type(v, source, id);
        RAMET_TRY(build_text(v, id, source->pieces[id], error));
    }
    return RAMET_OK;
}

/* Two pieces may have one text (spelled with a space and with U+2581): the first is found. */
ramet_status ramet_vocab_build_index(ramet_vocab *v, ramet_error *error) {
    ramet_text_pieces texts = {.arena = v->arena, .offs = v->offs};
    if (!ramet_text_index_create(texts, v->hashes, v->n_tokens, &v->index)) return fail_memory(error);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        if (v->types[id] != RAMET_TOKEN_NORMAL || ramet_vocab_text(v, id).bytes == 0) continue;
        if (ramet_text_index_add(&v->index, id) == RAMET_TEXT_CROWDED)
            return ramet_fail(error, RAMET_E_CORRUPT, "the pieces around token %u are made to collide in a hash table",
                              id);
    }
    return RAMET_OK;
}

/* Higher score, smaller rank: the bits of a float, mapped so that they order like the float, turned round. */
ramet_status ramet_vocab_build_ranks(ramet_vocab *v, const ramet_vocab_source *source, ramet_error *error) {
    v->ranks = ramet_alloc(v->n_tokens, sizeof *v->ranks);
    if (!v->ranks) return fail_memory(error);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        float score = source->scores[id] + 0.0f; /* -0 becomes +0 */
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        v->ranks[id] = bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
    }
    return RAMET_OK;
}

static int32_t find_name(const ramet_vocab *v, const ramet_text_index *names, ramet_text_slice left,
                         ramet_text_slice right) {
    if (left.bytes + right.bytes > RAMET_TEXT_MAX_PIECE) return -1;
    uint64_t hash = ramet_text_hash_join(ramet_text_hash(left.data, left.bytes),
                                         ramet_text_hash(right.data, right.bytes), v->powers[right.bytes]);
    return ramet_text_index_find(names, hash, left, right);
}

static size_t pair_slot(const ramet_vocab *v, int32_t left, int32_t right) {
    return (size_t)ramet_text_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & v->merge_mask;
}

/* False: too many pairs on one slot. Of equal pairs the first counts. */
static bool add_merge(ramet_vocab *v, ramet_text_merge merge, uint32_t rank) {
    size_t at = pair_slot(v, merge.left, merge.right);
    for (int probes = 0; v->merge_slots[at]; at = (at + 1) & v->merge_mask) {
        const ramet_text_merge *other = &v->merges[v->merge_slots[at] - 1];
        if (other->left == merge.left && other->right == merge.right) return true;
        if (++probes == 2048) return false;
    }
    v->merges[rank] = merge;
    v->merge_slots[at] = rank + 1;
    return true;
}

/* Merging never makes a special token, whatever the file says: those come from matching them whole, with leave. */
static bool is_mergeable(const ramet_vocab *v, int32_t token) {
    return v->types[token] == RAMET_TOKEN_NORMAL;
}

ramet_status ramet_vocab_build_merges(ramet_vocab *v, const ramet_vocab_source *source, const ramet_text_index *names,
                                      ramet_error *error) {
    size_t slots = 16;
    while (slots < (size_t)source->n_merges * 2) slots *= 2;
    v->merges = ramet_alloc(source->n_merges, sizeof *v->merges);
    v->merge_slots = ramet_alloc(slots, sizeof *v->merge_slots);
    if (!v->merges || !v->merge_slots) return fail_memory(error);
    v->merge_mask = slots - 1;
    v->n_merges = source->n_merges;
    const ramet_text_slice none = {"", 0};
    for (uint32_t i = 0; i < source->n_merges; i++) {
        ramet_text_slice merge = source->merges[i];
        const char *space = merge.bytes ? memchr(merge.data, ' ', merge.bytes) : NULL;
        if (!space) return ramet_fail(error, RAMET_E_CORRUPT, "merge %u has no space between its two pieces", i);
        ramet_text_slice left = {merge.data, (size_t)(space - merge.data)};
        ramet_text_slice right = {space + 1, merge.bytes - left.bytes - 1};
        int32_t a = find_name(v, names, left, none), b = find_name(v, names, right, none);
        int32_t joined = find_name(v, names, left, right);
        if (a < 0 || b < 0 || joined < 0)
            return ramet_fail(error, RAMET_E_CORRUPT, "merge %u: %s is not in the vocabulary", i,
                              a < 0   ? "its left piece"
                              : b < 0 ? "its right piece"
                                      : "what it makes");
        if (!is_mergeable(v, a) || !is_mergeable(v, b) || !is_mergeable(v, joined)) continue;
        if (!add_merge(v, (ramet_text_merge){a, b, joined}, i))
            return ramet_fail(error, RAMET_E_CORRUPT, "the merges around %u are made to collide in a hash table", i);
    }
    return RAMET_OK;
}

int32_t ramet_vocab_find(const ramet_vocab *v, const char *text, size_t bytes) {
    if (bytes > RAMET_TEXT_MAX_PIECE) return -1;
    return ramet_text_index_find(&v->index, ramet_text_hash(text, bytes), (ramet_text_slice){text, bytes},
                                 (ramet_text_slice){"", 0});
}

/* Real byte-level vocabularies lack bytes that their training text did not have (SmolLM2: 21 of them). Those are
 * spelled as U+FFFD, so that must be there. SentencePiece falls back to bytes, so all of them must be. */
static ramet_status build_replacement(ramet_vocab *v, ramet_error *error) {
    int32_t whole = ramet_vocab_find(v, RAMET_UTF8_REPLACEMENT, 3);
    v->n_replacement = whole >= 0 ? 1 : 3;
    for (uint32_t i = 0; i < v->n_replacement; i++) {
        v->replacement[i] = whole >= 0 ? whole : v->byte_tokens[(uint8_t)RAMET_UTF8_REPLACEMENT[i]];
        if (v->replacement[i] < 0) v->n_replacement = 0;
    }
    for (int byte = 0; byte < 256; byte++)
        if (v->byte_tokens[byte] < 0 && v->n_replacement == 0)
            return ramet_fail(error, RAMET_E_CORRUPT,
                              "the vocabulary has no token for byte 0x%02X, and none for U+FFFD in its place",
                              (unsigned)byte);
    return RAMET_OK;
}

ramet_status ramet_vocab_build_bytes(ramet_vocab *v, ramet_error *error) {
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        v->byte_tokens[byte] = v->byte_level ? ramet_vocab_find(v, &c, 1) : -1;
    }
    if (v->byte_level) return build_replacement(v, error);
    for (uint32_t id = 0; id < v->n_tokens; id++)
        if (v->types[id] == RAMET_TOKEN_BYTE) v->byte_tokens[(uint8_t)*ramet_vocab_text(v, id).data] = (int32_t)id;
    for (int byte = 0; byte < 256; byte++)
        if (v->byte_tokens[byte] < 0)
            return ramet_fail(error, RAMET_E_CORRUPT, "the vocabulary has no byte token <0x%02X>", (unsigned)byte);
    return RAMET_OK;
}

ramet_status ramet_vocab_build_specials(ramet_vocab *v, ramet_error *error) {
    size_t n = 0;
    for (uint32_t id = 0; id < v->n_tokens; id++)
        n += ramet_vocab_is_control(v, (int32_t)id) || v->types[id] == RAMET_TOKEN_USER_DEFINED;
    ramet_text_special *list = ramet_alloc(n, sizeof *list);
    if (!list) return fail_memory(error);
    n = 0;
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        bool control = ramet_vocab_is_control(v, (int32_t)id);
        ramet_text_slice text = ramet_vocab_text(v, id);
        if ((control || v->types[id] == RAMET_TOKEN_USER_DEFINED) && text.bytes)
            list[n++] = (ramet_text_special){text, (int32_t)id, control};
    }
    ramet_text_specials_take(&v->specials, list, n);
    return RAMET_OK;
}

void ramet_vocab_finish_build(ramet_vocab *v) {
    if (!v->byte_level || v->pre.whole_words) return;
    ramet_text_index_destroy(&v->index);
    free(v->hashes);
    free(v->powers);
    v->hashes = v->powers = NULL;
}

static int32_t find_merge(const ramet_vocab *v, int32_t left, int32_t right, uint32_t *out_rank) {
    for (size_t at = pair_slot(v, left, right); v->merge_slots[at]; at = (at + 1) & v->merge_mask) {
        uint32_t rank = v->merge_slots[at] - 1;
        const ramet_text_merge *merge = &v->merges[rank];
        if (merge->left != left || merge->right != right) continue;
        *out_rank = rank;
        return merge->token;
    }
    return -1;
}

int32_t ramet_vocab_pair(const ramet_vocab *v, int32_t left, int32_t right, uint32_t *out_rank) {
    if (v->byte_level) return find_merge(v, left, right, out_rank);
    ramet_text_slice a = ramet_vocab_text(v, (uint32_t)left), b = ramet_vocab_text(v, (uint32_t)right);
    if (a.bytes + b.bytes > RAMET_TEXT_MAX_PIECE) return -1;
    uint64_t hash = ramet_text_hash_join(v->hashes[left], v->hashes[right], v->powers[b.bytes]);
    int32_t token = ramet_text_index_find(&v->index, hash, a, b);
    if (token >= 0) *out_rank = v->ranks[token];
    return token;
}
