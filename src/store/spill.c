/* spill.c - see snapshot.h: a spilled context is a snapshot file that its context alone knows, and zero pages (K9).
 * The file is removed once the context is back, not before. */
#define _GNU_SOURCE
#include "base/temporary.h"
#include "store/content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name says nothing about the content: no two spills meet, whoever shares the directory. */
static ramet_status name_spill(const char *directory, char **out, ramet_error *error) {
    char name[64];
    snprintf(name, sizeof name, "spill-%016llx%016llx.ramet", (unsigned long long)ramet_noise(),
             (unsigned long long)ramet_noise());
    return ramet_nest_add(directory, name, out, error);
}

/* Worthless once this process is gone, so it need not outlive a crash of the machine. */
static const ramet_snapshot_options spill_options = {.skip_sync = true};

ramet_status ramet_store_spill(ramet_context *context, const ramet_snapshot_identity *identity, const uint8_t *key,
                               const char *directory, const ramet_store_crew *crew, ramet_error *error) {
    if (ramet_context_where(context)) return RAMET_OK;
    char *path = NULL;
    RAMET_TRY(name_spill(directory, &path, error));
    ramet_status status = ramet_store_save(context, identity, &spill_options, key, path, crew, NULL, error);
    if (status == RAMET_OK) status = ramet_context_drop(context, path, error);
    if (status != RAMET_OK) ramet_nest_remove(path);
    free(path);
    return status;
}

/* The context still knows its tokens: a file of other ones is not its own. */
static ramet_status other_tokens(const ramet_snapshot_reader *r, ramet_error *error) {
    return ramet_fail(error, RAMET_E_CORRUPT, "%s has the tokens of another context", r->path);
}

/* Pages under the context, and the file in them. If it turns out not to be sound, or not its own, the pages go again: a
 * context must never be resident with positions that are not its own. */
static ramet_status refill(ramet_context *context, const ramet_kv_layout *layout, const ramet_snapshot_reader *r,
                           const ramet_store_crew *crew, ramet_snapshot_content *tokens, ramet_error *error) {
    ramet_spilled spilled;
    uint32_t n = r->header.n_tokens;
    RAMET_TRY(ramet_context_refill(context, &spilled, error));
    ramet_status status = ramet_snapshot_load_pages(r, context, layout, crew, tokens, error);
    if (status == RAMET_OK && ramet_context_common_prefix(context, tokens->sections[RAMET_SECTION_TOKENS], n) != n)
        status = other_tokens(r, error);
    if (status != RAMET_OK) ramet_context_undo_refill(context, &spilled);
    ramet_spilled_free(&spilled);
    return status;
}

static ramet_status unspill_from(ramet_context *context, const ramet_snapshot_identity *identity,
                                 const ramet_snapshot_reader *r, const ramet_store_crew *crew, ramet_error *error) {
    ramet_snapshot_content tokens;
    RAMET_TRY(ramet_snapshot_check_identity(r, identity, error));
    if (r->header.n_tokens != ramet_context_length(context)) return other_tokens(r, error);
    RAMET_TRY(ramet_snapshot_check_before_evicting(r, ramet_context_cache(context), crew, error));
    RAMET_TRY(ramet_snapshot_content_create(&r->header, 1, &tokens, error));
    ramet_status status = refill(context, identity->layout, r, crew, &tokens, error);
    ramet_snapshot_content_free(&tokens);
    return status;
}

/* Nothing that a second try could change. */
static bool is_lost(ramet_status status) {
    return status == RAMET_E_CORRUPT || status == RAMET_E_AUTHENTICATION || status == RAMET_E_NOT_FOUND ||
           status == RAMET_E_UNSUPPORTED || status == RAMET_E_MODEL_MISMATCH || status == RAMET_E_NUMERICS_MISMATCH ||
           status == RAMET_E_ARGUMENT;
}

ramet_status ramet_store_unspill(ramet_context *context, const ramet_snapshot_identity *identity, const uint8_t *key,
                                 const ramet_store_crew *crew, ramet_error *error) {
    const ramet_snapshot_policy own = {.context_key = key, .encrypted_only = key != NULL};
    if (!ramet_context_where(context)) return RAMET_OK;
    char *path = strdup(ramet_context_where(context)); /* the context's own goes when it is resident */
    if (!path) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to read a spilled context back");
    ramet_snapshot_reader reader;
    ramet_status status = ramet_snapshot_reader_open(path, &own, &reader, error);
    if (status == RAMET_OK) {
        status = unspill_from(context, identity, &reader, crew, error);
        ramet_snapshot_reader_close(&reader);
    }
    if (status == RAMET_OK) ramet_nest_remove(path);
    if (is_lost(status)) ramet_fail_prefix(error, status, "a spilled context is lost");
    free(path);
    return status;
}

void ramet_store_forget_spill(const ramet_context *context) {
    const char *path = ramet_context_where(context);
    if (path) ramet_nest_remove(path);
}
