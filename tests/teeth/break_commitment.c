/* break_commitment.c - a fault for tests/teeth: any key commitment will do. Linked with --wrap. */
#include "base/crypt.h"

bool __wrap_ramet_equal_secret(const void *a, const void *b, size_t bytes);

bool __wrap_ramet_equal_secret(const void *a, const void *b, size_t bytes) {
    (void)a, (void)b, (void)bytes;
    return true;
}
