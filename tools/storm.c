/* storm.c - a thousand contexts in the memory of a few: they fork, grow, rest and come back at random, through an engine
 * with a memory budget and a spill directory. What the process really grew by is held against the budget, and the logits
 * of contexts that went to disk and back against those of an engine that has none.
 *
 *   ramet-storm [OPTION VALUE]... MODEL.gguf
 *     -contexts N   1000      -budget MIB     64       -length N   256, tokens of a context at most
 *     -steps N      10000     -directory DIR  /tmp     -seed N     1
 *     -control 1    pretends to a budget of half, and damages a row: both must be noticed
 *
 * Exit code 1: more than 5 % over the budget, or a row that differs. Linux: the sizes come from /proc. */
#include "base/clock.h"
#include "base/memory.h"
#include "must.h"
#include "ramet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "ramet-storm"

enum { MOST_AT_ONCE = 8, FIRST_MOST = 48, CHUNK = 64, CHECK_EACH = 50, LOOK_EACH = 16 };

typedef struct settings {
    uint64_t contexts, budget, length, steps, seed, control;
    const char *directory, *model;
} settings;

typedef struct player { /* a context and what it should hold */
    ramet_context *context;
    int32_t *tokens; /* [length] */
} player;

typedef struct storm {
    settings o;
    uint64_t rng;
    uint32_t n_vocab;
    ramet_model *model;
    ramet_engine *engine, *reference;
    player *players;
    int32_t *all_tokens;
    uint64_t n_extends, n_forks, n_closes, n_checked, n_different;
    uint64_t before_bytes, most_bytes, most_counted; /* resident; by the engine's own count */
} storm;

/* ---- small things ---- */

static uint32_t draw_below(storm *s, uint64_t n) {
    s->rng ^= s->rng << 13;
    s->rng ^= s->rng >> 7;
    s->rng ^= s->rng << 17;
    return (uint32_t)((s->rng * UINT64_C(0x2545f4914f6cdd1d) >> 32) % n);
}

/* "VmRSS" or "VmHWM", the most since it was reset. */
static uint64_t process_bytes(const char *what) {
    char line[256], name[32];
    uint64_t kib, bytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "%31[^:]: %" SCNu64, name, &kib) == 2 && strcmp(name, what) == 0) bytes = kib * 1024;
    if (status) fclose(status);
    return bytes;
}

static void reset_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

static void look(storm *s) {
    ramet_engine_stats stats;
    ramet_engine_get_stats(s->engine, &stats);
    uint64_t bytes = process_bytes("VmRSS");
    if (bytes > s->most_bytes) s->most_bytes = bytes;
    if (stats.memory_bytes > s->most_counted) s->most_counted = stats.memory_bytes;
}

/* ---- the game ---- */

static void extend(storm *s, player *p, uint32_t n) {
    uint32_t length = ramet_context_length(p->context);
    for (uint32_t i = 0; i < n; i++) p->tokens[length + i] = (int32_t)draw_below(s, s->n_vocab);
    MUST(ramet_context_extend(p->context, p->tokens + length, n, error));
    s->n_extends++;
}

/* One without a context gets one: mostly a fork of another, so that much is shared. */
static void join(storm *s, player *p) {
    const player *parent = &s->players[draw_below(s, s->o.contexts)];
    if (parent->context && draw_below(s, 10) > 0) {
        MUST(ramet_context_fork(parent->context, &p->context, error));
        memcpy(p->tokens, parent->tokens, ramet_context_length(p->context) * sizeof *p->tokens);
        s->n_forks++;
    } else {
        MUST(ramet_context_create(s->engine, &p->context, error));
        extend(s, p, 1 + draw_below(s, FIRST_MOST));
    }
}

/* The same tokens on an engine that never spilled anything. */
static void check(storm *s, const player *p) {
    ramet_context *fresh;
    const float *row, *expected;
    MUST(ramet_context_create(s->reference, &fresh, error));
    MUST(ramet_context_extend(fresh, p->tokens, ramet_context_length(p->context), error));
    MUST(ramet_context_logits(fresh, &expected, error));
    MUST(ramet_context_logits(p->context, &row, error));
    bool is_damaged = s->o.control && s->n_checked == 3;
    s->n_different += is_damaged || memcmp(row, expected, s->n_vocab * sizeof *row) != 0;
    s->n_checked++;
    MUST(ramet_context_spill(p->context, error)); /* its row is not needed in memory any more */
    MUST(ramet_context_close(&fresh, error));
}

static void step(storm *s) {
    player *p = &s->players[draw_below(s, s->o.contexts)];
    if (!p->context) join(s, p);
    uint32_t n = 1 + draw_below(s, MOST_AT_ONCE);
    if (ramet_context_length(p->context) + n <= s->o.length) {
        extend(s, p, n);
    } else {
        MUST(ramet_context_close(&p->context, error));
        s->n_closes++;
    }
}

static void play(storm *s) {
    for (uint64_t i = 0; i < s->o.contexts; i++) join(s, &s->players[i]);
    for (uint64_t i = 0; i < s->o.steps; i++) {
        step(s);
        const player *p = &s->players[draw_below(s, s->o.contexts)];
        if (i % CHECK_EACH == 0 && p->context) check(s, p);
        if (i % LOOK_EACH == 0) look(s);
    }
    MUST(ramet_engine_check(s->engine, error));
}

/* ---- before and after ---- */

static ramet_engine *create_engine(const storm *s, const char *spill_directory, uint64_t budget_bytes) {
    ramet_engine_options options = {.n_ctx = (uint32_t)s->o.length,
                                    .page_tokens = 16,
                                    .chunk_tokens = CHUNK,
                                    .kv_budget_bytes = budget_bytes,
                                    .spill_directory = spill_directory};
    ramet_engine *engine;
    MUST(ramet_engine_create(s->model, &options, &engine, error));
    return engine;
}

/* What is taken once, scratch memory and that of the cipher, is then taken. Returns the bytes that are kept for contexts. */
static uint64_t warm_up(const storm *s, ramet_engine *engine) {
    ramet_context *context;
    ramet_engine_stats stats;
    MUST(ramet_context_create(engine, &context, error));
    MUST(ramet_context_extend(context, s->all_tokens, s->o.length, error));
    ramet_engine_get_stats(engine, &stats);
    if (engine == s->engine) MUST(ramet_context_spill(context, error));
    MUST(ramet_context_close(&context, error));
    return stats.memory_bytes;
}

static void begin(storm *s) {
    ramet_model_info info;
    size_t n_tokens = (size_t)(s->o.contexts * s->o.length);
    MUST(ramet_model_open(s->o.model, NULL, &s->model, error));
    ramet_model_get_info(s->model, &info);
    s->n_vocab = info.n_vocab;
    s->rng = s->o.seed * 2 + 1;
    s->players = ramet_alloc(s->o.contexts, sizeof *s->players);
    s->all_tokens = ramet_alloc(n_tokens, sizeof *s->all_tokens);
    if (!s->players || !s->all_tokens) MUST(RAMET_E_NO_MEMORY);
    memset(s->all_tokens, 0, n_tokens * sizeof *s->all_tokens); /* touched: it is not the engine's */
    for (uint64_t i = 0; i < s->o.contexts; i++) s->players[i].tokens = s->all_tokens + i * s->o.length;
    s->reference = create_engine(s, NULL, 0);
    s->engine = create_engine(s, s->o.directory, s->o.budget << (20 + (s->o.control != 0)));
    warm_up(s, s->reference);
    uint64_t kept = warm_up(s, s->engine);
    reset_peak();
    s->before_bytes = process_bytes("VmRSS") - kept;
}

static double mib(uint64_t bytes) {
    return (double)bytes / (1 << 20);
}

static double mib_per_second(uint64_t bytes, uint64_t nanoseconds) {
    return nanoseconds ? mib(bytes) * 1e9 / (double)nanoseconds : 0;
}

/* True when all is well. */
static bool report(const storm *s, const ramet_engine_stats *e, uint64_t nanoseconds) {
    uint64_t peak = process_bytes("VmHWM"), most = s->most_bytes > peak ? s->most_bytes : peak;
    uint64_t grown = most > s->before_bytes ? most - s->before_bytes : 0;
    double share = mib(grown) / (double)s->o.budget;
    printf("contexts      %" PRIu64 " open; %" PRIu64 " extends, %" PRIu64 " forks, %" PRIu64 " closes in %.1f s\n",
           e->contexts, s->n_extends, s->n_forks, s->n_closes, (double)nanoseconds * 1e-9);
    printf("budget        %.1f MiB\n", (double)s->o.budget);
    printf("counted       %.1f MiB at most; on disk now %.1f MiB\n", mib(s->most_counted), mib(e->spilled_bytes));
    printf("resident      %.1f MiB more than before the first context, at most: %.1f %% of the budget\n", mib(grown),
           100 * share);
    printf("spilled       %" PRIu64 " blocks, %.1f MiB, %.0f MiB/s\n", e->blocks_spilled, mib(e->spill_bytes),
           mib_per_second(e->spill_bytes, e->spill_nanoseconds));
    printf("read back     %" PRIu64 " blocks, %.1f MiB, %.0f MiB/s\n", e->blocks_read_back, mib(e->read_back_bytes),
           mib_per_second(e->read_back_bytes, e->read_back_nanoseconds));
    printf("logits        %" PRIu64 " rows compared, %" PRIu64 " differ\n", s->n_checked, s->n_different);
    bool is_over = share > 1.05, is_exact = s->n_different == 0;
    if (!s->o.control) return !is_over && is_exact && e->contexts_lost == 0;
    printf("control       %s\n", is_over && !is_exact ? "noticed" : "NOT NOTICED");
    return is_over && !is_exact;
}

static void end(storm *s) {
    for (uint64_t i = 0; i < s->o.contexts; i++) MUST(ramet_context_close(&s->players[i].context, error));
    ramet_engine_destroy(&s->engine);
    ramet_engine_destroy(&s->reference);
    ramet_model_close(&s->model);
    free(s->all_tokens);
    free(s->players);
}

static void read_options(int argc, char **argv, settings *o) {
    struct {
        const char *name;
        uint64_t *number;
    } known[] = {{"-contexts", &o->contexts}, {"-budget", &o->budget}, {"-length", &o->length},
                 {"-steps", &o->steps},       {"-seed", &o->seed},     {"-control", &o->control}};
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (strcmp(argv[i], "-directory") == 0) o->directory = argv[i + 1];
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strcmp(argv[i], known[k].name) == 0) *known[k].number = strtoull(argv[i + 1], NULL, 10);
    }
    if (i + 1 != argc || o->contexts == 0 || o->length <= FIRST_MOST) {
        fprintf(stderr, "usage: ramet-storm [-contexts N] [-budget MIB] [-length N] [-steps N] [-directory DIR] "
                        "[-seed N] [-control 1] MODEL.gguf\n");
        exit(2);
    }
    o->model = argv[i];
}

int main(int argc, char **argv) {
    storm s = {.o = {.contexts = 1000, .budget = 64, .length = 256, .steps = 10000, .seed = 1, .directory = "/tmp"}};
    ramet_engine_stats stats;
    read_options(argc, argv, &s.o);
    begin(&s);
    uint64_t start = ramet_now_nanoseconds();
    play(&s);
    uint64_t took = ramet_now_nanoseconds() - start;
    ramet_engine_get_stats(s.engine, &stats);
    bool is_well = report(&s, &stats, took);
    end(&s);
    return is_well ? 0 : 1;
}
