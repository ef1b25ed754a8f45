/* stream.h - the body of a snapshot by chunks, in any order: each is made or read, hashed and moved on its own, by as
 * many threads as there are.
 *
 *   writing   its place -> checksum -> pwrite      where it has no one place:   move -> buffer -> checksum -> pwrite
 *   reading   pread -> its place -> checksum                                    pread -> buffer -> checksum -> move
 *
 * Under a key a chunk is sealed on its way to the file (seal.h), and its tag stands where the checksum would.
 *
 * A chunk's checksum is XXH3-128 over (bytes, header hash, chunk number), so that a chunk is valid in one place of one
 * file. It is taken of the very memory that is handed on, never of a second reading; and a file that shrinks or changes
 * while it is read is an error, never a signal.
 *
 * Owns chunking, checksums and the reader's descriptor. Refuses to know what the bytes mean. */
#ifndef RAMET_STORE_STREAM_H
#define RAMET_STORE_STREAM_H

#include "base/file.h"
#include "store/header.h"
#include "store/seal.h"
#include "store/snapshot.h"

/* Where bytes [off, off + n) of the body lie in memory in just this order, to be written from there or read into: they
 * are read there before they are checked, since nobody sees them until all are. NULL: they must be moved. */
typedef uint8_t *(*ramet_body_place)(void *user, uint64_t off, size_t n);
/* Moves them into `bytes` (writing) or from there (reading). Both are called from several threads at once, for ranges
 * that do not overlap. A failure ends the writing or reading. */
typedef ramet_status (*ramet_body_move)(void *user, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error);

/* The whole file: the header's bytes as encoded, then the body, sealed if `seal` is not NULL. `place` may be NULL, here and
 * below: then all is moved. */
ramet_status ramet_body_write(ramet_publisher *publisher, const ramet_snapshot_header *header, const uint8_t *head,
                              const ramet_seal *seal, const ramet_store_crew *crew, ramet_body_place place,
                              ramet_body_move move, void *user, ramet_error *error);

typedef struct ramet_snapshot_reader {
    int fd;
    const char *path; /* borrowed */
    ramet_snapshot_header header;
    bool has_key;
    ramet_seal seal;  /* of an encrypted file, when the policy has the key */
    bool allow_lossy; /* the policy's */
} ramet_snapshot_reader;

/* Opens a regular file, and reads and checks its header, also against the policy; of an encrypted file the key, too. Without
 * a policy (NULL) any version will do, and the body of an encrypted file must not be asked for. */
ramet_status ramet_snapshot_reader_open(const char *path, const ramet_snapshot_policy *policy,
                                        ramet_snapshot_reader *out, ramet_error *error);
void ramet_snapshot_reader_close(ramet_snapshot_reader *r);
/* Every chunk that has some of bytes [begin, end) of the body, in one reading. On failure some have been placed or moved. */
ramet_status ramet_body_read(const ramet_snapshot_reader *r, uint64_t begin, uint64_t end, const ramet_store_crew *crew,
                             ramet_body_place place, ramet_body_move move, void *user, ramet_error *error);
/* Bytes [off, off + n) of the body and no others, into `bytes`: a ramet_body_move that makes a reader (`user`) the source of
 * what is written. Reads and checks the chunks that they lie in, on this thread. */
ramet_status ramet_body_read_range(void *reader, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error);

#endif
