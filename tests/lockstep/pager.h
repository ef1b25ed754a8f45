/* pager.h - a pager in memory for the walks. It keeps copies by name, fails once it is told, and ends the walk when it is
 * asked for what no cache may ask: a name twice, a block that is not there or lost, one in use to be written, a batch of
 * more than 32, more in memory than the budget, anything at all where nothing has to move. */
#ifndef RAMET_TEST_LOCKSTEP_PAGER_H
#define RAMET_TEST_LOCKSTEP_PAGER_H

#include "state/internal.h"

enum { WALK_PAGER_LISTS = 512, WALK_PAGER_BATCH = 32 };

/* What goes wrong during an operation. fault = kind + N_FAULTS * (how many writes or blocks read go well before). */
typedef enum fault_kind {
    NO_FAULT,
    WRITES_FAIL,
    A_READ_FAILS, /* and may be tried again */
    A_READ_LOSES,
    READS_LOSE,            /* this one and the next ones */
    FIRST_FAILS_REST_LOSE, /* of a batch, both */
    N_FAULTS
} fault_kind;

typedef struct pager_copy pager_copy;
struct pager_copy {
    pager_copy *next;
    uint64_t name, bytes;
    bool is_lost;
    uint8_t data[];
};

typedef struct pager_loss {
    uint64_t name;
    ramet_status status;
} pager_loss;

typedef struct walk_pager {
    const ramet_cache *cache; /* whose blocks come here */
    pager_copy *lists[WALK_PAGER_LISTS];
    uint64_t kept_bytes, n_written, n_read;
    /* Of the operation at hand: */
    bool may_move; /* it may write and read */
    fault_kind fault;
    uint32_t n_before;
    ramet_status lose_with;
    bool has_write_failed, has_read_failed; /* the latter may be tried again */
    pager_loss lost[WALK_PAGER_BATCH];
    uint32_t n_lost;
} walk_pager;

ramet_pager walk_pager_of(walk_pager *p);
uint32_t walk_pager_draw(uint64_t *rng); /* a fault */
void walk_pager_begin(walk_pager *p, uint32_t fault, uint32_t noise);
void walk_pager_end(walk_pager *p);
const uint8_t *walk_pager_peek(const walk_pager *p, uint64_t name); /* of a block that is there */

#endif
