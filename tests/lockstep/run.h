/* run.h - what the run files share: how both are made to do the same, and the operations of each. */
#ifndef RAMET_TEST_LOCKSTEP_RUN_H
#define RAMET_TEST_LOCKSTEP_RUN_H

#include "lockstep/lockstep.h"

/* True when both did it. ramet may have no memory, or no disk, where one was made to fail; the twin then does nothing. */
bool op_agrees(const op *o, ramet_status is, const ramet_error *error, ramet_status should);
bool op_lacks_memory(const op *o, ramet_status status);
/* Entries would not have made room for what was wanted, that many bytes or less. */
bool op_lacks_disk(pair *p, const op *o, ramet_status status, uint64_t wanted_bytes);

/* With `p`, `o`, `status` and `error` at hand. BOTH: nothing has to move for it. ROOM: it takes room in memory. */
#define BOTH(call, twin_call)                                                                                          \
    (ramet_alloc_fail_after(o->fail_after), status = (call),                                                           \
     !op_lacks_memory(o, status) && op_agrees(o, status, &error, (twin_call)))
#define ROOM(call, wanted_bytes, twin_call)                                                                            \
    (pair_begin_room(p), ramet_alloc_fail_after(o->fail_after), status = (call), pair_end_room(p),                     \
     !op_lacks_memory(o, status) && !op_lacks_disk(p, o, status, wanted_bytes) &&                                      \
         op_agrees(o, status, &error, (twin_call)))

/* Blocks may be written out and read back in between. Then the twin learns which entries went for want of a disk. */
void pair_begin_room(pair *p);
void pair_end_room(pair *p);

uint64_t op_rng(const op *o);
void draw_tokens(const pair *p, uint64_t *rng, int32_t *out, uint32_t n);

/* run_use.c. For a context that o's owner is inside of; true: it is used from here on. */
bool op_use(pair *p, const op *o);
void op_leave(pair *p, uint32_t i);
void op_spill(pair *p, const op *o);
void op_hold(pair *p, const op *o);
bool op_reserve(pair *p, const op *o);
void op_write_logits(pair *p, const op *o);
/* Two parts of a step: the state is written while the old one can be read, and goes in place after the commit. */
const uint8_t *op_write_state(pair *p, const op *o);
void op_install_state(pair *p, const op *o, const uint8_t *state);
void op_reserve_tail(pair *p, const op *o);

/* run_tree.c */
void op_retain(pair *p, const op *o);
void op_unpin(pair *p, const op *o);
void op_match(pair *p, const op *o);
void op_evict(pair *p);
void op_trim(pair *p);
void op_clear(pair *p);
/* ramet keeps shedding pages made writable ahead apart from the rest: it has happened even when the call then fails. */
void pair_shed_ahead(pair *p, uint32_t i, ramet_status status);

/* run_store.c */
void op_snapshot(pair *p, const op *o);
void op_restore(pair *p, const op *o);
void op_carry(pair *p, const op *o);
void op_damage(pair *p, const op *o);

#endif
