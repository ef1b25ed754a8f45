/* model.c - a model as the library's users see it: GGUF file, weights and vocabulary opened together. Owns struct ramet_model; it
 * is the only place that carries tokenizer arrays from the file to the text room. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the vocabulary's arrays, copied out of the file ---- */

struct vocab_arrays {
    ramet_text_slice *pieces, *merges;
    float *scores;
    int32_t *types;
    char kind[32], pre[64];
};

static void free_arrays(struct vocab_arrays *a) {
    free(a->pieces);
    free(a->merges);
    free(a->scores);
    free(a->types);
}

static ramet_status copy_strings(const ramet_gguf *gguf, const char *key, ramet_text_slice **out, uint32_t *out_n,
                                 ramet_error *error) {
    ramet_gguf_array array;
    RAMET_TRY(ramet_gguf_array_get(gguf, key, RAMET_GGUF_STRING, &array, error));
    if (array.n > INT32_MAX)
        return ramet_fail(error, RAMET_E_CORRUPT, "%s has %llu entries", key, (unsigned long long)array.n);
    ramet_text_slice *slices = ramet_alloc((size_t)array.n, sizeof *slices);
    if (!slices) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %s", key);
    for (uint64_t i = 0; i < array.n; i++) {
        ramet_gguf_string s = ramet_gguf_next_string(&array.data);
        slices[i] = (ramet_text_slice){s.data, (size_t)s.bytes};
    }
    *out = slices;
    *out_n = (uint32_t)array.n;
    return RAMET_OK;
}

/* An array of 4-byte elements with one entry per token. */
static ramet_status copy_words(const ramet_gguf *gguf, const char *key, ramet_gguf_type type, uint32_t n, void **out,
                               ramet_error *error) {
    ramet_gguf_array array;
    RAMET_TRY(ramet_gguf_array_get(gguf, key, type, &array, error));
    if (array.n != n)
        return ramet_fail(error, RAMET_E_CORRUPT, "%s has %llu entries for %u tokens", key, (unsigned long long)array.n,
                          n);
    *out = ramet_alloc(n, 4);
    if (!*out) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %s", key);
    memcpy(*out, array.data, (size_t)n * 4);
    return RAMET_OK;
}

static ramet_status copy_name(const ramet_gguf *gguf, const char *key, char *out, size_t size, ramet_error *error) {
    ramet_gguf_string s;
    RAMET_TRY(ramet_gguf_str(gguf, key, &s, error));
    if (s.bytes >= size || memchr(s.data, 0, (size_t)s.bytes))
        return ramet_fail(error, RAMET_E_CORRUPT, "%s is not a name: %llu bytes", key, (unsigned long long)s.bytes);
    memcpy(out, s.data, (size_t)s.bytes);
    out[s.bytes] = 0;
    return RAMET_OK;
}

#define OPTIONAL(expression)                                                                                           \
    do {                                                                                                               \
        ramet_status optional_status_ = (expression);                                                                  \
        if (optional_status_ != RAMET_OK && optional_status_ != RAMET_E_NOT_FOUND) return optional_status_;            \
    } while (0)

static ramet_status read_flag(const ramet_gguf *gguf, const char *key, int8_t *out, ramet_error *error) {
    bool value = false;
    *out = -1;
    ramet_status status = ramet_gguf_bool(gguf, key, &value, error);
    if (status == RAMET_OK) *out = value;
    return status;
}

/* A special token's id; -1 when the file names none. */
static ramet_status read_id(const ramet_gguf *gguf, const char *key, int32_t *out, ramet_error *error) {
    uint32_t id = 0;
    *out = -1;
    ramet_status status = ramet_gguf_u32(gguf, key, &id, error);
    if (status == RAMET_OK && id > INT32_MAX) return ramet_fail(error, RAMET_E_CORRUPT, "%s is %u", key, id);
    if (status == RAMET_OK) *out = (int32_t)id;
    return status;
}

static ramet_status fill_source(const ramet_gguf *gguf, struct vocab_arrays *a, ramet_vocab_source *s,
                                ramet_error *error) {
    RAMET_TRY(copy_name(gguf, "tokenizer.ggml.model", a->kind, sizeof a->kind, error));
    OPTIONAL(copy_name(gguf, "tokenizer.ggml.pre", a->pre, sizeof a->pre, error));
    RAMET_TRY(copy_strings(gguf, "tokenizer.ggml.tokens", &a->pieces, &s->n_tokens, error));
    OPTIONAL(copy_strings(gguf, "tokenizer.ggml.merges", &a->merges, &s->n_merges, error));
    OPTIONAL(copy_words(gguf, "tokenizer.ggml.scores", RAMET_GGUF_F32, s->n_tokens, (void **)&a->scores, error));
    OPTIONAL(copy_words(gguf, "tokenizer.ggml.token_type", RAMET_GGUF_I32, s->n_tokens, (void **)&a->types, error));
    OPTIONAL(read_id(gguf, "tokenizer.ggml.bos_token_id", &s->bos, error));
    OPTIONAL(read_id(gguf, "tokenizer.ggml.eos_token_id", &s->eos, error));
    OPTIONAL(read_id(gguf, "tokenizer.ggml.eot_token_id", &s->eot, error));
    OPTIONAL(read_id(gguf, "tokenizer.ggml.unknown_token_id", &s->unk, error));
    OPTIONAL(read_id(gguf, "tokenizer.ggml.padding_token_id", &s->pad, error));
    OPTIONAL(read_flag(gguf, "tokenizer.ggml.add_bos_token", &s->add_bos, error));
    OPTIONAL(read_flag(gguf, "tokenizer.ggml.add_eos_token", &s->add_eos, error));
    OPTIONAL(read_flag(gguf, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix, error));
    s->kind = a->kind;
    s->pre = a->pre[0] ? a->pre : NULL;
    s->pieces = a->pieces;
    s->merges = a->merges;
    s->scores = a->scores;
    s->types = a->types;
    return RAMET_OK;
}

static ramet_status open_vocab(ramet_model *model, ramet_error *error) {
    struct vocab_arrays arrays = {0};
    ramet_vocab_source source = {0};
    ramet_status status = fill_source(model->gguf, &arrays, &source, error);
    if (status == RAMET_E_NOT_FOUND)
        status = ramet_fail(error, RAMET_E_UNSUPPORTED, "the file has no tokenizer (tokenizer.ggml.model and tokens)");
    if (status == RAMET_OK) status = ramet_vocab_create(&source, &model->vocab, error);
    if (status == RAMET_OK) ramet_vocab_digest(model->vocab, model->tokenizer_sha256);
    free_arrays(&arrays);
    return status;
}

/* ---- the model ---- */

/* It will be shown on terminals, so no control characters. */
static bool is_name(ramet_gguf_string s) {
    for (uint64_t i = 0; i < s.bytes; i++)
        if ((unsigned char)s.data[i] < 0x20 || s.data[i] == 0x7f) return false;
    return s.bytes > 0 && s.bytes < 120;
}

static char *name_of(const ramet_gguf *gguf, const char *path) {
    ramet_gguf_string s;
    if (ramet_gguf_str(gguf, "general.name", &s, NULL) == RAMET_OK && is_name(s))
        return strndup(s.data, (size_t)s.bytes);
    const char *slash = strrchr(path, '/');
    return strdup(slash ? slash + 1 : path);
}

/* The vocabulary, built beside the weights: neither needs the other. */
struct vocab_task {
    ramet_model *model;
    ramet_status status;
    ramet_error error;
};

static void *run_vocab_task(void *argument) {
    struct vocab_task *t = argument;
    uint64_t start = ramet_now_nanoseconds();
    t->status = open_vocab(t->model, &t->error);
    t->model->vocab_nanoseconds = ramet_now_nanoseconds() - start;
    return NULL;
}

static ramet_status open_weights_and_vocab(ramet_model *model, const ramet_model_options *options, ramet_pool *pool,
                                           ramet_error *error) {
    struct vocab_task task = {.model = model};
    pthread_t thread;
    bool is_beside = ramet_pool_threads(pool) > 1 && ramet_thread_start(&thread, run_vocab_task, &task);
    ramet_status status = ramet_weights_load(model->gguf, options, pool, &model->weights, error);
    if (is_beside)
        pthread_join(thread, NULL);
    else if (status == RAMET_OK)
        run_vocab_task(&task);
    RAMET_TRY(status);
    if (task.status != RAMET_OK) {
        if (error) *error = task.error;
        return task.status;
    }
    uint32_t n_tokens = ramet_vocab_size(model->vocab), n_rows = model->weights->hparams.n_vocab;
    if (n_tokens > n_rows)
        return ramet_fail(error, RAMET_E_CORRUPT, "%u tokens but only %u embedding rows", n_tokens, n_rows);
    return RAMET_OK;
}

static ramet_status open_parts(ramet_model *model, const char *path, const ramet_model_options *options,
                               ramet_pool *pool, ramet_error *error) {
    uint64_t start = ramet_now_nanoseconds();
    RAMET_TRY(ramet_gguf_open(path, &model->gguf, error));
    model->parse_nanoseconds = ramet_now_nanoseconds() - start;
    RAMET_TRY(open_weights_and_vocab(model, options, pool, error));
    ramet_gguf_forget(model->gguf);
    model->path = strdup(path);
    model->name = name_of(model->gguf, path);
    if (!model->path || !model->name) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the model's name");
    return RAMET_OK;
}

ramet_status ramet_model_open(const char *path, const ramet_model_options *options, ramet_model **out,
                              ramet_error *error) {
    static const ramet_model_options defaults = {.lora_scale = 1.0f};
    *out = NULL;
    if (!options) options = &defaults;
    uint64_t start = ramet_now_nanoseconds();
    ramet_pool *pool = NULL;
    RAMET_TRY(ramet_pool_create(options->threads ? options->threads : ramet_cpu_count(), &pool, error));
    ramet_model *model = ramet_alloc(1, sizeof *model);
    ramet_status status = model ? open_parts(model, path, options, pool, error)
                                : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a model");
    ramet_pool_destroy(&pool);
    if (status != RAMET_OK) {
        bool names_file = error && (strstr(error->message, path) ||
                                    (options->lora_path && strstr(error->message, options->lora_path)));
        if (error && !names_file) status = ramet_fail_prefix(error, status, "%s", path);
        ramet_model_close(&model);
        return status;
    }
    model->load_nanoseconds = ramet_now_nanoseconds() - start;
    *out = model;
    return RAMET_OK;
}

void ramet_model_close(ramet_model **handle) {
    ramet_model *model = *handle;
    if (!model) return;
    *handle = NULL;
    ramet_vocab_destroy(&model->vocab);
    ramet_weights_destroy(&model->weights);
    ramet_gguf_close(&model->gguf);
    free(model->path);
    free(model->name);
    free(model);
}

void ramet_model_get_info(const ramet_model *model, ramet_model_info *out) {
    const ramet_weights *w = model->weights;
    const ramet_hparams *h = &w->hparams;
    bool is_tied = w->output.panels == w->embd.panels;
    *out = (ramet_model_info){.name = model->name,
                              .arch = h->arch,
                              .path = model->path,
                              .n_vocab = h->n_vocab,
                              .n_layers = h->n_layers,
                              .n_embd = h->n_embd,
                              .n_heads = h->n_heads,
                              .n_kv_heads = h->n_kv_heads,
                              .head_dim = h->head_dim,
                              .n_ctx_train = h->n_ctx_train,
                              .n_params = w->n_params,
                              .file_bytes = ramet_gguf_file_bytes(model->gguf),
                              .weights_bytes = w->bytes,
                              .step_bytes = w->bytes - (is_tied ? 0 : w->embd.n_panels * w->embd.panel_bytes),
                              .window = h->window,
                              .n_window_layers = h->window_pattern ? h->n_layers - h->n_layers / h->window_pattern : 0,
                              .vocab_bytes = ramet_vocab_bytes(model->vocab),
                              .load_nanoseconds = model->load_nanoseconds,
                              .parse_nanoseconds = model->parse_nanoseconds,
                              .repack_nanoseconds = w->repack_nanoseconds,
                              .digest_nanoseconds = w->digest_nanoseconds,
                              .digest_cached = w->digest_cached,
                              .vocab_nanoseconds = model->vocab_nanoseconds,
                              .bos = ramet_vocab_bos(model->vocab),
                              .eos = ramet_vocab_eos(model->vocab),
                              .adds_bos = ramet_vocab_adds_bos(model->vocab)};
    ramet_hex(w->sha256, 32, out->weights_sha256);
    ramet_hex(model->tokenizer_sha256, 32, out->tokenizer_sha256);
    memcpy(out->types, w->types, sizeof out->types);
    out->types[sizeof out->types - 1] = 0;
}

const char *ramet_model_metadata(const ramet_model *model, const char *key, size_t *out_bytes) {
    ramet_gguf_string s;
    *out_bytes = 0;
    if (ramet_gguf_str(model->gguf, key, &s, NULL) != RAMET_OK) return NULL;
    *out_bytes = (size_t)s.bytes;
    return s.data;
}

/* ---- text ---- */

ramet_status ramet_tokenize(const ramet_model *model, const char *text, size_t text_bytes, unsigned flags,
                            int32_t **out, size_t *out_n, ramet_error *error) {
    return ramet_vocab_encode(model->vocab, text, text_bytes, flags, out, out_n, error);
}

ramet_status ramet_detokenize(const ramet_model *model, const int32_t *tokens, size_t n, bool special, char **out,
                              size_t *out_bytes, ramet_error *error) {
    return ramet_vocab_decode(model->vocab, tokens, n, special, out, out_bytes, error);
}

bool ramet_token_ends(const ramet_model *model, int32_t token) {
    return ramet_vocab_ends(model->vocab, token);
}

/* The public detokeniser is the text room's stream under another name. */
static ramet_stream *to_stream(ramet_detokenizer *d) {
    return (ramet_stream *)(void *)d;
}

ramet_status ramet_detokenizer_create(const ramet_model *model, bool special, ramet_detokenizer **out,
                                      ramet_error *error) {
    ramet_stream *stream = NULL;
    ramet_status status = ramet_stream_create(model->vocab, special, &stream, error);
    *out = (ramet_detokenizer *)(void *)stream;
    return status;
}

ramet_status ramet_detokenizer_push(ramet_detokenizer *d, int32_t token, const char **out, size_t *out_bytes,
                                    ramet_error *error) {
    return ramet_stream_push(to_stream(d), token, out, out_bytes, error);
}

void ramet_detokenizer_finish(ramet_detokenizer *d, const char **out, size_t *out_bytes) {
    ramet_stream_finish(to_stream(d), out, out_bytes);
}

void ramet_detokenizer_destroy(ramet_detokenizer **d) {
    ramet_stream *stream = to_stream(*d);
    *d = NULL;
    ramet_stream_destroy(&stream);
}
