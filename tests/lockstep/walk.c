/* walk.c - see lockstep.h: many operations in a row, in a child process. What it draws it writes down first, in memory
 * that is shared, so that whatever an operation does to the process, the list of them is there. */
#define _GNU_SOURCE
#include "lockstep/lockstep.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

lockstep_report *lockstep_now;

lockstep_report *lockstep_report_create(void) {
    void *memory =
        mmap(NULL, sizeof(lockstep_report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

void lockstep_report_destroy(lockstep_report *report) {
    munmap(report, sizeof *report);
}

uint64_t lockstep_n_run(const lockstep_report *report) {
    uint64_t n = 0;
    for (uint32_t kind = 0; kind < N_OP_KINDS; kind++) n += report->n_run[kind];
    return n;
}

/* ---- one process ---- */

void lockstep_fail(const char *format, ...) {
    ramet_alloc_fail_after(0);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(lockstep_now->message, sizeof lockstep_now->message, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", lockstep_now->message);
    abort();
}

/* Memory-backed where there is such a place. */
static void make_directory(char out[64]) {
    snprintf(out, 64, "%s/ramet-lockstep-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(out)) abort();
}

static void remove_directory(const char *directory) {
    DIR *d = opendir(directory);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(directory);
}

/* The operation, and the look at everything. */
static void one_step(pair *p, const op *o, lockstep_plant plant) {
    if (!op_run(p, o)) {
        lockstep_now->n_skipped++;
        return;
    }
    if (plant) plant(p, o);
    pair_require_equal(p);
    lockstep_now->n_run[o->kind]++;
}

static void close_walk(pair *p) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(p->cache, &stats);
    lockstep_now->n_copied += stats.pages_copied;
    lockstep_now->n_evicted += stats.tree_evictions;
    lockstep_now->n_written += stats.blocks_spilled;
    lockstep_now->n_read += stats.blocks_read_back;
    lockstep_now->n_lost += stats.contexts_lost;
    pair_close(p);
    lockstep_now->n_seeds_done++;
}

static void walk_seed(const lockstep_plan *plan, uint64_t seed, const char *directory) {
    op_list *list = &lockstep_now->list;
    list->seed = seed;
    list->n = 0;
    uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    static pair p;
    pair_open(&p, seed, directory);
    while (list->n < plan->n_ops) {
        op o = op_draw(&p, &rng);
        list->ops[list->n++] = o;
        one_step(&p, &o, plan->plant);
    }
    close_walk(&p);
}

static void replay(const op_list *list, lockstep_plant plant, const char *directory) {
    static pair p;
    pair_open(&p, list->seed, directory);
    for (uint32_t i = 0; i < list->n; i++) one_step(&p, &list->ops[i], plant);
    close_walk(&p);
}

void lockstep_replay_here(const op_list *list) {
    char directory[64];
    make_directory(directory);
    lockstep_now = lockstep_report_create();
    replay(list, NULL, directory);
    remove_directory(directory);
    lockstep_report_destroy(lockstep_now);
}

/* ---- children ---- */

typedef struct task {
    const lockstep_plan *plan; /* or */
    const op_list *list;
    lockstep_plant plant;
} task;

static void do_task(const task *t, const char *directory) {
    for (uint64_t i = 0; t->plan && i < t->plan->n_seeds; i++)
        walk_seed(t->plan, t->plan->first_seed + i * t->plan->seed_step, directory);
    if (t->list) replay(t->list, t->plant, directory);
}

/* What it said last, of a child that could not fill in the report: an assertion of ramet's, a sanitizer. */
static void read_last_words(FILE *errors, char *out, size_t out_bytes) {
    rewind(errors);
    size_t n = fread(out, 1, out_bytes - 1, errors);
    out[n] = 0;
    size_t begin = strspn(out, "\n= ");
    memmove(out, out + begin, n + 1 - begin);
    out[strcspn(out, "\n")] = 0;
    if (!out[0]) snprintf(out, out_bytes, "the process ended without a word");
}

static bool run_task(const task *t, lockstep_report *report) {
    char directory[64];
    make_directory(directory);
    FILE *errors = tmpfile();
    if (!errors) abort();
    report->message[0] = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(errors), STDERR_FILENO);
        lockstep_now = report;
        do_task(t, directory);
        exit(0); /* not _exit: leaks are looked for there */
    }
    int how = -1;
    if (child < 0 || waitpid(child, &how, 0) != child) abort();
    bool is_well = WIFEXITED(how) && WEXITSTATUS(how) == 0;
    if (!is_well && !report->message[0]) read_last_words(errors, report->message, sizeof report->message);
    fclose(errors);
    remove_directory(directory);
    return is_well;
}

bool lockstep_walk(const lockstep_plan *plan, lockstep_report *report) {
    return run_task(&(task){.plan = plan}, report);
}

bool lockstep_replay(const op_list *list, lockstep_plant plant, lockstep_report *report) {
    return run_task(&(task){.list = list, .plant = plant}, report);
}
