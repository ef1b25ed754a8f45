/* kill.c - case 32: a process that saves, spills and evicts is killed (SIGKILL) at a random moment, again and again, in
 * one directory. After each death every save that it said was done is there, whole, that one or a later one; and after
 * each start nothing temporary of the dead is left.
 *
 *   ramet-killtest [--control] [KILLS [SEED]]
 *
 * With --control the process writes its files in place, as one should not: a loss must be found. Ends with 1 when what
 * must not happen did, or when what must did not. */
#define _GNU_SOURCE
#include "ramet.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { SLOTS = 4, LENGTH = 160, SPILLED = 3, MAX_DELAY_US = 18000 };

static ramet_model *model;
static ramet_engine *engine;
static ramet_context *base; /* every saved context is a prefix of it and a token more */
static uint32_t n_vocab;
static int32_t tokens[LENGTH];
static char directory[64], base_path[64]; /* `base` as a file, elsewhere: nobody has swept `directory` before */
static bool is_control;

static uint64_t rng_state;

static uint32_t draw_below(uint32_t n) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)((rng_state * 0x2545f4914f6cdd1dull >> 33) % n);
}

static void must(ramet_status status, const ramet_error *error, const char *what) {
    if (status == RAMET_OK) return;
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}
#define MUST(expression)                                                                                               \
    do {                                                                                                               \
        ramet_error error_ = {0}, *error = &error_;                                                                    \
        must((expression), error, #expression);                                                                        \
    } while (0)

static void slot_path(char out[96], uint32_t slot) {
    snprintf(out, 96, "%s/slot-%u.ramet", directory, slot);
}

/* Slots aside: what is temporary, of whomever. */
static uint32_t count_temporary(void) {
    uint32_t n = 0;
    DIR *d = opendir(directory);
    if (!d) abort();
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.' && strstr(e->d_name, "amet-") != NULL;
    closedir(d);
    return n;
}

/* ---- the process that is killed ---- */

/* One write each: whole in the pipe, or not there. */
typedef struct message {
    enum { STARTED, SAVED } what;
    uint32_t slot, version;
    uint32_t n_left; /* temporary things of others, after a start */
} message;

static int to_parent;

static void tell(message m) {
    if (write(to_parent, &m, sizeof m) != (ssize_t)sizeof m) _exit(1);
}

static uint32_t length_of(uint32_t version) {
    return 1 + version * 37 % (LENGTH - 1);
}
static int32_t last_token_of(uint32_t version) {
    return (int32_t)(version * 2654435761u % n_vocab);
}

static ramet_context *make_version(uint32_t version) {
    ramet_context *context;
    int32_t last = last_token_of(version);
    MUST(ramet_context_fork(base, &context, error));
    MUST(ramet_context_truncate(context, length_of(version) - 1, error));
    MUST(ramet_context_extend(context, &last, 1, error));
    return context;
}

static void copy_in_place(const char *from, const char *to) {
    char piece[512];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (ssize_t n; (n = read(in, piece, sizeof piece)) > 0;)
        if (write(out, piece, (size_t)n) != n) _exit(1);
    close(in);
    close(out);
}

static void save_version(uint32_t slot, uint32_t version) {
    char path[96], owner[16], beside[128];
    snprintf(owner, sizeof owner, "%u", version);
    slot_path(path, slot);
    snprintf(beside, sizeof beside, "%s.made", path);
    const ramet_snapshot_options options = {.owner = owner, .skip_sync = draw_below(4) != 0};
    ramet_context *context = make_version(version);
    MUST(ramet_snapshot_save(context, is_control ? beside : path, &options, NULL, error));
    if (is_control) copy_in_place(beside, path);
    MUST(ramet_context_close(&context, error));
    tell((message){.what = SAVED, .slot = slot, .version = version});
}

/* An engine of this process's own, which spills where it saves, and the base in it. */
static void start_engine(void) {
    const ramet_engine_options options = {.threads = 1, .n_ctx = 256, .spill_directory = directory};
    MUST(ramet_engine_create(model, &options, &engine, error));
    MUST(ramet_snapshot_restore(engine, base_path, NULL, &base, NULL, NULL, error));
}

/* Spills, reads back, or closes one of a few; and evicts everything now and then. */
static void shuffle_spills(ramet_context *spilled[SPILLED], uint32_t version) {
    uint32_t i = draw_below(SPILLED);
    if (!spilled[i]) {
        spilled[i] = make_version(version);
        MUST(ramet_prefix_retain(spilled[i], NULL, error));
        MUST(ramet_context_spill(spilled[i], error));
    } else if (draw_below(2)) {
        const float *row;
        MUST(ramet_context_logits(spilled[i], &row, error)); /* reads it back */
    } else
        MUST(ramet_context_close(&spilled[i], error));
    if (draw_below(4) == 0) ramet_prefix_clear(engine);
}

static void work(uint32_t version, int pipe_end) {
    ramet_context *spilled[SPILLED] = {0};
    to_parent = pipe_end;
    start_engine(); /* the first thing that it does here sweeps */
    tell((message){.what = STARTED, .n_left = count_temporary() - 1});
    save_version(version % SLOTS, version);
    for (;;) {
        version++;
        save_version(draw_below(SLOTS), version);
        shuffle_spills(spilled, version);
    }
}

/* ---- the one that kills and looks ---- */

typedef struct tally {
    uint32_t promised[SLOTS], version; /* latest that was said to be saved in each, and of all that were begun */
    uint64_t n_kills, n_saved, n_checked, n_lost, n_starts, n_found, n_left;
} tally;

/* Everything that the dead one said. */
static void listen(tally *t, int pipe_end) {
    message m;
    while (read(pipe_end, &m, sizeof m) == (ssize_t)sizeof m) {
        if (m.what == STARTED) {
            t->n_starts++;
            t->n_left += m.n_left;
        } else {
            t->promised[m.slot] = m.version;
            if (m.version > t->version) t->version = m.version;
            t->n_saved++;
        }
    }
}

/* The file's own version, when all of it is as that was saved; else 0. */
static uint32_t version_in(const char *path) {
    ramet_error refusal;
    ramet_snapshot_info info;
    ramet_context *context;
    if (ramet_snapshot_restore(engine, path, NULL, &context, NULL, &info, &refusal) != RAMET_OK) {
        if (!is_control) fprintf(stderr, "%s\n", refusal.message);
        return 0;
    }
    uint32_t version = (uint32_t)strtoul(info.owner, NULL, 10), n = ramet_context_length(context);
    int32_t read_tokens[LENGTH];
    bool is_right = n == length_of(version);
    if (is_right) {
        MUST(ramet_context_tokens(context, 0, n, read_tokens, error));
        is_right = memcmp(read_tokens, tokens, (n - 1) * sizeof *tokens) == 0;
        is_right = is_right && read_tokens[n - 1] == last_token_of(version);
    }
    MUST(ramet_context_close(&context, error));
    return is_right ? version : 0;
}

static void look(tally *t) {
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        char path[96];
        if (t->promised[slot] == 0) continue;
        slot_path(path, slot);
        uint32_t version = version_in(path);
        t->n_checked++;
        if (version >= t->promised[slot]) {
            t->promised[slot] = version; /* done, and killed before it could say so */
            if (version > t->version) t->version = version;
        } else {
            t->n_lost++;
            t->promised[slot] = 0;
        }
    }
    t->n_found += count_temporary();
}

static void kill_one(tally *t) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
    uint32_t delay = draw_below(MAX_DELAY_US);
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        close(ends[0]);
        work(t->version + 1, ends[1]);
    }
    close(ends[1]);
    usleep(delay);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) exit(1); /* it has said why */
    t->n_kills++;
    listen(t, ends[0]);
    close(ends[0]);
    look(t);
}

/* ---- around it ---- */

static void open_engine(void) {
    const ramet_model_options one_thread = {.threads = 1};
    const ramet_engine_options options = {.threads = 1, .n_ctx = 256}; /* no other thread: forks go on in children */
    ramet_model_info info;
    MUST(ramet_model_open(MODEL, &one_thread, &model, error));
    MUST(ramet_engine_create(model, &options, &engine, error));
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    for (uint32_t i = 0; i < LENGTH; i++) tokens[i] = (int32_t)(i * 7919 % n_vocab);
    MUST(ramet_context_create(engine, &base, error));
    MUST(ramet_context_extend(base, tokens, LENGTH, error));
    strcpy(directory, "/tmp/ramet-test-kill-XXXXXX");
    if (!mkdtemp(directory)) abort();
    strcpy(base_path, "/tmp/ramet-test-kill-base-XXXXXX");
    close(mkstemp(base_path));
    MUST(ramet_snapshot_save(base, base_path, NULL, NULL, error));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void close_engine(void) {
    MUST(ramet_context_close(&base, error));
    ramet_engine_destroy(&engine);
    ramet_model_close(&model);
    nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    unlink(base_path);
}

/* A last one, which ends by itself: it leaves its files and nothing else. */
static void start_and_end(tally *t) {
    is_control = false;
    save_version(0, t->version + 1);
    t->n_left += count_temporary();
}

int main(int argc, char **argv) {
    int at = 1;
    is_control = argc > 1 && strcmp(argv[1], "--control") == 0;
    at += is_control;
    unsigned long kills = argc > at ? strtoul(argv[at], NULL, 10) : 200;
    unsigned long long seed = argc > at + 1 ? strtoull(argv[at + 1], NULL, 0) : 20240607;
    const char *env = getenv("RAMET_SEED");
    if (argc <= at + 1 && env) seed = strtoull(env, NULL, 0);
    rng_state = seed * 2 + 1;
    open_engine();
    tally t = {0};
    while (t.n_kills < kills) kill_one(&t);
    bool was_control = is_control;
    to_parent = open("/dev/null", O_WRONLY);
    start_and_end(&t);
    close_engine();
    printf(
        "%llu kills (seed %llu): %llu saves acknowledged, %llu files checked, %llu lost; %llu temporary things after "
        "kills, %llu after %llu starts\n",
        (unsigned long long)t.n_kills, seed, (unsigned long long)t.n_saved, (unsigned long long)t.n_checked,
        (unsigned long long)t.n_lost, (unsigned long long)t.n_found, (unsigned long long)t.n_left,
        (unsigned long long)t.n_starts + 1);
    if (was_control) {
        printf("control: files written in place, %llu lost\n", (unsigned long long)t.n_lost);
        return t.n_lost == 0;
    }
    return t.n_lost > 0 || t.n_left > 0 || t.n_saved == 0 || t.n_found == 0;
}
