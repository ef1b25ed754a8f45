/* content.h - what restoring and unspilling have in common: is this file of our model, is all of it sound, and moving
 * its rows into pages.
 *
 * Owns the order of checks: identity, then every byte; memory is allocated here too, so that what comes after can only
 * fail if the file changes under it. Refuses to know where a context comes from. */
#ifndef RAMET_STORE_CONTENT_H
#define RAMET_STORE_CONTENT_H

#include "store/snapshot.h"
#include "store/stream.h"

/* A few exported positions: between pages and the body. */
typedef struct ramet_row_buffer {
    uint8_t *memory;
    uint32_t n_rows;
} ramet_row_buffer;

ramet_status ramet_row_buffer_create(const ramet_kv_layout *layout, ramet_row_buffer *out, ramet_error *error);
/* How many positions from `pos` on, below `end`, go through the buffer at once: they lie in one page. */
uint32_t ramet_row_buffer_run(const ramet_row_buffer *rows, const ramet_kv_layout *layout, uint32_t pos, uint32_t end);

/* Everything but the positions. */
typedef struct ramet_snapshot_content {
    int32_t *tokens;
    float *logits; /* NULL: none */
    void *sampler; /* NULL: none */
} ramet_snapshot_content;

ramet_status ramet_snapshot_check_identity(const ramet_snapshot_reader *r, const ramet_snapshot_identity *identity,
                                           ramet_error *error);
/* Reads the file to its end, checking every byte. */
ramet_status ramet_snapshot_load(ramet_snapshot_reader *r, ramet_snapshot_content *out, ramet_error *error);
ramet_status ramet_snapshot_load_tokens(ramet_snapshot_reader *r, int32_t **out, ramet_error *error);
void ramet_snapshot_content_free(ramet_snapshot_content *content);

/* [inside] Writes the file's rows into the context's pages, which must be writable; checks every chunk again. */
ramet_status ramet_snapshot_fill(ramet_snapshot_reader *r, ramet_context *context, const ramet_kv_layout *layout,
                                 ramet_row_buffer *rows, ramet_error *error);

#endif
