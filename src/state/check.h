/* check.h - what check.c and check_tree.c share: the walk over everything, and how a broken invariant is reported. */
#ifndef RAMET_STATE_CHECK_H
#define RAMET_STATE_CHECK_H

#include "state/internal.h"

typedef struct ramet_walk {
    ramet_cache *cache;
    ramet_error *error;
    uint32_t stamp;
    uint32_t n_nodes, n_idle;
    uint32_t n_moving; /* freed while on their way */
    uint32_t n_held[RAMET_KINDS][RAMET_HOLDERS];
} ramet_walk;

#define BROKEN(...) return ramet_fail(w->error, RAMET_E_INVARIANT, __VA_ARGS__)

/* Count what a root reaches. */
ramet_status ramet_walk_table(ramet_walk *w, const ramet_table *table, ramet_holder holder);
ramet_status ramet_walk_tail(ramet_walk *w, ramet_block *const *tail, uint32_t length, ramet_holder holder);
/* The entries, as roots, and K5, K6, K12. */
ramet_status ramet_walk_tree(ramet_walk *w);

#endif
