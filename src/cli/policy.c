/* policy.c - see policy.h. */
#include "cli/policy.h"
#include "base/crypt.h"

ramet_status ramet_policy_open(const ramet_options *o, ramet_policy *out, ramet_error *error) {
    *out = (ramet_policy){.rules = {.encrypted_only = o->profile != NULL,
                                    .allow_legacy = o->allow_legacy,
                                    .allow_lossy = o->allow_lossy,
                                    .min_generation = o->min_generation}};
    if (!o->context_key) return RAMET_OK;
    ramet_error cause;
    ramet_status status = ramet_key_read(o->context_key, out->key, &cause);
    if (status != RAMET_OK) /* who typed no key is told where it was named */
        return ramet_fail(error, status, "%s%s", o->key_of_environment ? "RAMET_CONTEXT_KEY: " : "", cause.message);
    out->rules.context_key = out->key;
    return RAMET_OK;
}

ramet_status ramet_policy_open_for(const ramet_options *o, const ramet_snapshot_info *file, ramet_policy *out,
                                   ramet_error *error) {
    ramet_options needed = *o;
    if (!file->encrypted) needed.context_key = NULL;
    return ramet_policy_open(&needed, out, error);
}

void ramet_policy_close(ramet_policy *p) {
    ramet_wipe(p, sizeof *p);
}
