/* slab.c - slots of equal size in a reserved mapping.
 *
 *   data     [ slot 0 | slot 1 | slot 2 | ...      n_slots of them: the ceiling
 *   slots    [0, n_touched) have been used; the rest costs no memory yet
 *   free     warm  2 -> 0 -> end                   the last one freed is the first one reused
 *            cold  5 -> end                        given back to the system: costs no memory either
 *
 * Owns the memory of blocks of one kind, and K3 with block.c (a slot that is out is of one block). Refuses to know what
 * a block is. A slot keeps the bytes of its last block: nobody reads a position before writing it. */
#define _DEFAULT_SOURCE
#include "state/internal.h"

#include <sys/mman.h>
#include <unistd.h>

ramet_status ramet_slab_init(ramet_slab *slab, uint64_t n_slots, uint64_t bytes, ramet_error *error) {
    uint64_t stride, data_bytes, slots_bytes;
    if (n_slots > RAMET_NO_SLOT) n_slots = RAMET_NO_SLOT;
    bool fits = ramet_add_u64(bytes, 63, &stride) && ramet_mul_u64(n_slots, stride & ~(uint64_t)63, &data_bytes) &&
                ramet_mul_u64(n_slots, sizeof(ramet_slot), &slots_bytes) && data_bytes <= SIZE_MAX;
    *slab = (ramet_slab){.n_slots = (uint32_t)n_slots, .free_warm = RAMET_NO_SLOT, .free_cold = RAMET_NO_SLOT};
    if (n_slots == 0) return RAMET_OK;
    if (fits) {
        slab->stride = (size_t)(stride & ~(uint64_t)63);
        slab->data = ramet_map((size_t)data_bytes);
        slab->slots = ramet_reserve((size_t)slots_bytes);
    }
    if (slab->data && slab->slots) return RAMET_OK;
    ramet_slab_fini(slab);
    return ramet_fail(error, RAMET_E_NO_MEMORY,
                      "cannot reserve addresses for %llu blocks of %llu bytes: lower the budget",
                      (unsigned long long)n_slots, (unsigned long long)bytes);
}

void ramet_slab_fini(ramet_slab *slab) {
    if (slab->data) ramet_unmap(slab->data, slab->n_slots * slab->stride);
    if (slab->slots) ramet_unmap(slab->slots, slab->n_slots * sizeof *slab->slots);
    *slab = (ramet_slab){0};
}

static uint32_t pop(ramet_slab *slab, uint32_t *head) {
    uint32_t slot = *head;
    *head = slab->slots[slot].next_free;
    return slot;
}

static void push(ramet_slab *slab, uint32_t *head, uint32_t slot) {
    slab->slots[slot].next_free = *head;
    *head = slot;
}

bool ramet_slab_is_cold(const ramet_slab *slab) {
    return slab->free_warm == RAMET_NO_SLOT;
}

uint32_t ramet_slab_take(ramet_slab *slab, uint32_t block) {
    RAMET_ASSERT(slab->n_out < slab->n_slots, "K11: slot %u of %u asked for without room", slab->n_out, slab->n_slots);
    uint32_t slot;
    if (!ramet_slab_is_cold(slab)) {
        slot = pop(slab, &slab->free_warm);
    } else {
        slot = slab->free_cold != RAMET_NO_SLOT ? pop(slab, &slab->free_cold) : slab->n_touched++;
        slab->n_warm++;
    }
    slab->slots[slot].state = RAMET_SLOT_OUT;
    slab->slots[slot].block = block;
    slab->n_out++;
    return slot;
}

void ramet_slab_give(ramet_slab *slab, uint32_t slot) {
    RAMET_ASSERT(slab->slots[slot].state == RAMET_SLOT_OUT, "K3: slot %u is given back but free", slot);
    slab->slots[slot].state = RAMET_SLOT_WARM;
    slab->slots[slot].freed_at = ++slab->n_given;
    push(slab, &slab->free_warm, slot);
    slab->n_out--;
}

/* Free slots [first, end), which no other interrupts. After the last touched slot there are none: all that is mapped
 * goes. */
static void give_back(const ramet_slab *slab, uint32_t first, uint32_t end) {
    uintptr_t unit = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)slab->data;
    uintptr_t begin = (data + first * slab->stride + unit - 1) / unit * unit;
    uintptr_t stop = (data + end * slab->stride) / unit * unit;
    if (end == slab->n_touched) stop = data + slab->n_slots * slab->stride;
    if (begin >= stop) return;
    madvise((void *)begin, stop - begin, MADV_DONTNEED); /* advice: a refusal changes nothing */
#ifdef MADV_NOHUGEPAGE
    if (slab->is_tight) madvise((void *)begin, stop - begin, MADV_NOHUGEPAGE);
#endif
}

static bool goes_back(const ramet_slab *slab, uint32_t slot, uint64_t since) {
    const ramet_slot *s = &slab->slots[slot];
    return s->state == RAMET_SLOT_COLD || (s->state == RAMET_SLOT_WARM && s->freed_at > since);
}

/* Neighbours go together: given back one by one, every border between two would split the huge page that it lies in. */
void ramet_slab_trim(ramet_slab *slab, uint64_t since) {
    if (slab->n_warm == slab->n_out) return;
    for (uint32_t first = 0, end; first < slab->n_touched; first = end + 1) {
        bool has_warm = false;
        for (end = first; end < slab->n_touched && goes_back(slab, end, since); end++) {
            has_warm |= slab->slots[end].state == RAMET_SLOT_WARM;
            slab->n_warm -= slab->slots[end].state == RAMET_SLOT_WARM;
            slab->slots[end].state = RAMET_SLOT_COLD;
        }
        if (has_warm) give_back(slab, first, end);
    }
    slab->free_warm = slab->free_cold = RAMET_NO_SLOT;
    for (uint32_t slot = slab->n_touched; slot-- > 0;) {
        if (slab->slots[slot].state == RAMET_SLOT_WARM) push(slab, &slab->free_warm, slot);
        if (slab->slots[slot].state == RAMET_SLOT_COLD) push(slab, &slab->free_cold, slot);
    }
}
