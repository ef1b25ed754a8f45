/* tree_print.c - draws the prefix tree of saved contexts, or writes it as JSON. Each line is one edge: how many tokens
 * it adds, how many that makes, the files that end there, and what the edge says. */
#define _GNU_SOURCE
#include "cli/json.h"
#include "cli/preview.h"
#include "cli/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 60 };

typedef struct drawing {
    const ramet_forest *forest;
    ramet_json json;
    char indent[MAX_DEPTH * 8]; /* a vertical bar is three bytes */
} drawing;

/* How many leaves of the range end where the edge does. */
static size_t count_ending(const ramet_leaf *leaves, size_t n, uint32_t to) {
    size_t ending = 0;
    while (ending < n && leaves[ending].n == to) ending++;
    return ending;
}

static ramet_status draw_children(drawing *d, const ramet_leaf *leaves, size_t n, uint32_t from, ramet_error *error);

static ramet_status draw_node(drawing *d, const ramet_leaf *leaves, size_t n, uint32_t from, bool is_last,
                              ramet_error *error) {
    uint32_t to = ramet_shared_tokens(leaves, n);
    size_t ending = count_ending(leaves, n, to), length = strlen(d->indent);
    printf("%s%s +%" PRIu32 " = %" PRIu32 "  ", d->indent,
           is_last ? "\xE2\x94\x94\xE2\x94\x80" : "\xE2\x94\x9C\xE2\x94\x80", to - from, to);
    RAMET_TRY(ramet_preview_print(d->forest->model, leaves[0].tokens + from, to - from, error));
    for (size_t i = 0; i < ending; i++) {
        fputs(i ? ", " : "  ", stdout);
        ramet_print_clean(stdout, leaves[i].file);
    }
    putchar('\n');
    if (length + 8 < sizeof d->indent)
        snprintf(d->indent + length, sizeof d->indent - length, "%s", is_last ? "   " : "\xE2\x94\x82  ");
    ramet_status status = draw_children(d, leaves + ending, n - ending, to, error);
    d->indent[length] = '\0';
    return status;
}

static ramet_status draw_children(drawing *d, const ramet_leaf *leaves, size_t n, uint32_t from, ramet_error *error) {
    while (n > 0) {
        size_t run = ramet_next_child(leaves, n, from);
        RAMET_TRY(draw_node(d, leaves, run, from, run == n, error));
        leaves += run;
        n -= run;
    }
    return RAMET_OK;
}

static ramet_status write_children(drawing *d, const ramet_leaf *leaves, size_t n, uint32_t from, ramet_error *error);

static ramet_status write_node(drawing *d, const ramet_leaf *leaves, size_t n, uint32_t from, ramet_error *error) {
    uint32_t to = ramet_shared_tokens(leaves, n);
    size_t ending = count_ending(leaves, n, to);
    ramet_json *j = &d->json;
    ramet_json_object_begin(j, NULL);
    ramet_json_u64(j, "from", from);
    ramet_json_u64(j, "length", to);
    ramet_json_tokens(j, "tokens", leaves[0].tokens + from, to - from);
    if (d->forest->model) {
        char *text;
        size_t bytes;
        RAMET_TRY(ramet_detokenize(d->forest->model, leaves[0].tokens + from, to - from, true, &text, &bytes, error));
        ramet_json_text(j, "text", text, bytes);
        free(text);
    }
    ramet_json_array_begin(j, "files");
    for (size_t i = 0; i < ending; i++) ramet_json_string(j, NULL, leaves[i].file);
    ramet_json_array_end(j);
    RAMET_TRY(write_children(d, leaves + ending, n - ending, to, error));
    ramet_json_object_end(j);
    return RAMET_OK;
}

static ramet_status write_children(drawing *d, const ramet_leaf *leaves, size_t n, uint32_t from, ramet_error *error) {
    ramet_json_array_begin(&d->json, "children");
    while (n > 0) {
        size_t run = ramet_next_child(leaves, n, from);
        RAMET_TRY(write_node(d, leaves, run, from, error));
        leaves += run;
        n -= run;
    }
    ramet_json_array_end(&d->json);
    return RAMET_OK;
}

static uint64_t count_tokens(const ramet_leaf *leaves, size_t n) {
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) total += leaves[i].n;
    return total;
}

/* One model's contexts. Those without a token hang on the root. */
static ramet_status draw_tree(drawing *d, const ramet_leaf *leaves, size_t n, ramet_error *error) {
    size_t empty = count_ending(leaves, n, 0);
    uint64_t total = count_tokens(leaves, n), kept = ramet_unique_tokens(leaves, n);
    ramet_print_clean(stdout, leaves[0].info.model_name);
    printf(" (%.12s...)  %zu contexts, %s tokens", leaves[0].info.weights_sha256, n, ramet_label_count(total).text);
    printf(", %s when shared\n", ramet_label_count(kept).text);
    for (size_t i = 0; i < empty; i++) {
        fputs("   empty  ", stdout);
        ramet_print_clean(stdout, leaves[i].file);
        putchar('\n');
    }
    return draw_children(d, leaves + empty, n - empty, 0, error);
}

static ramet_status write_tree(drawing *d, const ramet_leaf *leaves, size_t n, ramet_error *error) {
    size_t empty = count_ending(leaves, n, 0);
    ramet_json *j = &d->json;
    ramet_json_object_begin(j, NULL);
    ramet_json_string(j, "model", leaves[0].info.model_name);
    ramet_json_string(j, "weights_sha256", leaves[0].info.weights_sha256);
    ramet_json_u64(j, "contexts", n);
    ramet_json_u64(j, "tokens", count_tokens(leaves, n));
    ramet_json_u64(j, "tokens_when_shared", ramet_unique_tokens(leaves, n));
    ramet_json_array_begin(j, "files");
    for (size_t i = 0; i < empty; i++) ramet_json_string(j, NULL, leaves[i].file);
    ramet_json_array_end(j);
    RAMET_TRY(write_children(d, leaves + empty, n - empty, 0, error));
    ramet_json_object_end(j);
    return RAMET_OK;
}

ramet_status ramet_tree_print(const ramet_forest *f, ramet_error *error) {
    drawing d = {.forest = f, .json = {.out = stdout}};
    if (f->o->json) {
        ramet_json_object_begin(&d.json, NULL);
        ramet_json_array_begin(&d.json, "trees");
    }
    for (size_t i = 0; i < f->n;) {
        size_t n = ramet_same_weights(f->leaves + i, f->n - i);
        RAMET_TRY(f->o->json ? write_tree(&d, f->leaves + i, n, error) : draw_tree(&d, f->leaves + i, n, error));
        i += n;
    }
    if (f->o->json) {
        ramet_json_array_end(&d.json);
        ramet_json_object_end(&d.json);
    }
    return RAMET_OK;
}
