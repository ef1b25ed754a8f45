/* ramet.h - run GGUF language models, with a context as a first-class thing.
 *
 * This header is the manual. It is the whole boundary: the command and the server use nothing else.
 *
 * The one law: logits and state are a pure function of (weights and adapter, tokens, KV precision). Nothing
 * else changes a bit: not chunking, batching, threads, page size, instruction set, or what was done to a
 * context on the way (fork, truncate, snapshot, restore, spill). memcmp of two logit rows is the test.
 *
 * Conventions
 *   - Functions return ramet_status (0 is RAMET_OK) and fill a caller-owned ramet_error, which may be NULL.
 *     On failure *out is NULL and nothing else has changed.
 *   - open/close: an OS resource. create/destroy: one owner. fork: shares, copies nothing. peek: borrowed until
 *     the next call that changes the object. The closing functions take T ** and leave NULL; NULL is allowed.
 *   - Threads: a model is immutable and may be shared. An engine may be called from any thread. A context has
 *     one owner at a time: a second entry returns RAMET_E_BUSY and does nothing. ramet_context_length and
 *     ramet_context_is_spilled cannot say so: they are for the owner.
 *   - The library never prints, never exits and never reads argv or the environment. One exception: a broken invariant
 *     of its own is one line on standard error and abort().
 *   - Text is bytes, meant as UTF-8; any bytes are accepted. Sizes are bytes unless the name says otherwise. */
#ifndef RAMET_H
#define RAMET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- errors ---- */

/* code, name, text, HTTP status, exit code */
#define RAMET_STATUS_MAP(X)                                                                                            \
    X(0, OK, "ok", 200, 0)                                                                                             \
    X(1, E_FAILED, "failed", 500, 1)                                                                                   \
    X(2, E_ARGUMENT, "bad argument", 400, 2)                                                                           \
    X(3, E_INVARIANT, "broken invariant", 500, 3)                                                                      \
    X(4, E_MODEL_MISMATCH, "made by another model", 409, 4)                                                            \
    X(5, E_NUMERICS_MISMATCH, "made under other numerics", 409, 4)                                                     \
    X(6, E_CORRUPT, "corrupt", 422, 5)                                                                                 \
    X(7, E_AUTHENTICATION, "failed authentication", 422, 5)                                                            \
    X(8, E_NO_MEMORY, "out of memory", 507, 6)                                                                         \
    X(9, E_NO_DISK, "out of disk space", 507, 6)                                                                       \
    X(10, E_BUDGET, "over budget", 507, 6)                                                                             \
    X(11, E_NETWORK, "network", 502, 7)                                                                                \
    X(12, E_INTERRUPTED, "interrupted", 499, 130)                                                                      \
    X(13, E_BUSY, "context is in use", 409, 1)                                                                         \
    X(14, E_NOT_FOUND, "not found", 404, 1)                                                                            \
    X(15, E_IO, "input/output", 500, 1)                                                                                \
    X(16, E_UNSUPPORTED, "not supported", 400, 1)                                                                      \
    X(17, E_WINDOW, "longer than the context window", 400, 1)

typedef enum ramet_status {
#define RAMET_STATUS_ENUM(code, name, text, http, exit_code) RAMET_##name = code,
    RAMET_STATUS_MAP(RAMET_STATUS_ENUM)
#undef RAMET_STATUS_ENUM
} ramet_status;

typedef struct ramet_error {
    ramet_status code;
    int os_errno;      /* 0 when no system call was involved */
    char message[480]; /* one line: what, which file, what to do */
} ramet_error;

const char *ramet_status_name(ramet_status code); /* "E_CORRUPT" */
const char *ramet_status_text(ramet_status code); /* "corrupt" */
int ramet_status_exit_code(ramet_status code);
int ramet_status_http(ramet_status code);

/* "1.2.3", commit and compiler the library was built with. Static storage. */
const char *ramet_version(void);
const char *ramet_build(void);

/* ----------------------------------------------------------------- model ---- */

typedef struct ramet_model ramet_model;

typedef struct ramet_model_options {
    const char *lora_path; /* GGUF adapter, or NULL */
    float lora_scale;      /* multiplies alpha/rank; 1 is usual */
    uint32_t threads;      /* for repacking weights; 0: one per core */
    /* A directory that nobody else can write to, where digests of files are remembered: a file that was not changed since is
     * read, but not put through SHA-256 again. NULL, or one that cannot be used: it is each time. */
    const char *digest_cache;
} ramet_model_options;

typedef struct ramet_model_info {
    const char *name, *arch, *path; /* borrowed from the model */
    uint32_t n_vocab, n_layers, n_embd, n_heads, n_kv_heads, head_dim;
    uint32_t n_ctx_train; /* positions the model was trained for */
    uint64_t n_params;
    uint64_t file_bytes;    /* all parts of a split file */
    uint64_t weights_bytes; /* memory of the repacked weights */
    uint64_t step_bytes;    /* of these, read for one token: all but an embedding table that is not the output too */
    uint32_t window, n_window_layers; /* layers that see only the last `window` positions; 0: none */
    uint64_t vocab_bytes;             /* memory of the tokenizer */
    uint64_t load_nanoseconds;        /* the file's description is read, then the three below run beside each other */
    uint64_t parse_nanoseconds, repack_nanoseconds, digest_nanoseconds, vocab_nanoseconds;
    bool digest_cached;      /* the file(s) were not hashed: options.digest_cache knew them */
    char weights_sha256[65]; /* file(s) combined with the adapter's bytes and scale; lower-case hex */
    char tokenizer_sha256[65];
    int32_t bos, eos; /* -1: none */
    bool adds_bos;
    char types[128]; /* "Q4_1 210, Q8_0 1, F32 61" */
} ramet_model_info;

/* Reads a GGUF file (version 2 or 3, split or whole) and repacks its weights. `path` is a file. `options` may be
 * NULL. Cost: reads the file once. Errors: E_NOT_FOUND, E_IO, E_CORRUPT (names the key or tensor), E_UNSUPPORTED
 * (architecture, type or tokenizer that ramet does not run), E_NO_MEMORY. */
ramet_status ramet_model_open(const char *path, const ramet_model_options *options, ramet_model **out,
                              ramet_error *error);
void ramet_model_close(ramet_model **model); /* after every engine on it is destroyed */
void ramet_model_get_info(const ramet_model *model, ramet_model_info *out);
/* Value of a string key of the file ("tokenizer.chat_template"); NULL when absent. Borrowed from the model. */
const char *ramet_model_metadata(const ramet_model *model, const char *key, size_t *out_bytes);

/* ------------------------------------------------------------------ text ---- */

enum {
    RAMET_TOKENIZE_SPECIAL = 1, /* the text of special tokens in the input becomes those tokens */
    RAMET_TOKENIZE_BOS = 2,     /* put BOS in front when the model wants one, unless it is there already */
};

/* Ids of `text`. *out is malloc'ed, the caller frees it; *out_n may be 0 (then *out may be NULL). Linear time. */
ramet_status ramet_tokenize(const ramet_model *model, const char *text, size_t text_bytes, unsigned flags,
                            int32_t **out, size_t *out_n, ramet_error *error);
/* Text of `tokens`: *out is malloc'ed and NUL-terminated, *out_bytes excludes the NUL. With `special`, control
 * tokens are written out as their names; without it they give no text. */
ramet_status ramet_detokenize(const ramet_model *model, const int32_t *tokens, size_t n, bool special, char **out,
                              size_t *out_bytes, ramet_error *error);

/* Streaming: text in whole characters. Bytes that cannot become a character come out as U+FFFD. */
typedef struct ramet_detokenizer ramet_detokenizer;
ramet_status ramet_detokenizer_create(const ramet_model *model, bool special, ramet_detokenizer **out,
                                      ramet_error *error);
/* Text that `token` completes: *out is borrowed until the next call, may be empty. */
ramet_status ramet_detokenizer_push(ramet_detokenizer *d, int32_t token, const char **out, size_t *out_bytes,
                                    ramet_error *error);
/* What is still held back, at the end of a stream. */
void ramet_detokenizer_finish(ramet_detokenizer *d, const char **out, size_t *out_bytes);
void ramet_detokenizer_destroy(ramet_detokenizer **d);
/* True for a token that ends generation (EOS, end of turn). */
bool ramet_token_ends(const ramet_model *model, int32_t token);

/* ---------------------------------------------------------------- engine ---- */

typedef enum ramet_kv { RAMET_KV_F32, RAMET_KV_F16, RAMET_KV_VQ8, RAMET_KV_Q8 } ramet_kv;

const char *ramet_kv_name(ramet_kv kv);
bool ramet_kv_parse(const char *name, ramet_kv *out);

/* One engine: pages, prefix tree, worker threads and scratch memory for one model at one KV precision. */
typedef struct ramet_engine ramet_engine;

enum { RAMET_KEY_BYTES = 32 }; /* of a context key: what snapshots are encrypted with */

/* What snapshots are written with, and what is demanded of one that is read. Zero: plain files, of the current
 * format. */
typedef struct ramet_snapshot_policy {
    const uint8_t *context_key; /* RAMET_KEY_BYTES: saves are encrypted, encrypted files can be read. NULL: neither */
    bool encrypted_only;        /* a plain file is refused */
    bool allow_legacy;          /* a version that lacks a check of the current one is read, unless it has a marking */
    bool allow_lossy;           /* rows stored at a narrower precision than the cache's are taken: other bits follow */
    uint64_t min_generation;    /* a file of a lower generation is refused: somebody put an older one in its place */
} ramet_snapshot_policy;

typedef struct ramet_engine_options {
    ramet_kv kv;                /* default f32 */
    uint32_t n_ctx;             /* longest context, tokens; 0: what the model was trained for, at most 8,192 */
    uint32_t page_tokens;       /* positions per page: 16..256, a power of two; 0: 64 */
    uint32_t threads;           /* 0: one per core */
    bool unbound_threads;       /* workers go where the system puts them, also when there is one for every core */
    uint32_t chunk_tokens;      /* prefill works in chunks of this many; 0: 256. Changes no bit. */
    uint64_t kv_budget_bytes;   /* ceiling of all pages, logits and states in memory: a hard limit; 0: 16 contexts of
                                   n_ctx, and 64 rows of logits */
    uint64_t tree_budget_bytes; /* ceiling of what the prefix tree holds; 0: half of the above */
    uint64_t pin_budget_bytes;  /* ceiling of its pinned entries; 0: half of the tree's */
    /* An existing directory, copied: past kv_budget_bytes the pages that nobody has used for longest are written
     * there, encrypted, and read back when they are needed. NULL: nothing is, and E_BUDGET comes sooner. An engine
     * that spills is its process's: after fork(2) the child must not use it. */
    const char *spill_directory;
    /* Its key is copied. What is spilled is always encrypted: under it, or else under a random one. */
    ramet_snapshot_policy snapshots;
    const char *kernels; /* "c", "avx2", "avx512": this one, E_ARGUMENT without it; NULL: best this CPU has */
} ramet_engine_options;

typedef struct ramet_engine_info {
    ramet_kv kv;
    uint32_t n_ctx, page_tokens, threads, chunk_tokens;
    uint64_t page_bytes, kv_budget_bytes, tree_budget_bytes, pin_budget_bytes, scratch_bytes;
    uint64_t kv_bytes_per_token;
    const char *kernels;  /* instruction set in use */
    char numerics_id[33]; /* contract version and a hash of the bits these kernels make */
} ramet_engine_info;

typedef struct ramet_engine_stats {
    uint64_t pages_live, pages_allocated, pages_freed, pages_copied; /* allocated - freed = live, in memory or not */
    uint64_t contexts, contexts_lost; /* open now; emptied because what was spilled did not come back */
    uint64_t tree_entries, tree_pinned, tree_pages, tree_bytes, tree_evictions;
    uint64_t memory_bytes, spilled_bytes; /* blocks (pages, logits, states) in memory and on disk, now */
    uint64_t blocks_spilled, blocks_read_back, spill_bytes, read_back_bytes, spill_nanoseconds, read_back_nanoseconds;
} ramet_engine_stats;

ramet_status ramet_engine_create(const ramet_model *model, const ramet_engine_options *options, ramet_engine **out,
                                 ramet_error *error);
void ramet_engine_destroy(ramet_engine **engine); /* after every context on it is closed */
void ramet_engine_get_info(const ramet_engine *engine, ramet_engine_info *out);
void ramet_engine_get_stats(ramet_engine *engine, ramet_engine_stats *out);
/* The numerics_id of a kernel set without any model: runs the micro-model (milliseconds, once per process). `kernels`
 * as in the options; `out_kernels` may be NULL. */
ramet_status ramet_numerics(const char *kernels, char out_id[33], const char **out_kernels, ramet_error *error);
/* Walks everything and checks the invariants of docs/STATE.md; E_INVARIANT names the first broken one. Cost: all pages
 * and tables. */
ramet_status ramet_engine_check(ramet_engine *engine, ramet_error *error);

/* --------------------------------------------------------------- context ---- */

typedef struct ramet_context ramet_context;

/* An empty context. An engine has at most 1,048,576 open at a time, forks and matches counted: E_BUDGET. */
ramet_status ramet_context_create(ramet_engine *engine, ramet_context **out, ramet_error *error);
/* A context that shares everything with `context`, last logits included. O(1) in its length; no page is allocated. */
ramet_status ramet_context_fork(ramet_context *context, ramet_context **out, ramet_error *error);
/* E_BUSY leaves *context as it is: somebody else is inside it, or it is a copy of a handle that was closed already
 * (told until its place is given out again). */
ramet_status ramet_context_close(ramet_context **context, ramet_error *error);

/* Runs `tokens` after what is there: prefill and decode are this one call. Afterwards the logits are those after the
 * last token. On E_BUDGET, E_WINDOW and E_ARGUMENT (an id outside the vocabulary) the context is as before. n = 0 is
 * allowed. Cost: the model, once per token. */
ramet_status ramet_context_extend(ramet_context *context, const int32_t *tokens, size_t n, ramet_error *error);

/* The same, and every row of logits is handed to `on_rows` in order, in runs: `rows` is [n_rows][n_vocab] for the
 * positions first_pos.. and is borrowed for the call. Rows with a position below `from_pos` are not computed. The
 * engine's forward pass is held meanwhile: `on_rows` must not extend or sync any context of it. */
typedef void (*ramet_rows_fn)(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab);
ramet_status ramet_context_extend_rows(ramet_context *context, const int32_t *tokens, size_t n, uint32_t from_pos,
                                       ramet_rows_fn on_rows, void *user, ramet_error *error);

/* Several contexts of one engine in one pass; each output equals its output alone, bit for bit. All or nothing. */
typedef struct ramet_batch_item {
    ramet_context *context;
    const int32_t *tokens;
    size_t n;
} ramet_batch_item;
ramet_status ramet_batch_extend(const ramet_batch_item *items, size_t n_items, ramet_error *error);

/* Makes the context hold exactly these tokens, with logits: keeps the common prefix, runs the rest. *out_kept: tokens
 * that did not run. On failure the context holds the common prefix, or one token less. */
ramet_status ramet_context_sync(ramet_context *context, const int32_t *tokens, size_t n, size_t *out_kept,
                                ramet_error *error);

/* Forgets everything from `n` on. The last logits are gone unless n is the length. Cost: letting go of the pages that
 * nobody else holds; none is copied. */
ramet_status ramet_context_truncate(ramet_context *context, uint32_t n, ramet_error *error);

uint32_t ramet_context_length(const ramet_context *context); /* tokens */
/* Copies tokens [from, from + n) to `out`. E_ARGUMENT outside the context. */
ramet_status ramet_context_tokens(ramet_context *context, uint32_t from, uint32_t n, int32_t *out, ramet_error *error);
/* Peek at the logits after the last token, n_vocab floats; E_NOT_FOUND when there are none (empty, truncated). They
 * stay, in memory, until the context is extended, synced, truncated, saved, spilled or closed. */
ramet_status ramet_context_logits(ramet_context *context, const float **out, ramet_error *error);
/* Pages this context can reach, and how many of them nobody else can. */
ramet_status ramet_context_pages(ramet_context *context, uint64_t *out_reachable, uint64_t *out_exclusive,
                                 ramet_error *error);

/* ------------------------------------------------------------ prefix tree ---- */

typedef struct ramet_prefix_options {
    const char *owner; /* found by this owner alone; NULL: by everybody */
    bool pin;          /* never goes by itself; E_BUDGET past pin_budget_bytes, and nothing is kept */
} ramet_prefix_options;

/* Keeps the context's tokens, pages, last logits and state findable after it is closed. Bounded by tree_budget_bytes:
 * the entry whose loss costs least goes first (docs/STATE.md). `options` may be NULL. E_BUDGET when it alone is larger
 * than the budget beside the pinned ones: a plain miss later, nothing is lost. */
ramet_status ramet_prefix_retain(ramet_context *context, const ramet_prefix_options *options, ramet_error *error);
/* An ordinary entry again. E_NOT_FOUND when the owner has no pinned one of exactly these tokens. */
ramet_status ramet_prefix_unpin(ramet_engine *engine, const char *owner, const int32_t *tokens, size_t n,
                                ramet_error *error);
/* A new context with the longest prefix of `tokens` kept for this owner or for everybody, sharing its pages;
 * *out_matched may be 0. Logits are present when an entry has exactly these tokens. Cost: O(matched) compares. */
ramet_status ramet_prefix_match(ramet_engine *engine, const char *owner, const int32_t *tokens, size_t n,
                                ramet_context **out, size_t *out_matched, ramet_error *error);
/* All entries go, pinned ones included. */
void ramet_prefix_clear(ramet_engine *engine);

/* ------------------------------------------------- snapshot and spill (disk) ---- */

/* Reads a context key: a regular file of exactly 32 bytes that nobody but its owner may read or write. The caller
 * wipes it when it is done. Errors: E_NOT_FOUND, E_ARGUMENT (its size, or who may use it), E_IO. */
ramet_status ramet_key_read(const char *path, uint8_t out[RAMET_KEY_BYTES], ramet_error *error);

typedef struct ramet_snapshot_info {
    uint32_t format_version;
    char model_name[128], arch[32];
    char weights_sha256[65], tokenizer_sha256[65], numerics_id[33];
    ramet_kv kv, payload; /* precision of the cache it was made at; of the rows stored: a narrower one is lossy */
    uint32_t n_tokens, n_layers, n_kv_heads, head_dim, n_vocab;
    bool has_logits, encrypted;
    char owner[128], marking[128];
    uint64_t generation;
    uint64_t file_bytes, header_bytes, payload_bytes;
} ramet_snapshot_info;

typedef struct ramet_snapshot_options {
    const char *owner, *marking; /* may be NULL */
    const void *sampler_state;   /* kept as it is and handed back at restore; may be NULL */
    size_t sampler_state_bytes;  /* at most 64 KiB */
    uint64_t generation;         /* the caller's count of saves of this context; see ramet_snapshot_policy */
    ramet_kv payload;            /* of the rows in the file, if narrower than the cache's: smaller, and lossy */
    bool skip_sync;              /* outlives a crash of this process, but perhaps not one of the machine */
} ramet_snapshot_options;

/* What a snapshot was given as sampler_state: `data` is malloc'ed, NULL when there is none. */
typedef struct ramet_snapshot_sampler {
    void *data;
    size_t bytes;
} ramet_snapshot_sampler;

/* Writes one portable file: temporary name, fsync, rename, fsync of the directory. An existing file is replaced only
 * by a complete one; a device or a pipe is refused. "-" as path writes to standard output. `options` and `out_info` may
 * be NULL. The engine's threads help while no other call needs them; so they do for a restore and a spill. */
ramet_status ramet_snapshot_save(ramet_context *context, const char *path, const ramet_snapshot_options *options,
                                 ramet_snapshot_info *out_info, ramet_error *error);
/* A context with the same tokens, state and last logits. Every byte is checked before the context exists. `policy`
 * NULL is the engine's. The last two outputs may be NULL. A lossy file (its payload is not its kv) goes, under
 * `allow_lossy`, into an engine of either precision; what is computed after it has other bits than the law says, and
 * so has whatever is forked from it: E_UNSUPPORTED from ramet_prefix_retain, and from a save without a narrower
 * payload. Errors: E_CORRUPT, E_AUTHENTICATION (encrypted and no key or another one, or not what was sealed; plain
 * or of a lower generation, against the policy), E_UNSUPPORTED (a newer file, or a legacy or lossy one against the
 * policy), E_MODEL_MISMATCH (other weights: both digests in the message; tokenizer, shape, KV precision),
 * E_NUMERICS_MISMATCH, E_WINDOW, E_BUDGET, E_NOT_FOUND, E_IO, E_NO_MEMORY. */
ramet_status ramet_snapshot_restore(ramet_engine *engine, const char *path, const ramet_snapshot_policy *policy,
                                    ramet_context **out, ramet_snapshot_sampler *out_sampler,
                                    ramet_snapshot_info *out_info, ramet_error *error);

typedef struct ramet_convert_options {
    ramet_kv payload;           /* of the rows: the precision that they have, or a narrower one; E_ARGUMENT */
    const uint8_t *context_key; /* RAMET_KEY_BYTES: the new file is encrypted with it; NULL: it is plain */
    uint32_t threads;           /* 0: one per core */
} ramet_convert_options;

/* Rewrites a snapshot as another, in the current format; needs no model. `path` is read under `policy` (may be NULL)
 * and stays as it is; `to_path` is written as by a save, and may be `path`. Owner, marking, generation, logits and
 * sampler state stay. The rows are those that a save with this payload writes: a plain file has the same bytes.
 * Memory: the tokens, and for each thread a chunk and a layer of 64 positions. `out_info` may be NULL. Errors: as of
 * ramet_snapshot_verify and of a save. */
ramet_status ramet_snapshot_convert(const char *path, const ramet_snapshot_policy *policy, const char *to_path,
                                    const ramet_convert_options *options, ramet_snapshot_info *out_info,
                                    ramet_error *error);

/* Reads and checks the header alone; needs no model. */
ramet_status ramet_snapshot_read_info(const char *path, ramet_snapshot_info *out, ramet_error *error);
/* Checks every byte; needs no model. `policy` may be NULL, here and below. */
ramet_status ramet_snapshot_verify(const char *path, const ramet_snapshot_policy *policy, ramet_error *error);
/* Tokens of a snapshot without a model: *out is malloc'ed. */
ramet_status ramet_snapshot_read_tokens(const char *path, const ramet_snapshot_policy *policy, int32_t **out,
                                        uint32_t *out_n, ramet_error *error);

/* Writes out all that the context reaches and no other context is using, and gives its memory back: what an engine with
 * a spill_directory does by itself when it needs room. A later call that needs it reads it back by itself, exactly;
 * length, tokens, fork, truncate, retain, match and close do without. E_ARGUMENT without a spill_directory; E_NO_DISK
 * and E_IO leave in memory what did not go out.
 *
 * When something does not come back (damaged, removed, E_IO), the contexts that need it are lost, and no other:
 * the call fails, they hold no tokens any more, and all that can be done with them is to close them. */
ramet_status ramet_context_spill(ramet_context *context, ramet_error *error);
/* A part of it is on disk. */
bool ramet_context_is_spilled(const ramet_context *context);

/* -------------------------------------------------------------- sampling ---- */

typedef struct ramet_sampler {
    float temperature;    /* 0: greedy */
    uint32_t top_k;       /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off */
    uint32_t repeat_last; /* tokens looked at by the penalty */
    uint64_t rng[2];      /* state; set by ramet_sampler_seed */
} ramet_sampler;

/* llama.cpp's usual values: 0.8, 40, 0.95, 0.05, penalty off, seed 0. */
void ramet_sampler_defaults(ramet_sampler *out);
/* One stream per (seed, branch): branches of one seed draw different numbers, each reproducible. */
void ramet_sampler_seed(ramet_sampler *sampler, uint64_t seed, uint64_t branch);
/* Bytes that ramet_sample works in. */
size_t ramet_sample_scratch_bytes(uint32_t n_vocab);
/* A pure function of its arguments but for sampler->rng. `recent` are the last tokens, oldest first, for the penalty.
 * `scratch` is aligned as malloc does it; what is in it does not matter. Allocates nothing.
 * *out_logprob (may be NULL): natural log-probability under the unmodified softmax. Ties go to the lower id.
 * E_ARGUMENT (temperature, top_p or min_p below 0, repeat_penalty not above 0, NaN); E_FAILED when no logit is a
 * number. */
ramet_status ramet_sample(ramet_sampler *sampler, const float *logits, uint32_t n_vocab, const int32_t *recent,
                          size_t n_recent, void *scratch, int32_t *out_token, float *out_logprob, ramet_error *error);

/* ---------------------------------------------------------------- verify ---- */

typedef enum ramet_verdict { RAMET_PASS, RAMET_NOTE, RAMET_FAIL } ramet_verdict;

typedef struct ramet_verify_row {
    const char *check; /* "prefill == decode" */
    ramet_verdict verdict;
    char detail[256]; /* "difference 0.00e+00, chunks 1 7 64" */
} ramet_verify_row;

/* Runs every check on this model; `on_row` is called as each one ends. *out_failed: rows that failed. Checks that
 * could not be run (no memory, say) are errors. Its files go to the options' spill_directory, or to /tmp. Cost: some
 * thousand tokens. */
ramet_status ramet_verify(const ramet_model *model, const ramet_engine_options *options,
                          void (*on_row)(void *user, const ramet_verify_row *row), void *user, uint32_t *out_failed,
                          ramet_error *error);

#ifdef __cplusplus
}
#endif
#endif
