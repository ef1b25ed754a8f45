/* policy.c - see policy.h. */
#include "cli/policy.h"
#include "base/crypt.h"

ramet_status ramet_policy_open(const ramet_options *o, ramet_policy *out, ramet_error *error) {
    *out = (ramet_policy){.rules = {.encrypted_only = o->profile != NULL,
                                    .allow_legacy = o->allow_legacy,
                                    .allow_lossy = o->allow_lossy,
                                    .min_generation = o->min_generation}};
    if (!o->context_key) return RAMET_OK;
    RAMET_TRY(ramet_key_read(o->context_key, out->key, error));
    out->rules.context_key = out->key;
    return RAMET_OK;
}

void ramet_policy_close(ramet_policy *p) {
    ramet_wipe(p, sizeof *p);
}
