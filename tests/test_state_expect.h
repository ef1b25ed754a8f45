/* test_state_expect.h - checks by threads: failures are counted, since a thread cannot leave a test; the first is printed. */
#ifndef RAMET_TEST_STATE_EXPECT_H
#define RAMET_TEST_STATE_EXPECT_H

#include "test_state_pager.h"

#include <sched.h>

static atomic_uint n_failures;
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition) && atomic_fetch_add(&n_failures, 1) == 0)                                                     \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
    } while (0)

static inline void enter_patiently(ramet_context *context) {
    while (ramet_context_enter(context, NULL) != RAMET_OK) sched_yield();
}

#endif
