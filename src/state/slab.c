/* slab.c - slots of page_bytes, and a header for each, in two reserved mappings.
 *
 *   headers  [ page 0 | page 1 | page 2 | ...      n_slots = budget_bytes / page_bytes: the ceiling
 *   data     [ slot 0 | slot 1 | slot 2 | ...      [0, n_touched) have been used; the rest costs no memory yet
 *   free     2 -> 0 -> end                         the last one freed is the first one reused
 *
 * Owns the memory of pages, and K2 and K3 (allocated - freed = live; a slot that is out is one live page). Refuses to
 * know who holds a page. A slot keeps the bytes of its last page: nobody reads a position before writing it. */
#define _DEFAULT_SOURCE
#include "state/internal.h"

#include <sys/mman.h>
#include <unistd.h>

static bool round_up_64(uint64_t bytes, uint64_t *out) {
    if (!ramet_add_u64(bytes, 63, out)) return false;
    *out &= ~(uint64_t)63;
    return true;
}

ramet_status ramet_slab_init(ramet_slab *slab, const ramet_cache_options *options, ramet_error *error) {
    uint64_t n_slots = options->budget_bytes / options->page_bytes;
    if (n_slots == 0)
        return ramet_fail(error, RAMET_E_BUDGET,
                          "the KV budget of %llu bytes is less than one page (%llu bytes): raise it",
                          (unsigned long long)options->budget_bytes, (unsigned long long)options->page_bytes);
    if (n_slots > RAMET_NO_SLOT) n_slots = RAMET_NO_SLOT;

    uint64_t data_stride, header_stride, data_bytes, header_bytes;
    bool fits = round_up_64(options->page_bytes, &data_stride) &&
                round_up_64(sizeof(ramet_page) + options->page_tokens * sizeof(int32_t), &header_stride) &&
                ramet_mul_u64(n_slots, data_stride, &data_bytes) &&
                ramet_mul_u64(n_slots, header_stride, &header_bytes) && data_bytes <= SIZE_MAX &&
                header_bytes <= SIZE_MAX;
    *slab = (ramet_slab){.n_slots = (uint32_t)n_slots, .free_slot = RAMET_NO_SLOT};
    if (fits) {
        slab->data_stride = (size_t)data_stride;
        slab->header_stride = (size_t)header_stride;
        slab->data = ramet_map((size_t)data_bytes);
        slab->headers = ramet_map((size_t)header_bytes);
    }
    if (slab->data && slab->headers) return RAMET_OK;
    ramet_slab_fini(slab);
    return ramet_fail(error, RAMET_E_NO_MEMORY, "cannot reserve addresses for the KV budget of %llu bytes: lower it",
                      (unsigned long long)options->budget_bytes);
}

void ramet_slab_fini(ramet_slab *slab) {
    ramet_unmap(slab->data, slab->n_slots * slab->data_stride);
    ramet_unmap(slab->headers, slab->n_slots * slab->header_stride);
    *slab = (ramet_slab){0};
}

ramet_page *ramet_slab_page(const ramet_slab *slab, uint32_t slot) {
    return (ramet_page *)(void *)(slab->headers + slot * slab->header_stride);
}

bool ramet_slab_knows(const ramet_slab *slab, const ramet_page *page) {
    uintptr_t off = (uintptr_t)page - (uintptr_t)slab->headers;
    return off % slab->header_stride == 0 && off / slab->header_stride < slab->n_touched;
}

ramet_page *ramet_slab_take(ramet_slab *slab) {
    RAMET_ASSERT(slab->n_live < slab->n_slots, "K11: page %u of %u asked for without room", slab->n_live,
                 slab->n_slots);
    ramet_page *page;
    if (slab->free_slot != RAMET_NO_SLOT) {
        page = ramet_slab_page(slab, slab->free_slot);
        slab->free_slot = page->next_free;
    } else {
        page = ramet_slab_page(slab, slab->n_touched);
        page->slot = slab->n_touched++;
    }
    slab->n_live++;
    slab->n_allocated++;
    return page;
}

void ramet_slab_give(ramet_slab *slab, ramet_page *page) {
    page->next_free = slab->free_slot;
    slab->free_slot = page->slot;
    slab->n_live--;
    page->freed_at = ++slab->n_freed;
}

/* Free slots [first, end), which no live one interrupts. After the last touched slot there are none: all that is mapped
 * goes. */
static void give_back(const ramet_slab *slab, uint32_t first, uint32_t end) {
    uintptr_t unit = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)slab->data;
    uintptr_t begin = (data + first * slab->data_stride + unit - 1) / unit * unit;
    uintptr_t stop = (data + end * slab->data_stride) / unit * unit;
    if (end == slab->n_touched) stop = data + slab->n_slots * slab->data_stride;
    if (begin < stop) madvise((void *)begin, stop - begin, MADV_DONTNEED); /* advice: a refusal changes nothing */
}

static bool is_freed_since(const ramet_slab *slab, uint32_t slot, uint64_t since) {
    const ramet_page *page = ramet_slab_page(slab, slot);
    return page->counts.refcount == 0 && page->freed_at > since;
}

/* Neighbours go together: given back one by one, every border between two would split the huge page that it lies in. */
void ramet_slab_trim(const ramet_slab *slab, uint64_t since) {
    for (uint32_t first = 0, end; first < slab->n_touched; first = end + 1) {
        for (end = first; end < slab->n_touched && is_freed_since(slab, end, since);) end++;
        if (end > first) give_back(slab, first, end);
    }
}
