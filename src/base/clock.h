/* clock.h - monotonic time. */
#ifndef RAMET_BASE_CLOCK_H
#define RAMET_BASE_CLOCK_H
#include <stdint.h>
uint64_t ramet_now_nanoseconds(void);
#endif
