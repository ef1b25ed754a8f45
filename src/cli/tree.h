/* tree.h - the prefix tree of saved contexts, between its reader (cmd_ctx_tree.c) and its printer (tree_print.c).
 * The tree is a sorted array: a node is a range of leaves that share their first tokens. */
#ifndef RAMET_CLI_TREE_H
#define RAMET_CLI_TREE_H

#include "cli/policy.h"
#include "cli/session.h"

typedef struct ramet_leaf {
    char *file;
    int32_t *tokens;
    uint32_t n;
    ramet_snapshot_info info;
} ramet_leaf;

typedef struct ramet_forest {
    const ramet_options *o;
    ramet_policy policy;
    const ramet_model *model; /* for the text of edges; may be NULL */
    ramet_leaf *leaves;       /* sorted by weights, then tokens */
    size_t n, capacity;
    size_t n_left_out;
    ramet_status first_failure;
} ramet_forest;

/* Tokens that all of a sorted range share. */
uint32_t ramet_shared_tokens(const ramet_leaf *leaves, size_t n);
/* Length of the first run of a sorted range, all longer than `at`, with one token at `at`. */
size_t ramet_next_child(const ramet_leaf *leaves, size_t n, uint32_t at);
/* Tokens of a sorted range with every shared prefix counted once. */
uint64_t ramet_unique_tokens(const ramet_leaf *leaves, size_t n);
/* Length of the first run of leaves made by one model. */
size_t ramet_same_weights(const ramet_leaf *leaves, size_t n);

ramet_status ramet_tree_print(const ramet_forest *f, ramet_error *error);

#endif
