/* content.h - what a body is made of, in memory, and moving between the two; what is asked of a file before it is restored:
 * is it of our model, and is all of it sound; and what saving and converting have in common: the way to a file.
 *
 *   body     tokens | logits | sampler | recurrent | tile 0 | tile 1 | ...
 *   memory   an array each, or none                  pages of a context
 *
 * Owns the order of the body's bytes. Refuses to know where a context comes from. */
#ifndef RAMET_STORE_CONTENT_H
#define RAMET_STORE_CONTENT_H

#include "store/snapshot.h"
#include "store/stream.h"

enum { RAMET_TILE_TOKENS = 64 }; /* positions in a tile, but for the last: a page of 64 is one as it lies */

/* What has no memory is checked when it is read, and goes nowhere. */
typedef struct ramet_snapshot_content {
    const ramet_snapshot_header *header;
    void *sections[RAMET_SECTION_POSITIONS]; /* all but the positions */
    size_t n_owned;                          /* of the sections, from the first on */
    ramet_context *context;                  /* of the positions */
    const ramet_kv_layout *layout;           /* of its pages */
} ramet_snapshot_content;

/* Memory for the first `n_sections`, but for empty ones. */
ramet_status ramet_snapshot_content_create(const ramet_snapshot_header *header, size_t n_sections,
                                           ramet_snapshot_content *out, ramet_error *error);
void ramet_snapshot_content_free(ramet_snapshot_content *content);

/* From content to body and back: each is a ramet_body_move. And the ramet_body_place of both: what lies in a page as it
 * does in the body. */
ramet_status ramet_snapshot_export(void *content, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error);
ramet_status ramet_snapshot_import(void *content, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error);
uint8_t *ramet_snapshot_place(void *content, uint64_t off, size_t n);

typedef struct ramet_snapshot_target {
    const char *path;
    bool skip_sync;
    bool is_private; /* for its owner alone */
} ramet_snapshot_target;

/* Encodes the header, encrypted if there is a context key, and publishes the file: its body is placed or moved. */
ramet_status ramet_snapshot_publish(ramet_snapshot_header *h, const uint8_t *context_key,
                                    const ramet_snapshot_target *target, const ramet_store_crew *crew,
                                    ramet_body_place place, ramet_body_move move, void *user, ramet_error *error);

/* Whether the file is of this model, and its rows are what a cache of this precision holds (or may be others: allow_lossy). */
ramet_status ramet_snapshot_check_identity(const ramet_snapshot_reader *r, const ramet_snapshot_identity *identity,
                                           ramet_error *error);
/* Reads the body to the end of section `last`, checking every byte and token; the tokens need their memory. */
ramet_status ramet_snapshot_load(const ramet_snapshot_reader *r, ramet_section last, const ramet_store_crew *crew,
                                 ramet_snapshot_content *content, ramet_error *error);
/* Reads all of the file and keeps nothing. */
ramet_status ramet_snapshot_check(const ramet_snapshot_reader *r, const ramet_store_crew *crew, ramet_error *error);
/* [used] Reads all of the file, the positions into the context's pages from the first on, which are writable. Rows of
 * another precision than the pages' become rows of theirs. */
ramet_status ramet_snapshot_load_pages(const ramet_snapshot_reader *r, ramet_context *context,
                                       const ramet_kv_layout *layout, const ramet_store_crew *crew,
                                       ramet_snapshot_content *content, ramet_error *error);
/* Before pages are taken for the file's positions: when that would evict entries of the tree or write out what others
 * hold, reads the file first, so that a damaged one costs nobody anything. */
ramet_status ramet_snapshot_check_before_evicting(const ramet_snapshot_reader *r, ramet_cache *cache,
                                                  const ramet_store_crew *crew, ramet_error *error);

#endif
