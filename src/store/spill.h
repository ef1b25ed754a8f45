/* spill.h - a pager on disk: blocks that memory has no room for, as encrypted files in a directory of this object's own.
 *
 *   SPILL_DIRECTORY/ramet-<16 digits>/<name, 16 digits>     one file for each block
 *   file    piece | tag | piece | tag | ...                 pieces of 128 KiB, but for the last
 *   key     HKDF-SHA-256 of the owner's key, with a random salt that is written nowhere
 *   piece   AES-256-GCM; nonce = u64 name | u32 piece; aad = u64 name | u64 bytes of the block
 *
 * A name is given once in the life of the object (the cache's promise), and the key is its own, so no nonce comes twice;
 * and since the key goes with the object, what is left of it on a disk is noise. Nothing is synced: it is worth nothing
 * to another process. The directory goes with the object, at a signal (temporary.h), or with the next process that
 * spills there (sweep.h).
 *
 * Owns the files and their form. Refuses to know what the blocks are and which go. */
#ifndef RAMET_STORE_SPILL_H
#define RAMET_STORE_SPILL_H

#include "store/snapshot.h"

typedef struct ramet_spill ramet_spill;

/* Makes the object's directory in `directory`, so that one that cannot be written to is known now: E_ARGUMENT (an empty
 * name), E_NOT_FOUND, E_IO, E_NO_DISK, E_NO_MEMORY. The process may change its own directory afterwards. `crew` is copied;
 * NULL: whoever calls works alone. */
ramet_status ramet_spill_create(const char *directory, const uint8_t key[RAMET_KEY_BYTES], const ramet_store_crew *crew,
                                ramet_spill **out, ramet_error *error);
/* After the cache that pages through it. */
void ramet_spill_destroy(ramet_spill **spill);
/* For ramet_cache_options. Of a read: E_CORRUPT (a file of another size, or none), E_AUTHENTICATION and E_IO are for good;
 * what may go away, no memory and no descriptors, is E_NO_MEMORY. */
ramet_pager ramet_spill_pager(ramet_spill *spill);

#endif
