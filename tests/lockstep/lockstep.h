/* lockstep.h - random operations on the state and store rooms beside their stupid twin (tests/model/), recorded so that
 * a failing list of them can be made short and be run again.
 *
 *   op.c     what an operation is, as a line of text, and how the next one is drawn
 *   pager.c  a pager in memory that fails when told
 *   pair.c   a cache and its twin: opened from a seed; compare.c: compared
 *   run.c    one operation, done to both; run_use.c: those around use; run_tree.c: those on the tree; run_store.c: on files
 *   walk.c   a walk of many, a list again, each in a child process that may die as it likes
 *   shrink.c the shortest list that still fails
 *
 * Every operation is total: one that does not apply to what is there is skipped. So any part of a list is a list. */
#ifndef RAMET_TEST_LOCKSTEP_H
#define RAMET_TEST_LOCKSTEP_H

#include "lockstep/pager.h"
#include "model/twin.h"
#include "state/internal.h"
#include "store/snapshot.h"

#include <stdio.h>

/* ---- op.c ---- */

/* Kind, name, how often it is drawn. */
#define LOCKSTEP_KINDS(X)                                                                                              \
    X(CREATE, "create", 4)                                                                                             \
    X(FORK, "fork", 14)                                                                                                \
    X(CLOSE, "close", 11)                                                                                              \
    X(EXTEND, "extend", 26)                                                                                            \
    X(REWRITE, "rewrite", 6)                                                                                           \
    X(CUT, "cut", 9)                                                                                                   \
    X(CUT_EVERYWHERE, "cut-everywhere", 0) /* a fork, at each of its positions; drawn now and then */                  \
    X(LOGITS, "logits", 2)                                                                                             \
    X(RESERVE_TAIL, "reserve-tail", 2)                                                                                 \
    X(HOLD, "hold", 2)                                                                                                 \
    X(RETAIN, "retain", 11)                                                                                            \
    X(UNPIN, "unpin", 3)                                                                                               \
    X(MATCH, "match", 11)                                                                                              \
    X(EVICT, "evict", 2)                                                                                               \
    X(TRIM, "trim", 3) /* nothing spare: what comes next has to allocate */                                            \
    X(CLEAR, "clear", 0)                                                                                               \
    X(SPILL, "spill", 6)                                                                                               \
    X(SNAPSHOT, "snapshot", 3)                                                                                         \
    X(RESTORE, "restore", 3)                                                                                           \
    X(CARRY, "carry", 0)   /* a snapshot to a cache of another page size and back */                                   \
    X(DAMAGE, "damage", 1) /* one byte of a snapshot */                                                                \
    X(ENTER, "enter", 2)                                                                                               \
    X(USE, "use", 8) /* and the two stay inside */                                                                     \
    X(LEAVE, "leave", 3)

typedef enum op_kind {
#define LOCKSTEP_ENUM(kind, name, weight) OP_##kind,
    LOCKSTEP_KINDS(LOCKSTEP_ENUM)
#undef LOCKSTEP_ENUM
        N_OP_KINDS
} op_kind;

typedef struct op {
    uint32_t kind;
    uint32_t owner;      /* 1..LOCKSTEP_OWNERS: who does it */
    uint32_t context;    /* of TWIN_MAX_CONTEXTS: what it is done to, or where the new one goes */
    uint32_t other;      /* where the fork goes; the file; the owner of an entry */
    uint32_t fail_after; /* this allocation of ramet's fails, from 1; 0: none */
    uint32_t fault;      /* of the pager: what and when, see pager.h; 0: none */
    uint32_t a, b;       /* lengths and positions */
    uint32_t noise;      /* where tokens and bytes are drawn from */
} op;

enum { LOCKSTEP_OWNERS = 3, LOCKSTEP_MAX_OPS = 10000 };

typedef struct op_list {
    uint64_t seed; /* says page size, precision, budgets, whether there are a pager and states */
    uint32_t n;
    op ops[LOCKSTEP_MAX_OPS];
} op_list;

const char *op_name(uint32_t kind);
void op_print(const op *o, FILE *out);
bool op_list_read(FILE *in, op_list *out);
void op_list_print(const op_list *list, FILE *out);

uint64_t lockstep_random(uint64_t *rng);
uint32_t lockstep_below(uint64_t *rng, uint32_t n);

struct pair;
/* One that applies as things are, mostly. */
op op_draw(const struct pair *p, uint64_t *rng);

/* ---- pair.c ---- */

/* All of it follows from the seed. */
typedef struct setup {
    uint32_t page_tokens, n_ctx;
    int precision;
    uint32_t state_bytes; /* 0: none */
    bool has_pager;
    uint32_t n_pages, n_tree_pages; /* budgets */
    uint32_t n_rest, n_tree_rest;   /* bytes besides: of the tree's no row of logits, just one, or one and a bit */
    uint32_t pin_percent;           /* of the tree's budget */
    bool is_long;                   /* contexts of many pages */
    bool injects;                   /* allocations fail now and then, and the pager */
    bool is_wild;                   /* tokens that no vocabulary has: no file takes them */
} setup;

/* What each page was when it was looked at last, as it is and as rows: to export rows is what takes long. By the number
 * of the page's header, which stays when the page goes out and comes back. */
typedef struct page_memory {
    uint8_t *pages, *rows;
    uint32_t *looked_at; /* per page: the round in which it was looked at last; several contexts may have it */
    uint32_t n_pages, round;
} page_memory;

void page_memory_free(page_memory *m);

typedef struct pair {
    setup setup;
    ramet_kv_layout layout;
    ramet_snapshot_identity identity;
    walk_pager pager;
    ramet_cache *cache;
    page_memory memory;
    twin *twin;
    ramet_context *contexts[TWIN_MAX_CONTEXTS];
    uint32_t held_by[TWIN_MAX_CONTEXTS];         /* owner that has entered and not left */
    const float *held_logits[TWIN_MAX_CONTEXTS]; /* while the twin says that they are held */
    uint32_t file_noise[TWIN_MAX_FILES];         /* where the file's sampler state came from */
    const char *directory;
} pair;

setup setup_of(uint64_t seed);
void setup_print(uint64_t seed, FILE *out);
void pair_open(pair *p, uint64_t seed, const char *directory);
void pair_close(pair *p); /* and K7: nothing is left, no file either */
/* A cache like the pair's with pages of that size, without pager. */
void pair_open_cache(const pair *p, uint32_t page_tokens, const ramet_pager *pager, ramet_kv_layout *layout,
                     ramet_cache **out);
void pair_file_path(const pair *p, uint32_t file, char out[256]);
const char *owner_name(uint32_t owner); /* of an entry; NULL: everybody */

/* ---- compare.c ---- */

/* What differs, or NULL. A block that is written out is looked at where the pager keeps it. */
const char *pair_compare_text(ramet_context *context, const ramet_kv_layout *layout, page_memory *m,
                              const walk_pager *pager, const twin_text *text);
const char *pair_compare(pair *p, uint32_t *out_context);
/* The above and the walker, or the walk fails. */
void pair_require_equal(pair *p);

/* ---- run.c ---- */

/* False: skipped. */
bool op_run(pair *p, const op *o);

/* ---- walk.c ---- */

/* A fault that a test puts in, after each operation. */
typedef void (*lockstep_plant)(pair *p, const op *o);

typedef struct lockstep_plan {
    uint64_t first_seed, seed_step, n_seeds;
    uint32_t n_ops; /* per seed */
    lockstep_plant plant;
} lockstep_plan;

/* Shared with the children: what a walk has done so far, and what it died of. */
typedef struct lockstep_report {
    uint64_t n_run[N_OP_KINDS], n_skipped, n_seeds_done;
    uint64_t n_refused, n_without_memory, n_without_disk, n_busy; /* of those that ran: how they ended */
    uint64_t n_copied, n_evicted;                                 /* pages, entries */
    uint64_t n_written, n_read, n_lost;                           /* blocks, blocks, contexts */
    op_list list;                                                 /* of the seed at hand */
    char message[400];                                            /* empty: nothing is wrong */
} lockstep_report;

lockstep_report *lockstep_report_create(void);
void lockstep_report_destroy(lockstep_report *report);
uint64_t lockstep_n_run(const lockstep_report *report);
extern lockstep_report *lockstep_now; /* where the operations count; of this process */

/* Ends the process, with the text in the report. */
_Noreturn void lockstep_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define require(condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) lockstep_fail(__VA_ARGS__);                                                                  \
    } while (0)

/* Random walks, or a list again; true: all was well. In a child process: whatever it dies of is in the report. */
bool lockstep_walk(const lockstep_plan *plan, lockstep_report *report);
bool lockstep_replay(const op_list *list, lockstep_plant plant, lockstep_report *report);
/* The same in this process, for a debugger. */
void lockstep_replay_here(const op_list *list);

/* ---- shrink.c ---- */

/* A list that fails, made short: no operation can be left out. Returns how many lists were tried. */
uint32_t lockstep_shrink(op_list *list, lockstep_plant plant, lockstep_report *scratch);
/* After a walk that failed: the message, the shortened list and how to run it again. */
void lockstep_explain(const lockstep_plan *plan, lockstep_report *report, const char *program);

#endif
