/* convert.c - see snapshot.h: a snapshot rewritten, at another precision, under another key or none, or in the current
 * format. The new file is made chunk by chunk out of the old one, of which every byte is checked on the way. Where it shows
 * what the old one kept secret, nobody but its owner may read it. */
#include "store/content.h"
#include "store/recode.h"

#include <string.h>

/* What the new file says: all that the old one said, but for the payload and how it is encrypted. */
static ramet_status new_header(const ramet_snapshot_reader *r, ramet_kv payload, ramet_snapshot_header *out,
                               ramet_error *error) {
    *out = r->header;
    if (payload > RAMET_KV_Q8) return ramet_fail(error, RAMET_E_ARGUMENT, "payload of precision %d", (int)payload);
    if ((uint32_t)payload < r->header.payload)
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s has %s rows: as %s they would say no more", r->path,
                          ramet_kv_name((ramet_kv)r->header.payload), ramet_kv_name(payload));
    out->payload = (uint32_t)payload;
    memset(out->salt, 0, sizeof out->salt);
    memset(out->commitment, 0, sizeof out->commitment);
    return RAMET_OK;
}

static ramet_status check_tokens(const ramet_snapshot_reader *r, ramet_error *error) {
    ramet_snapshot_content tokens;
    RAMET_TRY(ramet_snapshot_content_create(&r->header, 1, &tokens, error));
    ramet_status status = ramet_snapshot_load(r, RAMET_SECTION_TOKENS, NULL, &tokens, error);
    ramet_snapshot_content_free(&tokens);
    return status;
}

static ramet_status convert(ramet_snapshot_reader *r, ramet_kv payload, const uint8_t *context_key, const char *path,
                            const ramet_store_crew *crew, ramet_snapshot_info *out_info, ramet_error *error) {
    ramet_snapshot_header h;
    RAMET_TRY(new_header(r, payload, &h, error));
    RAMET_TRY(check_tokens(r, error));
    ramet_recoder recoder = ramet_recoder_of(&r->header, &h, ramet_body_read_range, r);
    ramet_snapshot_target target = {.path = path, .is_private = r->header.is_encrypted && !context_key};
    RAMET_TRY(ramet_snapshot_publish(&h, context_key, &target, crew, NULL, ramet_recode, &recoder, error));
    if (out_info) ramet_snapshot_header_info(&h, out_info);
    return RAMET_OK;
}

ramet_status ramet_store_convert(const char *path, const ramet_snapshot_policy *policy, const char *to_path,
                                 ramet_kv payload, const uint8_t *context_key, const ramet_store_crew *crew,
                                 ramet_snapshot_info *out_info, ramet_error *error) {
    static const ramet_snapshot_policy plain;
    ramet_snapshot_reader reader;
    RAMET_TRY(ramet_snapshot_reader_open(path, policy ? policy : &plain, &reader, error));
    ramet_status status = convert(&reader, payload, context_key, to_path, crew, out_info, error);
    ramet_snapshot_reader_close(&reader);
    return status;
}
