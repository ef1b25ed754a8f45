/* stream.h - the body of a snapshot as one stream of bytes: cut into chunks, each followed by its checksum.
 *
 * A chunk's checksum is XXH3-128 over (header hash, chunk number, bytes), so that a chunk is valid in one place of one
 * file. One chunk is in memory at a time. A reader hands out no byte of a chunk that it has not checked, and it reads
 * with pread: a file that shrinks or changes under it is an error, never a signal.
 *
 * Owns chunking, checksums and the reader's descriptor. Refuses to know what the bytes mean. */
#ifndef RAMET_STORE_STREAM_H
#define RAMET_STORE_STREAM_H

#include "base/file.h"
#include "store/header.h"

typedef struct ramet_chunk_buffer {
    uint8_t *memory; /* header hash, chunk number, the chunk's bytes, checksum */
    size_t used;     /* writer: bytes in it; reader: bytes handed out */
    size_t bytes;    /* reader: bytes that the chunk has */
    uint64_t n_done; /* chunks written or read */
} ramet_chunk_buffer;

typedef struct ramet_body_writer {
    ramet_publisher *publisher;
    const ramet_snapshot_header *header;
    ramet_chunk_buffer chunk;
} ramet_body_writer;

ramet_status ramet_body_writer_begin(ramet_publisher *publisher, const ramet_snapshot_header *header,
                                     ramet_body_writer *out, ramet_error *error);
ramet_status ramet_body_write(ramet_body_writer *w, const void *data, size_t bytes, ramet_error *error);
/* Asserts that the body got the length that the header says; its last chunk is written then. */
void ramet_body_writer_finish(const ramet_body_writer *w);
void ramet_body_writer_destroy(ramet_body_writer *w);

typedef struct ramet_snapshot_reader {
    int fd;
    const char *path; /* borrowed */
    ramet_snapshot_header header;
    ramet_chunk_buffer chunk;
} ramet_snapshot_reader;

/* Opens a regular file, and reads and checks its header. Memory used is bounded by the file's length. */
ramet_status ramet_snapshot_reader_open(const char *path, ramet_snapshot_reader *out, ramet_error *error);
void ramet_snapshot_reader_close(ramet_snapshot_reader *r);
/* The next bytes of the body, into `out` or, when that is NULL, only checked. Asserts that the body has that many. */
ramet_status ramet_body_read(ramet_snapshot_reader *r, void *out, uint64_t bytes, ramet_error *error);
/* Continues at a byte of the body. */
ramet_status ramet_body_seek(ramet_snapshot_reader *r, uint64_t off, ramet_error *error);

#endif
