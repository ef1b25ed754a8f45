/* soak.c - the lockstep walks for as long as it takes: ramet-soak [OPERATIONS [PROCESSES [SEED]]]. Each process walks
 * every n-th seed from SEED on, in rounds of a few hundred, until all together have run so many operations. It prints
 * what was run, of each kind. Exit status 1: a walk failed; its shortened list is printed. */
#define _GNU_SOURCE
#include "lockstep/lockstep.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPS_PER_SEED = 400, SEEDS_PER_ROUND = 420, MAX_PROCESSES = 64 };

typedef struct worker {
    lockstep_report *report;
    pid_t pid;
} worker;

static uint64_t n_wanted = 120000000, first_seed = 1000;
static uint32_t n_workers = 2;
static worker workers[MAX_PROCESSES];

/* Shared by all: asked to stop, a worker ends with its round, which cleans up behind it. */
static volatile sig_atomic_t *must_stop;

static void stop(int signal_number) {
    (void)signal_number;
    *must_stop = 1;
}

static uint64_t n_run_by_all(void) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_workers; i++) n += lockstep_n_run(workers[i].report);
    return n;
}

static bool has_failed(void) {
    for (uint32_t i = 0; i < n_workers; i++)
        if (workers[i].report->message[0]) return true;
    return false;
}

/* In its own process, which has a child for each round: what a walk leaks or breaks ends with the round. */
static int work(uint32_t number, const char *program) {
    lockstep_plan plan = {
        .first_seed = first_seed + number, .seed_step = n_workers, .n_seeds = SEEDS_PER_ROUND, .n_ops = OPS_PER_SEED};
    for (; n_run_by_all() < n_wanted && !has_failed() && !*must_stop;
         plan.first_seed += plan.n_seeds * plan.seed_step) {
        if (lockstep_walk(&plan, workers[number].report)) continue;
        lockstep_explain(&plan, workers[number].report, program);
        return 1;
    }
    return 0;
}

static void print_progress(uint64_t begin_ns) {
    double seconds = (double)(ramet_now_nanoseconds() - begin_ns) * 1e-9;
    uint64_t n = n_run_by_all();
    printf("%llu operations, %.0f s, %.0f a second\n", (unsigned long long)n, seconds, (double)n / seconds);
    fflush(stdout);
}

static void print_counts(void) {
    static lockstep_report sum;
    for (uint32_t i = 0; i < n_workers; i++) {
        const lockstep_report *r = workers[i].report;
        for (uint32_t kind = 0; kind < N_OP_KINDS; kind++) sum.n_run[kind] += r->n_run[kind];
        sum.n_skipped += r->n_skipped;
        sum.n_seeds_done += r->n_seeds_done;
        sum.n_refused += r->n_refused;
        sum.n_without_memory += r->n_without_memory;
        sum.n_busy += r->n_busy;
        sum.n_copied += r->n_copied;
        sum.n_evicted += r->n_evicted;
        sum.n_without_disk += r->n_without_disk;
        sum.n_written += r->n_written;
        sum.n_read += r->n_read;
        sum.n_lost += r->n_lost;
    }
    for (uint32_t kind = 0; kind < N_OP_KINDS; kind++)
        printf("  %-16s %12llu\n", op_name(kind), (unsigned long long)sum.n_run[kind]);
    printf("%llu seeds; of the operations %llu were refused by both, %llu had no memory, %llu no disk, %llu met "
           "another owner; %llu skipped besides\n",
           (unsigned long long)sum.n_seeds_done, (unsigned long long)sum.n_refused,
           (unsigned long long)sum.n_without_memory, (unsigned long long)sum.n_without_disk,
           (unsigned long long)sum.n_busy, (unsigned long long)sum.n_skipped);
    printf("%llu pages copied, %llu entries evicted, %llu blocks written out, %llu read back, %llu contexts lost\n",
           (unsigned long long)sum.n_copied, (unsigned long long)sum.n_evicted, (unsigned long long)sum.n_written,
           (unsigned long long)sum.n_read, (unsigned long long)sum.n_lost);
}

static void start_workers(const char *program) {
    for (uint32_t i = 0; i < n_workers; i++) workers[i].report = lockstep_report_create();
    fflush(NULL);
    for (uint32_t i = 0; i < n_workers; i++) {
        workers[i].pid = fork();
        if (workers[i].pid == 0) exit(work(i, program));
        if (workers[i].pid < 0) abort();
    }
}

/* True: none has failed. */
static bool wait_for_workers(uint64_t begin_ns) {
    bool is_well = true;
    uint64_t last_ns = begin_ns;
    for (uint32_t n_left = n_workers; n_left > 0;) {
        int how;
        if (waitpid(-1, &how, WNOHANG) > 0) {
            n_left--;
            is_well = is_well && WIFEXITED(how) && WEXITSTATUS(how) == 0;
            continue;
        }
        sleep(1);
        if (ramet_now_nanoseconds() - last_ns < UINT64_C(60000000000)) continue;
        last_ns = ramet_now_nanoseconds();
        print_progress(begin_ns);
    }
    return is_well;
}

int main(int argc, char **argv) {
    if (argc > 1) n_wanted = strtoull(argv[1], NULL, 0);
    if (argc > 2) n_workers = (uint32_t)strtoul(argv[2], NULL, 0);
    if (argc > 3) first_seed = strtoull(argv[3], NULL, 0);
    if (n_wanted == 0 || n_workers == 0 || n_workers > MAX_PROCESSES || argc > 4) {
        fprintf(stderr, "usage: %s [OPERATIONS [PROCESSES [SEED]]]\n", argv[0]);
        return 2;
    }
    printf("%llu operations by %u processes, %d per seed, from seed %llu; everything is compared after each\n",
           (unsigned long long)n_wanted, n_workers, OPS_PER_SEED, (unsigned long long)first_seed);
    uint64_t begin_ns = ramet_now_nanoseconds();
    must_stop = mmap(NULL, sizeof *must_stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (must_stop == MAP_FAILED) abort();
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    start_workers("test_state_lockstep"); /* which runs a seed again */
    bool is_well = wait_for_workers(begin_ns);
    print_progress(begin_ns);
    print_counts();
    printf("%s%s\n", is_well ? "no difference" : "FAILED", *must_stop ? ", stopped early" : "");
    return is_well ? 0 : 1;
}
