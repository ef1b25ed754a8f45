/* merge.c - see merge.h. */
#include "text/merge.h"

#include "base/memory.h"

#include <stdlib.h>

#define NOBODY UINT32_MAX

void ramet_text_merger_destroy(ramet_text_merger *m) {
    free(m->symbols);
    free(m->heap);
    free(m->ids);
    m->symbols = NULL, m->heap = NULL, m->ids = NULL;
}

bool ramet_text_merger_add(ramet_text_merger *m, int32_t token) {
    if (!ramet_grow((void **)&m->symbols, &m->symbol_capacity, m->n_symbols + 1, sizeof *m->symbols)) return false;
    m->symbols[m->n_symbols++].token = token;
    return true;
}

bool ramet_text_merger_emit(ramet_text_merger *m, int32_t token) {
    if (!ramet_grow((void **)&m->ids, &m->id_capacity, m->n_ids + 1, sizeof *m->ids)) return false;
    m->ids[m->n_ids++] = token;
    return true;
}

static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= moving) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static uint64_t pop_heap(ramet_text_merger *m) {
    uint64_t top = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap) sift_down(m->heap, m->n_heap, 0);
    return top;
}

static void push_heap(ramet_text_merger *m, uint64_t entry) {
    size_t at = m->n_heap++;
    for (; at > 0 && m->heap[(at - 1) / 2] > entry; at = (at - 1) / 2) m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = entry;
}

/* Finds out how `left` merges with the symbol after it; false if it does not. */
static bool rate_pair(ramet_text_merger *m, uint32_t left) {
    ramet_text_symbol *s = &m->symbols[left];
    s->rank = RAMET_TEXT_NO_RANK;
    if (s->next == NOBODY) return false;
    uint32_t rank;
    s->merged = ramet_vocab_pair(m->vocab, s->token, m->symbols[s->next].token, &rank);
    if (s->merged >= 0) s->rank = rank;
    return s->merged >= 0;
}

static uint64_t make_entry(const ramet_text_merger *m, uint32_t left) {
    return (uint64_t)m->symbols[left].rank << 32 | left;
}

static bool link_row(ramet_text_merger *m) {
    size_t n = m->n_symbols;
    /* Each merge takes an entry off and puts at most two on, and there are fewer merges than symbols. */
    if (n > SIZE_MAX / 2 || !ramet_grow((void **)&m->heap, &m->heap_capacity, 2 * n, sizeof *m->heap)) return false;
    m->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        m->symbols[i].prev = i == 0 ? NOBODY : i - 1;
        m->symbols[i].next = i + 1 == n ? NOBODY : i + 1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (rate_pair(m, i)) m->heap[m->n_heap++] = make_entry(m, i);
    for (size_t at = m->n_heap / 2; at-- > 0;) sift_down(m->heap, m->n_heap, at);
    return true;
}

static void merge_at(ramet_text_merger *m, uint32_t left) {
    ramet_text_symbol *s = &m->symbols[left], *gone = &m->symbols[s->next];
    s->token = s->merged;
    s->next = gone->next;
    gone->rank = RAMET_TEXT_NO_RANK;
    if (s->next != NOBODY) m->symbols[s->next].prev = left;
    if (rate_pair(m, left)) push_heap(m, make_entry(m, left));
    if (s->prev != NOBODY && rate_pair(m, s->prev)) push_heap(m, make_entry(m, s->prev));
}

bool ramet_text_merger_run(ramet_text_merger *m) {
    size_t n = m->n_symbols;
    if (n == 0) return true;
    if (!ramet_grow((void **)&m->ids, &m->id_capacity, m->n_ids + n, sizeof *m->ids)) return false;
    if (n == 1) {
        m->ids[m->n_ids++] = m->symbols[0].token;
    } else {
        if (!link_row(m)) return false;
        while (m->n_heap) {
            uint64_t entry = pop_heap(m);
            uint32_t left = (uint32_t)entry;
            if (m->symbols[left].rank == (uint32_t)(entry >> 32)) merge_at(m, left);
        }
        for (uint32_t i = 0; i != NOBODY; i = m->symbols[i].next) m->ids[m->n_ids++] = m->symbols[i].token;
    }
    m->n_symbols = 0;
    return true;
}
