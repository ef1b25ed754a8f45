/* run.h - what run.c and run_store.c share: how both are made to do the same, and the operations of the second. */
#ifndef RAMET_TEST_LOCKSTEP_RUN_H
#define RAMET_TEST_LOCKSTEP_RUN_H

#include "lockstep/lockstep.h"

/* True when both did it. ramet may have no memory where an allocation was made to fail; the twin then does nothing. */
bool op_agrees(const op *o, ramet_status is, const ramet_error *error, ramet_status should);
bool op_lacks_memory(const op *o, ramet_status status);

/* With `o`, `status` and `error` at hand. */
#define BOTH(call, twin_call)                                                                                          \
    (ramet_alloc_fail_after(o->fail_after), status = (call),                                                           \
     !op_lacks_memory(o, status) && op_agrees(o, status, &error, (twin_call)))

uint64_t op_rng(const op *o);
/* The twin's rows [pos, pos + n) into the context, which owns their pages. */
void pair_put_rows(pair *p, uint32_t i, uint32_t pos, uint32_t n);

void op_drop(pair *p, const op *o);
void op_refill(pair *p, const op *o);
void op_spill(pair *p, const op *o);
void op_read_back(pair *p, const op *o);
void op_snapshot(pair *p, const op *o);
void op_restore(pair *p, const op *o);
void op_carry(pair *p, const op *o);
void op_damage(pair *p, const op *o);
void op_lose(pair *p, const op *o);

#endif
