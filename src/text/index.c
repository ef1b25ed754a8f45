/* index.c - see index.h. */
#include "text/index.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define BASE       0x9E3779B97F4A7C55u
#define MAX_PROBES 2048 /* at half load, chance makes runs of some tens */

uint64_t ramet_text_hash(const char *text, size_t bytes) {
    uint64_t hash = 0;
    for (size_t i = 0; i < bytes; i++) hash = hash * BASE + (uint8_t)text[i] + 1u;
    return hash;
}

uint64_t ramet_text_hash_join(uint64_t left, uint64_t right, uint64_t right_power) {
    return left * right_power + right;
}

void ramet_text_hash_powers(uint64_t *out) {
    out[0] = 1;
    for (size_t k = 1; k <= RAMET_TEXT_MAX_PIECE; k++) out[k] = out[k - 1] * BASE;
}

uint64_t ramet_text_mix(uint64_t key) {
    key = (key ^ (key >> 32)) * 0xD6E8FEB86659FD93u;
    key = (key ^ (key >> 32)) * 0xD6E8FEB86659FD93u;
    return key ^ (key >> 32);
}

bool ramet_text_index_create(ramet_text_pieces pieces, const uint64_t *hashes, uint32_t room, ramet_text_index *out) {
    size_t slots = 16;
    while (slots < (size_t)room * 2) slots *= 2;
    *out = (ramet_text_index){.pieces = pieces, .hashes = hashes, .mask = slots - 1};
    out->slots = ramet_alloc(slots, sizeof *out->slots);
    return out->slots != NULL;
}

void ramet_text_index_destroy(ramet_text_index *index) {
    free(index->slots);
    index->slots = NULL;
}

size_t ramet_text_index_bytes(const ramet_text_index *index) {
    return index->slots ? (index->mask + 1) * sizeof *index->slots : 0;
}

static bool is_joined(ramet_text_slice piece, ramet_text_slice left, ramet_text_slice right) {
    if (piece.bytes != left.bytes + right.bytes) return false;
    if (left.bytes != 0 && memcmp(piece.data, left.data, left.bytes) != 0) return false;
    return right.bytes == 0 || memcmp(piece.data + left.bytes, right.data, right.bytes) == 0;
}

int32_t ramet_text_index_find(const ramet_text_index *index, uint64_t hash, ramet_text_slice left,
                              ramet_text_slice right) {
    for (size_t at = (size_t)ramet_text_mix(hash) & index->mask; index->slots[at]; at = (at + 1) & index->mask) {
        uint32_t id = index->slots[at] - 1;
        if (index->hashes[id] == hash && is_joined(ramet_text_piece(&index->pieces, id), left, right))
            return (int32_t)id;
    }
    return -1;
}

int64_t ramet_text_index_add(ramet_text_index *index, uint32_t id) {
    size_t at = (size_t)ramet_text_mix(index->hashes[id]) & index->mask;
    for (int probes = 0; index->slots[at]; at = (at + 1) & index->mask, probes++) {
        uint32_t other = index->slots[at] - 1;
        if (probes == MAX_PROBES) return RAMET_TEXT_CROWDED;
        if (index->hashes[other] != index->hashes[id]) continue;
        ramet_text_slice mine = ramet_text_piece(&index->pieces, id), its = ramet_text_piece(&index->pieces, other);
        if (is_joined(its, mine, (ramet_text_slice){"", 0})) return other;
    }
    index->slots[at] = id + 1;
    return -1;
}
