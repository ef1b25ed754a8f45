/* policy.h - what the command line demands of saved contexts, and the key that they are encrypted with. */
#ifndef RAMET_CLI_POLICY_H
#define RAMET_CLI_POLICY_H

#include "cli/options.h"

/* Must stay where it is while it is open: `rules` points to the key. */
typedef struct ramet_policy {
    ramet_snapshot_policy rules;
    uint8_t key[RAMET_KEY_BYTES];
} ramet_policy;

/* Reads the key, if the options name a file of one. Errors as ramet_key_read. */
ramet_status ramet_policy_open(const ramet_options *o, ramet_policy *out, ramet_error *error);
/* The same for one file: no key is read where it is not encrypted. */
ramet_status ramet_policy_open_for(const ramet_options *o, const ramet_snapshot_info *file, ramet_policy *out,
                                   ramet_error *error);
/* Wipes the key. */
void ramet_policy_close(ramet_policy *p);

#endif
