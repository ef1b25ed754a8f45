/* break_tag.c - a fault for tests/teeth: bytes are decrypted, and their tag is not looked at. Linked with --wrap. */
#include "base/crypt.h"

ramet_status __real_ramet_gcm_open(const ramet_gcm *gcm, const void *in, size_t bytes, void *out, const uint8_t *tag,
                                   ramet_error *error);
ramet_status __wrap_ramet_gcm_open(const ramet_gcm *gcm, const void *in, size_t bytes, void *out, const uint8_t *tag,
                                   ramet_error *error);

ramet_status __wrap_ramet_gcm_open(const ramet_gcm *gcm, const void *in, size_t bytes, void *out, const uint8_t *tag,
                                   ramet_error *error) {
    ramet_status status = __real_ramet_gcm_open(gcm, in, bytes, out, tag, error);
    return status == RAMET_E_AUTHENTICATION ? RAMET_OK : status;
}
