/* break_sweep.c - a fault for tests/faults: a start sweeps nothing. */
#include "base/sweep.h"

void __wrap_ramet_temporary_sweep(const char *directory);

void __wrap_ramet_temporary_sweep(const char *directory) {
    (void)directory;
}
