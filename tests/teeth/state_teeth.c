/* state_teeth.c - a state room that is broken on purpose (one of break_*.c, linked in the place of the right function)
 * must fail the lockstep walks, by number, and with a list of operations that fits on a screen:
 *   state_teeth_<fault> NUMBER...      exit status 0: it was found, and is one of these. "none": it must not be found. */
#include "lockstep/lockstep.h"

#include <string.h>

enum { SHORT = 8 };

static bool is_named(const char *message, char **numbers, int n) {
    for (int i = 0; i < n; i++)
        if (strstr(message, numbers[i])) return true;
    return false;
}

int main(int argc, char **argv) {
    lockstep_plan plan = {.first_seed = 1, .seed_step = 1, .n_seeds = 48, .n_ops = 400};
    lockstep_report *report = lockstep_report_create();
    bool is_well = lockstep_walk(&plan, report);
    if (argc == 2 && strcmp(argv[1], "none") == 0) {
        printf("control: %llu operations without a fault, %s\n", (unsigned long long)lockstep_n_run(report),
               is_well ? "and none is found" : report->message);
        return is_well ? 0 : 1;
    }
    if (is_well) {
        printf("%llu operations, and the fault was not found\n", (unsigned long long)lockstep_n_run(report));
        return 1;
    }
    lockstep_report *scratch = lockstep_report_create();
    lockstep_shrink(&report->list, NULL, scratch);
    op_list_print(&report->list, stdout);
    bool is_good = is_named(report->message, argv + 1, argc - 1) && report->list.n <= SHORT &&
                   is_named(scratch->message, argv + 1, argc - 1);
    printf("control: found after %llu operations: %s\nshown by %u: %s%s\n", (unsigned long long)lockstep_n_run(report),
           report->message, report->list.n, scratch->message, is_good ? "" : "\nThat is not what it should be.");
    return is_good ? 0 : 1;
}
