/* logits_hash.c - one golden hash: SHA-256 over all logits of small models, whoever computes them.
 *
 * A golden file says which: `<sha256> <kv> <tokens> <model>` a line, and the numerics_id they belong to. Every kernel set
 * of this CPU at every number of threads must make each of these hashes; other compilers, optimisation levels and
 * processors come in by building this program there. Decode is in it: the last DECODED tokens run one by one.
 *   logits_hash GOLDEN [--threads 1,2,3,8] [--kernels NAME]   check, from the root of the repository; 1: some hash differs
 *   logits_hash GOLDEN --write                                the same lines, hashed by the C kernels on one thread
 * Owns the tokens and what is hashed; refuses to know how a model comes to its logits. */
#include "base/hash.h"
#include "engine/numerics_id.h"
#include "kernels/kernels.h"
#include "ramet.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 256, MOST_WAYS = 256, MOST_THREADS = 32, MOST_TOKENS = 4096, DECODED = 4, MOST_SHOWN = 8 };

typedef struct golden_line {
    char sha256[65], kv[8], model[200];
    uint32_t n_tokens;
} golden_line;

/* A way of computing, and how many hashes it made as they should be. */
typedef struct way {
    const char *kernels;
    uint32_t threads, n_equal;
} way;

static struct {
    char numerics_id[33];
    golden_line lines[MOST_LINES];
    uint32_t n_lines;
    way ways[MOST_WAYS];
    uint32_t n_ways, n_shown;
} golden;

static void give_up(const char *what, const char *detail) {
    fprintf(stderr, "logits_hash: %s: %s\n", what, detail);
    exit(2);
}

static void read_golden(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) give_up(path, "cannot be read");
    char text[512];
    while (fgets(text, sizeof text, file)) {
        if (text[0] == '#') continue;
        golden_line *l = &golden.lines[golden.n_lines];
        if (sscanf(text, "numerics_id %32s", golden.numerics_id) == 1) continue;
        if (sscanf(text, "%64s %7s %" SCNu32 " %199s", l->sha256, l->kv, &l->n_tokens, l->model) != 4 ||
            l->n_tokens <= DECODED || l->n_tokens > MOST_TOKENS || ++golden.n_lines == MOST_LINES)
            give_up(path, text);
    }
    fclose(file);
    if (golden.n_lines == 0) give_up(path, "holds no hash");
}

/* --- one hash --- */

/* Arbitrary tokens, all over the vocabulary. `other` changes one that the rows after it look back at. */
static void choose_tokens(int32_t *tokens, uint32_t n, uint32_t n_vocab, bool other) {
    uint32_t state = 1;
    for (uint32_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((state >> 8) % n_vocab);
    }
    if (other) tokens[n - 2] = (tokens[n - 2] + 1) % (int32_t)n_vocab;
}

typedef struct rows_hash {
    ramet_sha256 *sha256;
    uint32_t n_rows;
    bool is_finite;
} rows_hash;

static void hash_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab) {
    rows_hash *h = user;
    h->is_finite &= first_pos == h->n_rows; /* each row once, in order */
    for (size_t i = 0; i < (size_t)n_rows * n_vocab; i++) h->is_finite &= isfinite(rows[i]) != 0;
    ramet_sha256_update(h->sha256, rows, (uint64_t)n_rows * n_vocab * sizeof *rows);
    h->n_rows += n_rows;
}

static ramet_status run_tokens(ramet_context *context, const int32_t *tokens, uint32_t n, rows_hash *h,
                               ramet_error *error) {
    uint32_t prefill = n - DECODED;
    ramet_status status = ramet_context_extend_rows(context, tokens, prefill, 0, hash_rows, h, error);
    for (uint32_t i = prefill; i < n && status == RAMET_OK; i++)
        status = ramet_context_extend_rows(context, tokens + i, 1, 0, hash_rows, h, error);
    return status;
}

static void hash_logits(const ramet_model *model, const golden_line *l, const char *kernels, uint32_t threads,
                        bool other, char out[65]) {
    static int32_t tokens[MOST_TOKENS];
    ramet_error error;
    ramet_engine *engine = NULL;
    ramet_context *context = NULL;
    ramet_model_info info;
    ramet_engine_options options = {.n_ctx = l->n_tokens, .threads = threads, .kernels = kernels};
    rows_hash h = {.sha256 = ramet_sha256_create(), .is_finite = true};
    if (!h.sha256 || !ramet_kv_parse(l->kv, &options.kv)) give_up(l->kv, "no such precision, or no memory");
    ramet_model_get_info(model, &info);
    choose_tokens(tokens, l->n_tokens, info.n_vocab, other);
    ramet_status status = ramet_engine_create(model, &options, &engine, &error);
    if (status == RAMET_OK) status = ramet_context_create(engine, &context, &error);
    if (status == RAMET_OK) status = run_tokens(context, tokens, l->n_tokens, &h, &error);
    if (status != RAMET_OK) give_up(l->model, error.message);
    if (!h.is_finite || h.n_rows != l->n_tokens) give_up(l->model, "some row is not there, or not finite");
    uint8_t digest[32];
    ramet_sha256_finish(&h.sha256, digest);
    ramet_hex(digest, sizeof digest, out);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
}

/* Lines of one model follow each other: it is opened once. */
static const ramet_model *open_model(const char *path) {
    static ramet_model *model;
    static const char *open_path = "";
    if (strcmp(path, open_path) == 0) return model;
    ramet_error error;
    ramet_model_close(&model);
    if (ramet_model_open(path, NULL, &model, &error) != RAMET_OK) give_up(path, error.message);
    open_path = path;
    return model;
}

/* --- writing and checking --- */

/* The id alone may say that the bits are others now: the golden file follows it, never goes ahead. */
static int write_golden(void) {
    char id[33], sha256[65];
    if (ramet_numerics("c", id, NULL, NULL) != RAMET_OK || strcmp(id, RAMET_NUMERICS_GOLDEN) != 0)
        give_up(id, "not the committed numerics_id: a change of bits starts with a new version of the contract");
    printf("# SHA-256 of all logits; written by tests/golden/logits_hash.c, see docs/TESTING.md before touching it.\n");
    printf("numerics_id %s\n", id);
    for (uint32_t i = 0; i < golden.n_lines; i++) {
        const golden_line *l = &golden.lines[i];
        hash_logits(open_model(l->model), l, "c", 1, false, sha256);
        printf("%s %s %" PRIu32 " %s\n", sha256, l->kv, l->n_tokens, l->model);
    }
    return 0;
}

static void plan_ways(const char *kernels, const char *threads) {
    uint32_t n_names;
    const char *const *names = ramet_kernels_available(&n_names);
    for (uint32_t i = 0; i < n_names; i++) {
        if (kernels && strcmp(kernels, names[i]) != 0) continue;
        for (const char *at = threads; *at; at += *at == ',') {
            char *end;
            unsigned long n = strtoul(at, &end, 10);
            if (end == at || (*end && *end != ',') || n < 1 || n > MOST_THREADS || golden.n_ways == MOST_WAYS)
                give_up("--threads", threads);
            golden.ways[golden.n_ways++] = (way){.kernels = names[i], .threads = (uint32_t)n};
            at = end;
        }
    }
    if (golden.n_ways == 0) give_up("--kernels", "this CPU does not have them");
}

static bool check_numerics(const way *w) {
    char id[33] = "";
    ramet_numerics(w->kernels, id, NULL, NULL);
    bool is_equal = strcmp(id, golden.numerics_id) == 0;
    if (!is_equal) printf("%s: numerics_id is %s, not %s\n", w->kernels, id, golden.numerics_id);
    return is_equal;
}

/* Way by way, slowest kernels first: gcc -O1 leaves wide registers dirty, and scalar code after that takes 20 times longer. */
static bool check_way(way *w) {
    bool is_good = check_numerics(w);
    for (uint32_t i = 0; i < golden.n_lines; i++) {
        const golden_line *l = &golden.lines[i];
        char sha256[65];
        hash_logits(open_model(l->model), l, w->kernels, w->threads, false, sha256);
        bool is_equal = strcmp(sha256, l->sha256) == 0;
        w->n_equal += is_equal;
        if (!is_equal && golden.n_shown++ < MOST_SHOWN)
            printf("%s %s:\n  %s, not\n  %s\n", l->model, l->kv, sha256, l->sha256);
    }
    printf("%-6s threads %2" PRIu32 ": %" PRIu32 " of %" PRIu32 " hashes equal\n", w->kernels, w->threads, w->n_equal,
           golden.n_lines);
    return is_good && w->n_equal == golden.n_lines;
}

/* Another token at one position must be another hash. */
static bool check_control(void) {
    char sha256[65];
    const golden_line *l = &golden.lines[0];
    hash_logits(open_model(l->model), l, golden.ways[golden.n_ways - 1].kernels, 1, true, sha256);
    bool is_noticed = strcmp(sha256, l->sha256) != 0;
    printf("control: another token %s\n", is_noticed ? "is noticed" : "went unnoticed");
    return is_noticed;
}

static int check_golden(void) {
    bool is_good = true;
    printf("%s, numerics_id %s\n", ramet_build(), golden.numerics_id);
    for (uint32_t i = 0; i < golden.n_ways; i++) is_good &= check_way(&golden.ways[i]);
    return check_control() && is_good ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *threads = "1,2,3,8", *kernels = NULL;
    bool is_writing = argc == 3 && strcmp(argv[2], "--write") == 0;
    if (argc < 2) give_up("usage", "logits_hash GOLDEN [--threads N,N...] [--kernels NAME] | GOLDEN --write");
    for (int i = 2; i < argc && !is_writing; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--threads") == 0)
            threads = argv[i + 1];
        else if (i + 1 < argc && strcmp(argv[i], "--kernels") == 0)
            kernels = argv[i + 1];
        else
            give_up(argv[i], "not an option, or it needs a value");
    }
    read_golden(argv[1]);
    if (is_writing) return write_golden();
    plan_ways(kernels, threads);
    return check_golden();
}
