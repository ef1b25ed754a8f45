/* cmd_ctx_tree.c - `ramet ctx tree`: reads the token lists of saved contexts and draws what they share.
 * Contexts sorted by tokens form a radix tree without building one: a range of them that agree on the first `from`
 * tokens shares an edge up to where its first and last part. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static ramet_status add_leaf(ramet_forest *f, const char *path, ramet_error *error) {
    void *leaves = f->leaves;
    ramet_leaf leaf = {0};
    RAMET_TRY(ramet_snapshot_read_info(path, &leaf.info, error));
    RAMET_TRY(ramet_snapshot_read_tokens(path, &f->policy.rules, &leaf.tokens, &leaf.n, error));
    leaf.file = strdup(path);
    if (!leaf.file || !ramet_grow(&leaves, &f->capacity, f->n + 1, sizeof leaf)) {
        free(leaf.file);
        free(leaf.tokens);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the tokens of %s", path);
    }
    f->leaves = leaves;
    f->leaves[f->n++] = leaf;
    return RAMET_OK;
}

/* In a directory a broken file is told of, and the others are still drawn. */
static ramet_status visit_entry(void *user, const char *path, const char *name, bool is_directory, ramet_error *error) {
    ramet_forest *f = user;
    size_t n = strlen(name);
    if (is_directory || n < 7 || strcmp(name + n - 6, ".ramet") != 0) return RAMET_OK;
    ramet_error broken;
    ramet_status status = add_leaf(f, path, &broken);
    if (status == RAMET_E_NO_MEMORY) {
        *error = broken;
        return status;
    }
    if (status != RAMET_OK) {
        ramet_say(f->o, "left out: %s", broken.message);
        f->first_failure = f->first_failure ? f->first_failure : status;
        f->n_left_out++;
    }
    return RAMET_OK;
}

static ramet_status read_all(ramet_forest *f, ramet_error *error) {
    for (size_t i = 0; i < f->o->n_args; i++) {
        struct stat st;
        const char *path = f->o->args[i];
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            RAMET_TRY(ramet_visit_directory(path, visit_entry, f, error));
        else
            RAMET_TRY(add_leaf(f, path, error));
    }
    if (f->n == 0 && f->n_left_out == 0)
        return ramet_fail(error, RAMET_E_NOT_FOUND, "%s: no *.ramet files there", f->o->args[0]);
    return RAMET_OK;
}

/* By weights, then by tokens; a prefix comes before what goes on from it. */
static int compare_leaves(const void *a, const void *b) {
    const ramet_leaf *x = a, *y = b;
    int order = strcmp(x->info.weights_sha256, y->info.weights_sha256);
    for (uint32_t i = 0; order == 0 && i < x->n && i < y->n; i++)
        if (x->tokens[i] != y->tokens[i]) order = x->tokens[i] < y->tokens[i] ? -1 : 1;
    if (order == 0 && x->n != y->n) order = x->n < y->n ? -1 : 1;
    return order ? order : strcmp(x->file, y->file);
}

uint32_t ramet_shared_tokens(const ramet_leaf *leaves, size_t n) {
    const ramet_leaf *x = &leaves[0], *y = &leaves[n - 1];
    uint32_t shared = 0;
    while (shared < x->n && shared < y->n && x->tokens[shared] == y->tokens[shared]) shared++;
    return shared;
}

size_t ramet_next_child(const ramet_leaf *leaves, size_t n, uint32_t at) {
    size_t end = 1;
    while (end < n && leaves[end].tokens[at] == leaves[0].tokens[at]) end++;
    return end;
}

uint64_t ramet_unique_tokens(const ramet_leaf *leaves, size_t n) {
    uint64_t total = leaves[0].n;
    for (size_t i = 1; i < n; i++) total += leaves[i].n - ramet_shared_tokens(leaves + i - 1, 2);
    return total;
}

size_t ramet_same_weights(const ramet_leaf *leaves, size_t n) {
    size_t end = 1;
    while (end < n && strcmp(leaves[end].info.weights_sha256, leaves[0].info.weights_sha256) == 0) end++;
    return end;
}

/* With -m the text is shown, which is right only for contexts of the same vocabulary. */
static ramet_status check_model(const ramet_forest *f, const ramet_session *s, ramet_error *error) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->leaves[i].info.tokenizer_sha256, s->info.tokenizer_sha256) != 0)
            return ramet_fail(error, RAMET_E_MODEL_MISMATCH, "%s has another vocabulary (%.16s...) than %s (%.16s...)",
                              f->leaves[i].file, f->leaves[i].info.tokenizer_sha256, s->info.path,
                              s->info.tokenizer_sha256);
    return RAMET_OK;
}

static ramet_status run(ramet_forest *f, ramet_session *s, ramet_error *error) {
    RAMET_TRY(ramet_policy_open(f->o, &f->policy, error));
    RAMET_TRY(read_all(f, error));
    if (f->n > 0) qsort(f->leaves, f->n, sizeof *f->leaves, compare_leaves);
    if (f->o->model) {
        RAMET_TRY(ramet_session_open(f->o, s, error));
        RAMET_TRY(check_model(f, s, error));
        f->model = s->model;
    }
    RAMET_TRY(ramet_tree_print(f, error));
    if (f->n_left_out)
        return ramet_fail(error, f->first_failure, "%s: %zu files could not be read", f->o->args[0], f->n_left_out);
    return RAMET_OK;
}

ramet_status ramet_cmd_ctx_tree(const ramet_options *o, ramet_error *error) {
    ramet_forest f = {.o = o};
    ramet_session s = {0};
    ramet_status status = run(&f, &s, error);
    ramet_session_close(&s);
    ramet_policy_close(&f.policy);
    for (size_t i = 0; i < f.n; i++) {
        free(f.leaves[i].file);
        free(f.leaves[i].tokens);
    }
    free(f.leaves);
    return status;
}
