/* footprint.h - how much memory this process holds, as the system sees it. */
#ifndef RAMET_CLI_FOOTPRINT_H
#define RAMET_CLI_FOOTPRINT_H

#include <stdint.h>

/* Bytes now and at most so far; 0 where the system does not say. */
void ramet_footprint(uint64_t *out_resident_bytes, uint64_t *out_peak_bytes);

#endif
