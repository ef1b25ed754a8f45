/* bandwidth.h - how fast this machine reads and copies memory right now: the limits that bench rows run into. */
#ifndef RAMET_CLI_BANDWIDTH_H
#define RAMET_CLI_BANDWIDTH_H

#include "base/error.h"

typedef struct ramet_bandwidth ramet_bandwidth;

/* Buffers larger than the last cache, each part first touched by the thread that will use it. */
ramet_status ramet_bandwidth_create(uint32_t threads, ramet_bandwidth **out, ramet_error *error);
/* The fastest of a few passes of each. Bytes copied count once, though each is read and written. */
void ramet_bandwidth_measure(ramet_bandwidth *b, double *out_read_per_second, double *out_copy_per_second);
void ramet_bandwidth_destroy(ramet_bandwidth **b);

#endif
