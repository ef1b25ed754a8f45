/* stream.c - see stream.h. */
#include "store/stream.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HASH_BYTES = RAMET_SNAPSHOT_HASH_BYTES,
    TURN_CHUNKS = 128, /* given to the crew at once: it may serve others in between */
};

/* ---- chunks as jobs ---- */

typedef struct chunk_worker {
    uint8_t *buffer; /* for a chunk */
    uint8_t *sealed; /* the same, with a key */
    ramet_status status;
    ramet_error error;
} chunk_worker;

typedef struct chunk_run {
    /* immutable */
    const ramet_snapshot_header *header;
    ramet_publisher *publisher;          /* writing; NULL: reading */
    const ramet_snapshot_reader *reader; /* reading */
    const ramet_seal *seal;              /* NULL: plain */
    ramet_body_place place;
    ramet_body_move move;
    void *user;
    uint64_t begin;  /* the first chunk of all */
    uint8_t *hashes; /* of the chunks from there on; each written or compared by its chunk's job */
    /* the turn, see chunk_of */
    uint64_t first, end;
    uint32_t n_lanes, lane_chunks;
    /* each by its worker */
    chunk_worker *workers;
    atomic_bool has_failed; /* the jobs that are left do nothing */
} chunk_run;

static void hash_chunk(const chunk_run *run, uint64_t index, const uint8_t *data, size_t bytes,
                       uint8_t out[HASH_BYTES]) {
    uint8_t identity[HASH_BYTES + 8];
    memcpy(identity, run->header->hash, HASH_BYTES);
    ramet_put_le(identity + HASH_BYTES, index, 8);
    ramet_xxh128_pair(data, bytes, identity, sizeof identity, out);
}

static uint8_t *hash_of(const chunk_run *run, uint64_t index) {
    return run->hashes + (index - run->begin) * HASH_BYTES;
}

static uint8_t *place_of(const chunk_run *run, const ramet_chunk *c) {
    return run->place ? run->place(run->user, c->off, c->bytes) : NULL;
}

static ramet_status write_chunk(chunk_run *run, chunk_worker *w, uint64_t index) {
    const ramet_snapshot_header *h = run->header;
    ramet_chunk c = ramet_snapshot_chunk(h, index);
    uint8_t *place = place_of(run, &c), *data = place ? place : w->buffer, *hash = hash_of(run, index);
    if (!place) RAMET_TRY(run->move(run->user, c.off, c.bytes, data, &w->error));
    if (run->seal) {
        RAMET_TRY(ramet_seal_chunk(run->seal, h, index, data, w->sealed, hash, &w->error));
        data = w->sealed;
    } else
        hash_chunk(run, index, data, c.bytes, hash);
    return ramet_publish_write_at(run->publisher, data, c.bytes, h->header_bytes + c.off, &w->error);
}

static ramet_status bad_chunk(const chunk_run *run, chunk_worker *w, uint64_t index, ramet_status code,
                              const char *what) {
    return ramet_fail(&w->error, code, "%s: %s of chunk %llu of %llu does not match", run->reader->path, what,
                      (unsigned long long)index, (unsigned long long)run->header->n_chunks);
}

/* The chunk's bytes into `data`, checked. */
static ramet_status fetch_chunk(chunk_run *run, chunk_worker *w, uint64_t index, const ramet_chunk *c, uint8_t *data) {
    const ramet_snapshot_header *h = run->header;
    const ramet_snapshot_reader *r = run->reader;
    const uint8_t *expected = hash_of(run, index);
    uint8_t *raw = run->seal ? w->sealed : data, hash[HASH_BYTES];
    RAMET_TRY(ramet_read_at(r->fd, raw, c->bytes, h->header_bytes + c->off, r->path, &w->error));
    if (run->seal) {
        ramet_status status = ramet_open_chunk(run->seal, h, index, raw, data, expected, &w->error);
        return status == RAMET_E_AUTHENTICATION ? bad_chunk(run, w, index, status, "the seal") : status;
    }
    hash_chunk(run, index, data, c->bytes, hash);
    if (memcmp(hash, expected, sizeof hash) == 0) return RAMET_OK;
    return bad_chunk(run, w, index, RAMET_E_CORRUPT, "checksum");
}

static ramet_status read_chunk(chunk_run *run, chunk_worker *w, uint64_t index) {
    ramet_chunk c = ramet_snapshot_chunk(run->header, index);
    uint8_t *place = place_of(run, &c);
    RAMET_TRY(fetch_chunk(run, w, index, &c, place ? place : w->buffer));
    return place ? RAMET_OK : run->move(run->user, c.off, c.bytes, w->buffer, &w->error);
}

/* Jobs of the same time read chunks that are far from each other, a lane for each worker: two that touch the same huge
 * page for the first time both clear one, and one of the two is thrown away. Writing goes in order, for the disk. */
static uint64_t chunk_of(const chunk_run *run, uint32_t job) {
    return run->first + job % run->n_lanes * (uint64_t)run->lane_chunks + job / run->n_lanes;
}

static void run_chunk(void *user, uint32_t job, uint32_t worker) {
    chunk_run *run = user;
    chunk_worker *w = &run->workers[worker];
    uint64_t index = chunk_of(run, job);
    if (index >= run->end || atomic_load_explicit(&run->has_failed, memory_order_relaxed)) return;
    w->status = run->publisher ? write_chunk(run, w, index) : read_chunk(run, w, index);
    if (w->status != RAMET_OK) atomic_store_explicit(&run->has_failed, true, memory_order_relaxed);
}

/* Chunks [begin, n): in order on this thread when there is no crew. */
static void run_turns(chunk_run *run, uint64_t n, const ramet_store_crew *crew) {
    run->first = run->begin;
    run->n_lanes = crew && run->reader ? crew->n_workers : 1;
    while (run->first < n && !atomic_load_explicit(&run->has_failed, memory_order_relaxed)) {
        uint32_t turn = n - run->first < TURN_CHUNKS ? (uint32_t)(n - run->first) : TURN_CHUNKS;
        run->end = run->first + turn;
        run->lane_chunks = (turn + run->n_lanes - 1) / run->n_lanes;
        if (crew)
            crew->run(crew->user, run->n_lanes * run->lane_chunks, run_chunk, run);
        else
            ramet_pool_run(NULL, turn, run_chunk, run);
        run->first = run->end;
    }
}

static ramet_status run_chunks(chunk_run *run, uint64_t n, const ramet_store_crew *crew, ramet_error *error) {
    const ramet_snapshot_header *h = run->header;
    uint32_t n_workers = crew ? crew->n_workers : 1;
    size_t largest = h->body_bytes < h->chunk_bytes ? (size_t)h->body_bytes : h->chunk_bytes;
    run->workers = ramet_alloc(n_workers, sizeof *run->workers);
    size_t n_buffers = run->seal ? 2 : 1;
    uint8_t *buffers = ramet_alloc(n_workers, n_buffers * largest);
    ramet_status status = RAMET_OK;
    if (run->workers && buffers) {
        for (uint32_t i = 0; i < n_workers; i++) {
            run->workers[i].buffer = buffers + i * n_buffers * largest;
            run->workers[i].sealed = run->workers[i].buffer + (n_buffers - 1) * largest;
        }
        run_turns(run, n, crew);
        for (uint32_t i = 0; i < n_workers && status == RAMET_OK; i++) {
            status = run->workers[i].status;
            if (status != RAMET_OK && error) *error = run->workers[i].error;
        }
    } else
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for chunks of %zu bytes", largest);
    free(buffers);
    free(run->workers);
    return status;
}

static ramet_status create_hashes(const ramet_snapshot_header *h, uint64_t n, uint8_t **out, ramet_error *error) {
    *out = ramet_alloc((size_t)n, HASH_BYTES);
    if (*out) return RAMET_OK;
    return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the checksums of %llu chunks",
                      (unsigned long long)h->n_chunks);
}

/* ---- writing ---- */

ramet_status ramet_body_write(ramet_publisher *publisher, const ramet_snapshot_header *header, const uint8_t *head,
                              const ramet_seal *seal, const ramet_store_crew *crew, ramet_body_place place,
                              ramet_body_move move, void *user, ramet_error *error) {
    chunk_run run = {
        .header = header, .publisher = publisher, .seal = seal, .place = place, .move = move, .user = user};
    uint64_t n = header->n_chunks;
    if (publisher->is_stdout) crew = NULL; /* in order */
    RAMET_TRY(ramet_publish_reserve(publisher, header->file_bytes, error));
    RAMET_TRY(create_hashes(header, n, &run.hashes, error));
    ramet_status status = ramet_publish_write_at(publisher, head, header->header_bytes, 0, error);
    if (status == RAMET_OK && n > 0) status = run_chunks(&run, n, crew, error);
    if (status == RAMET_OK)
        status = ramet_publish_write_at(publisher, run.hashes, (size_t)n * HASH_BYTES,
                                        header->header_bytes + header->body_bytes, error);
    free(run.hashes);
    return status;
}

/* ---- reading ---- */

static ramet_status check_policy(const ramet_snapshot_reader *r, const ramet_snapshot_policy *policy,
                                 ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    if (h->version < RAMET_SNAPSHOT_VERSION && !policy->allow_legacy)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "%s has format version %u, which lacks checks that version %d has; "
                          "save it anew, or allow legacy snapshots",
                          r->path, h->version, RAMET_SNAPSHOT_VERSION);
    if (h->version < RAMET_SNAPSHOT_VERSION && h->marking[0])
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "%s has format version %u and a marking, '%s': such a file is never read; save it anew",
                          r->path, h->version, h->marking);
    if (!h->is_encrypted && policy->encrypted_only)
        return ramet_fail(error, RAMET_E_AUTHENTICATION, "%s is not encrypted, and only encrypted snapshots are read",
                          r->path);
    if (h->generation < policy->min_generation)
        return ramet_fail(error, RAMET_E_AUTHENTICATION,
                          "%s is of generation %llu, at least %llu is expected: an older file "
                          "stands in its place",
                          r->path, (unsigned long long)h->generation, (unsigned long long)policy->min_generation);
    return RAMET_OK;
}

/* The key of an encrypted file; that it is the right one, and the header what it was, shows in the commitment. */
static ramet_status take_key(ramet_snapshot_reader *r, const uint8_t *context_key, const uint8_t *head,
                             ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    if (!h->is_encrypted) return RAMET_OK;
    if (!context_key)
        return ramet_fail(error, RAMET_E_AUTHENTICATION, "%s is encrypted: its context key is needed", r->path);
    RAMET_TRY(ramet_seal_init(&r->seal, context_key, head, h->header_bytes, error));
    r->has_key = true;
    if (ramet_equal_secret(r->seal.commitment, h->commitment, sizeof h->commitment)) return RAMET_OK;
    return ramet_fail(error, RAMET_E_AUTHENTICATION, "%s was encrypted with another key, or its header was changed",
                      r->path);
}

static ramet_status read_header(ramet_snapshot_reader *r, const ramet_snapshot_policy *policy, uint64_t file_bytes,
                                ramet_error *error) {
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
    if (status == RAMET_OK && policy) status = check_policy(r, policy, error);
    if (status == RAMET_OK && policy) status = take_key(r, policy->context_key, data, error);
    free(data);
    return status;
}

ramet_status ramet_snapshot_reader_open(const char *path, const ramet_snapshot_policy *policy,
                                        ramet_snapshot_reader *out, ramet_error *error) {
    *out = (ramet_snapshot_reader){.fd = -1, .path = path, .allow_lossy = policy && policy->allow_lossy};
    uint64_t file_bytes = 0;
    RAMET_TRY(ramet_file_open(path, &out->fd, &file_bytes, error));
    ramet_status status = read_header(out, policy, file_bytes, error);
    if (status != RAMET_OK) ramet_snapshot_reader_close(out);
    return status;
}

void ramet_snapshot_reader_close(ramet_snapshot_reader *r) {
    if (r->fd >= 0) close(r->fd);
    if (r->has_key) ramet_seal_wipe(&r->seal);
    *r = (ramet_snapshot_reader){.fd = -1};
}

ramet_status ramet_body_read(const ramet_snapshot_reader *r, uint64_t begin, uint64_t end, const ramet_store_crew *crew,
                             ramet_body_place place, ramet_body_move move, void *user, ramet_error *error) {
    const ramet_snapshot_header *h = &r->header;
    RAMET_ASSERT(begin <= end && end <= h->body_bytes, "bytes %llu to %llu of a body of %llu",
                 (unsigned long long)begin, (unsigned long long)end, (unsigned long long)h->body_bytes);
    if (begin == end) return RAMET_OK;
    RAMET_ASSERT(!h->is_encrypted || r->has_key, "the body of %s without its key", r->path);
    chunk_run run = {.header = h, .reader = r, .place = place, .move = move, .user = user};
    if (r->has_key) run.seal = &r->seal;
    run.begin = ramet_snapshot_chunk_of(h, begin);
    uint64_t n = ramet_snapshot_chunk_of(h, end - 1) + 1, n_hashes = n - run.begin;
    RAMET_TRY(create_hashes(h, n_hashes, &run.hashes, error));
    ramet_status status = ramet_read_at(r->fd, run.hashes, (size_t)n_hashes * HASH_BYTES,
                                        h->header_bytes + h->body_bytes + run.begin * HASH_BYTES, r->path, error);
    if (status == RAMET_OK) status = run_chunks(&run, n, crew, error);
    free(run.hashes);
    return status;
}

/* ---- a range ---- */

typedef struct body_range {
    uint64_t off;
    size_t n;
    uint8_t *bytes;
} body_range;

static uint8_t *place_in_range(void *user, uint64_t off, size_t n) {
    const body_range *range = user;
    bool is_inside = off >= range->off && off + n <= range->off + range->n;
    return is_inside ? range->bytes + (off - range->off) : NULL;
}

static ramet_status move_to_range(void *user, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error) {
    const body_range *range = user;
    uint64_t from = off > range->off ? off : range->off, to = off + n;
    if (to > range->off + range->n) to = range->off + range->n;
    (void)error;
    memcpy(range->bytes + (from - range->off), bytes + (from - off), (size_t)(to - from));
    return RAMET_OK;
}

ramet_status ramet_body_read_range(void *reader, uint64_t off, size_t n, uint8_t *bytes, ramet_error *error) {
    body_range range = {off, n, bytes};
    return ramet_body_read(reader, off, off + n, NULL, place_in_range, move_to_range, &range, error);
}
