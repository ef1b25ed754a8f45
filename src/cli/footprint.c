/* footprint.c - see footprint.h. Linux says it in /proc. */
#include "cli/footprint.h"

#include <inttypes.h>
#include <stdio.h>

void ramet_footprint(uint64_t *out_resident_bytes, uint64_t *out_peak_bytes) {
    char line[256];
    uint64_t kib;
    *out_resident_bytes = *out_peak_bytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) return;
    while (fgets(line, sizeof line, status)) {
        if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1) *out_resident_bytes = kib * 1024;
        if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1) *out_peak_bytes = kib * 1024;
    }
    fclose(status);
}
