/* stream.c - see stream.h. */
#define _GNU_SOURCE
#include "store/stream.h"
#include "base/hash.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NUMBER_OFF = RAMET_SNAPSHOT_HASH_BYTES,
    PREFIX_BYTES = RAMET_SNAPSHOT_HASH_BYTES + 8,
};

/* Bytes of body in chunk number `index`. */
static size_t bytes_of_chunk(const ramet_snapshot_header *h, uint64_t index) {
    uint64_t left = h->body_bytes - index * h->chunk_bytes;
    return left < h->chunk_bytes ? (size_t)left : h->chunk_bytes;
}

static ramet_status create_buffer(const ramet_snapshot_header *h, ramet_chunk_buffer *out, ramet_error *error) {
    *out = (ramet_chunk_buffer){0};
    size_t largest = h->n_chunks ? bytes_of_chunk(h, 0) : 0;
    out->memory = ramet_alloc(PREFIX_BYTES + largest + RAMET_SNAPSHOT_HASH_BYTES, 1);
    if (!out->memory) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a chunk of %zu bytes", largest);
    memcpy(out->memory, h->hash, RAMET_SNAPSHOT_HASH_BYTES);
    return RAMET_OK;
}

static void hash_chunk(ramet_chunk_buffer *c, uint64_t index, size_t bytes, uint8_t out[RAMET_SNAPSHOT_HASH_BYTES]) {
    for (size_t i = 0; i < 8; i++) c->memory[NUMBER_OFF + i] = (uint8_t)(index >> (8 * i));
    ramet_xxh128(c->memory, PREFIX_BYTES + bytes, out);
}

/* ---- writing ---- */

ramet_status ramet_body_writer_begin(ramet_publisher *publisher, const ramet_snapshot_header *header,
                                     ramet_body_writer *out, ramet_error *error) {
    *out = (ramet_body_writer){.publisher = publisher, .header = header};
    return create_buffer(header, &out->chunk, error);
}

void ramet_body_writer_destroy(ramet_body_writer *w) {
    free(w->chunk.memory);
    *w = (ramet_body_writer){0};
}

static ramet_status write_chunk(ramet_body_writer *w, ramet_error *error) {
    ramet_chunk_buffer *c = &w->chunk;
    hash_chunk(c, c->n_done, c->used, c->memory + PREFIX_BYTES + c->used);
    RAMET_TRY(ramet_publish_write(w->publisher, c->memory + PREFIX_BYTES, c->used + RAMET_SNAPSHOT_HASH_BYTES, error));
    c->n_done++;
    c->used = 0;
    return RAMET_OK;
}

ramet_status ramet_body_write(ramet_body_writer *w, const void *data, size_t bytes, ramet_error *error) {
    const uint8_t *at = data;
    ramet_chunk_buffer *c = &w->chunk;
    while (bytes > 0) {
        RAMET_ASSERT(c->n_done < w->header->n_chunks, "snapshot body longer than its header says");
        size_t room = bytes_of_chunk(w->header, c->n_done) - c->used;
        size_t n = bytes < room ? bytes : room;
        memcpy(c->memory + PREFIX_BYTES + c->used, at, n);
        c->used += n;
        at += n;
        bytes -= n;
        if (n == room) RAMET_TRY(write_chunk(w, error));
    }
    return RAMET_OK;
}

void ramet_body_writer_finish(const ramet_body_writer *w) {
    RAMET_ASSERT(w->chunk.n_done == w->header->n_chunks && w->chunk.used == 0,
                 "snapshot body shorter than its header says");
}

/* ---- reading ---- */

static ramet_status read_header(ramet_snapshot_reader *r, uint64_t file_bytes, ramet_error *error) {
    uint8_t preamble[RAMET_SNAPSHOT_PREAMBLE_BYTES];
    RAMET_TRY(ramet_read_at(r->fd, preamble, sizeof preamble, 0, r->path, error));
    ramet_status status = ramet_snapshot_preamble_decode(preamble, file_bytes, &r->header, error);
    if (status != RAMET_OK) return ramet_fail_prefix(error, status, "%s", r->path);
    size_t bytes = r->header.header_bytes;
    uint8_t *data = ramet_alloc(bytes, 1);
    if (!data) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the header of %s", r->path);
    status = ramet_read_at(r->fd, data, bytes, 0, r->path, error);
    if (status == RAMET_OK && memcmp(data, preamble, sizeof preamble) != 0)
        status = ramet_fail(error, RAMET_E_CORRUPT, "%s changes while it is read", r->path);
    else if (status == RAMET_OK) {
        status = ramet_snapshot_header_decode(data, bytes, file_bytes, &r->header, error);
        if (status != RAMET_OK) ramet_fail_prefix(error, status, "%s", r->path);
    }
    free(data);
    return status;
}

ramet_status ramet_snapshot_reader_open(const char *path, ramet_snapshot_reader *out, ramet_error *error) {
    *out = (ramet_snapshot_reader){.fd = -1, .path = path};
    uint64_t file_bytes = 0;
    RAMET_TRY(ramet_file_open(path, &out->fd, &file_bytes, error));
    ramet_status status = read_header(out, file_bytes, error);
    if (status == RAMET_OK) status = create_buffer(&out->header, &out->chunk, error);
    if (status != RAMET_OK) ramet_snapshot_reader_close(out);
    return status;
}

void ramet_snapshot_reader_close(ramet_snapshot_reader *r) {
    if (r->fd >= 0) close(r->fd);
    free(r->chunk.memory);
    *r = (ramet_snapshot_reader){.fd = -1};
}

static ramet_status read_chunk(ramet_snapshot_reader *r, ramet_error *error) {
    ramet_chunk_buffer *c = &r->chunk;
    const ramet_snapshot_header *h = &r->header;
    uint64_t index = c->n_done, stride = (uint64_t)h->chunk_bytes + RAMET_SNAPSHOT_HASH_BYTES;
    RAMET_ASSERT(index < h->n_chunks, "read past the end of a snapshot's body");
    size_t bytes = bytes_of_chunk(h, index);
    uint8_t hash[RAMET_SNAPSHOT_HASH_BYTES];
    RAMET_TRY(ramet_read_at(r->fd, c->memory + PREFIX_BYTES, bytes + sizeof hash, h->header_bytes + index * stride,
                            r->path, error));
    hash_chunk(c, index, bytes, hash);
    if (memcmp(hash, c->memory + PREFIX_BYTES + bytes, sizeof hash) != 0)
        return ramet_fail(error, RAMET_E_CORRUPT, "%s: checksum of chunk %llu of %llu does not match", r->path,
                          (unsigned long long)index, (unsigned long long)h->n_chunks);
    c->bytes = bytes;
    c->used = 0;
    c->n_done++;
    return RAMET_OK;
}

ramet_status ramet_body_read(ramet_snapshot_reader *r, void *out, uint64_t bytes, ramet_error *error) {
    uint8_t *at = out;
    ramet_chunk_buffer *c = &r->chunk;
    while (bytes > 0) {
        if (c->used == c->bytes) RAMET_TRY(read_chunk(r, error));
        size_t n = bytes < c->bytes - c->used ? (size_t)bytes : c->bytes - c->used;
        if (at) {
            memcpy(at, c->memory + PREFIX_BYTES + c->used, n);
            at += n;
        }
        c->used += n;
        bytes -= n;
    }
    return RAMET_OK;
}

ramet_status ramet_body_seek(ramet_snapshot_reader *r, uint64_t off, ramet_error *error) {
    r->chunk.n_done = off / r->header.chunk_bytes;
    r->chunk.used = r->chunk.bytes = 0;
    return ramet_body_read(r, NULL, off % r->header.chunk_bytes, error);
}
