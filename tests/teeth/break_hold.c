/* break_hold.c - a fault for tests/faults: temporary things are not held, so a sweeper takes them for dead. */
#include "base/sweep.h"

bool __wrap_ramet_temporary_hold(int fd, const char *path);

bool __wrap_ramet_temporary_hold(int fd, const char *path) {
    (void)fd, (void)path;
    return true;
}
