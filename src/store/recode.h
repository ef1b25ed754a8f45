/* recode.h - a body with its rows at another precision: any range of it is made of the range of the source that it needs.
 *
 *   source (a file's chunks, or a context's pages)        the body that is asked for
 *     tokens | logits | sampler                       ->    the same
 *     a layer of a tile at `from`'s payload           ->    that layer at `to`'s: decoded to float32, and written as the
 *                                                           cache of that precision writes it (numerics/kv.h)
 *
 * Owns the change of precision. Refuses to know where the source is and whether a loss is allowed. */
#ifndef RAMET_STORE_RECODE_H
#define RAMET_STORE_RECODE_H

#include "store/stream.h"

typedef struct ramet_recoder {
    const ramet_snapshot_header *from, *to; /* of one context; they differ in the payload and what follows from it */
    ramet_body_move source;                 /* gives any range of the body of `from`, to any thread */
    void *user;
    ramet_kv_layout from_page, to_page; /* of one head of one layer, and of as many positions as a tile has */
} ramet_recoder;

/* The headers are borrowed: their sizes must be right when ramet_recode is called. */
ramet_recoder ramet_recoder_of(const ramet_snapshot_header *from, const ramet_snapshot_header *to,
                               ramet_body_move source, void *user);
/* Bytes [off, off + n) of the body of `to`: a ramet_body_move whose user is the recoder. Memory: a layer of a tile of the
 * source, and a head of it at both precisions. */
ramet_status ramet_recode(void *recoder, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error);

#endif
