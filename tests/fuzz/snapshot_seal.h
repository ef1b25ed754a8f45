/* snapshot_seal.h - the encrypted form of a snapshot in memory, there and back, for a mutator that wants to get behind the seals. */
#ifndef RAMET_FUZZ_SNAPSHOT_SEAL_H
#define RAMET_FUZZ_SNAPSHOT_SEAL_H

#include "fuzz.h"

extern const uint8_t snapshot_fuzz_key[RAMET_KEY_BYTES];

/* A plain file becomes an encrypted one of the same size, in place; false: it is not sound, and nothing has changed. */
bool snapshot_seal(uint8_t *data, size_t bytes, fuzz_random *r);
/* And back; false: it is no file that this key opens. What was opened before a chunk that does not open stays plain. */
bool snapshot_open(uint8_t *data, size_t bytes);

#endif
