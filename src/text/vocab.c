/* vocab.c - checks what a file says about its tokenizer, builds the vocabulary, answers questions about it. */
#include "text/vocab.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ramet_status check_ids(const ramet_vocab_source *s, ramet_error *error) {
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", s->bos}, {"eos", s->eos}, {"eot", s->eot}, {"unknown", s->unk}, {"padding", s->pad}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (uint32_t)ids[i].id >= s->n_tokens))
            return ramet_fail(error, RAMET_E_CORRUPT, "tokenizer.ggml.%s_token_id is %d, but there are %u tokens",
                              ids[i].name, (int)ids[i].id, s->n_tokens);
    if (s->add_bos > 0 && s->bos < 0)
        return ramet_fail(error, RAMET_E_CORRUPT,
                          "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing");
    return RAMET_OK;
}

static ramet_status check_arrays(const ramet_vocab_source *s, bool byte_level, ramet_error *error) {
    if (s->n_tokens == 0 || !s->pieces)
        return ramet_fail(error, RAMET_E_CORRUPT, "tokenizer.ggml.tokens is missing or empty");
    if (s->n_tokens > INT32_MAX)
        return ramet_fail(error, RAMET_E_CORRUPT, "tokenizer.ggml.tokens has %u tokens", s->n_tokens);
    for (uint32_t id = 0; id < s->n_tokens; id++) {
        if (s->pieces[id].bytes > RAMET_TEXT_MAX_PIECE)
            return ramet_fail(error, RAMET_E_UNSUPPORTED, "token %u is %zu bytes long; ramet takes tokens of up to %u",
                              id, s->pieces[id].bytes, RAMET_TEXT_MAX_PIECE);
        if (s->types && (s->types[id] < 0 || s->types[id] > RAMET_TOKEN_BYTE))
            return ramet_fail(error, RAMET_E_CORRUPT, "token %u has the unknown type %d", id, (int)s->types[id]);
        if (!byte_level && s->scores && isnan(s->scores[id]))
            return ramet_fail(error, RAMET_E_CORRUPT, "the score of token %u is not a number", id);
    }
    if (!byte_level && !s->scores)
        return ramet_fail(error, RAMET_E_CORRUPT,
                          "tokenizer.ggml.scores is missing; a \"llama\" tokenizer merges by it");
    if (byte_level && (s->n_merges == 0 || !s->merges))
        return ramet_fail(error, RAMET_E_CORRUPT, "tokenizer.ggml.merges is missing; a \"gpt2\" tokenizer needs it");
    return RAMET_OK;
}

static ramet_status check_source(const ramet_vocab_source *s, bool *byte_level, ramet_error *error) {
    if (!s->kind) return ramet_fail(error, RAMET_E_CORRUPT, "tokenizer.ggml.model is missing");
    *byte_level = strcmp(s->kind, "gpt2") == 0;
    if (!*byte_level && strcmp(s->kind, "llama") != 0)
        return ramet_fail(
            error, RAMET_E_UNSUPPORTED,
            "tokenizer \"%.64s\" (tokenizer.ggml.model) is not one that ramet knows; it knows gpt2 and llama", s->kind);
    if (!*byte_level && s->pre && strcmp(s->pre, "default") != 0)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "a \"llama\" tokenizer with the pre-tokeniser \"%.64s\" is not known", s->pre);
    RAMET_TRY(check_arrays(s, *byte_level, error));
    return check_ids(s, error);
}

/* Refuses two tokens of one name, and leaves the index of names for the merges. */
static ramet_status index_names(const ramet_vocab_source *s, uint64_t *hashes, ramet_text_index *names,
                                ramet_error *error) {
    for (uint32_t id = 0; id < s->n_tokens; id++) {
        if (s->pieces[id].bytes == 0) continue; /* nameless padding: real files have several */
        hashes[id] = ramet_text_hash(s->pieces[id].data, s->pieces[id].bytes);
        int64_t other = ramet_text_index_add(names, id);
        if (other == RAMET_TEXT_CROWDED)
            return ramet_fail(error, RAMET_E_CORRUPT, "the pieces around token %u are made to collide in a hash table",
                              id);
        if (other >= 0)
            return ramet_fail(error, RAMET_E_CORRUPT, "tokens %d and %u have the same name", (int)other, id);
    }
    return RAMET_OK;
}

static ramet_status build_from_names(ramet_vocab *v, const ramet_vocab_source *s, ramet_error *error) {
    ramet_text_index names = {0};
    uint64_t *hashes = ramet_alloc(s->n_tokens, sizeof *hashes);
    ramet_status status = RAMET_OK;
    if (!hashes || !ramet_text_index_create((ramet_text_pieces){.slices = s->pieces}, hashes, s->n_tokens, &names))
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the vocabulary");
    if (status == RAMET_OK) status = index_names(s, hashes, &names, error);
    if (status == RAMET_OK && v->byte_level) status = ramet_vocab_build_merges(v, s, &names, error);
    ramet_text_index_destroy(&names);
    free(hashes);
    return status;
}

/* Names that end a turn or a text in the families that ramet runs. Only control tokens count: in Gemma </s> is HTML. */
static void mark_ends(ramet_vocab *v, const ramet_vocab_source *s) {
    static const char *const names[] = {"<|im_end|>",    "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
                                        "<end_of_turn>", "<eos>",         "</s>",       "<|end|>",    "<EOT>"};
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        if (v->types[id] != RAMET_TOKEN_CONTROL) continue;
        ramet_text_slice text = ramet_vocab_text(v, id);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (text.bytes == strlen(names[i]) && memcmp(text.data, names[i], text.bytes) == 0) v->ends[id] = 1;
    }
    if (s->eos >= 0) v->ends[s->eos] = 1;
    if (s->eot >= 0) v->ends[s->eot] = 1;
}

static ramet_status build_vocab(ramet_vocab *v, const ramet_vocab_source *s, ramet_error *error) {
    v->n_tokens = s->n_tokens;
    v->bos = s->bos;
    v->eos = s->eos;
    if (v->byte_level) RAMET_TRY(ramet_text_pre_create(s->pre, &v->pre, error));
    bool usual = v->byte_level ? v->pre.adds_bos : true;
    v->adds_bos = v->bos >= 0 && (s->add_bos < 0 ? usual : s->add_bos > 0);
    v->adds_space = !v->byte_level && s->add_space_prefix != 0; /* SentencePiece does unless the file says no */
    RAMET_TRY(ramet_vocab_build_texts(v, s, error));
    /* in this order, since an allocator keeps for small ones what a large one of the same size gave back */
    RAMET_TRY(ramet_vocab_build_index(v, error));
    RAMET_TRY(build_from_names(v, s, error));
    if (!v->byte_level) RAMET_TRY(ramet_vocab_build_ranks(v, s, error));
    RAMET_TRY(ramet_vocab_build_bytes(v, error));
    RAMET_TRY(ramet_vocab_build_specials(v, error));
    mark_ends(v, s);
    ramet_vocab_finish_build(v);
    return ramet_vocab_build_digest(v, s, error);
}

ramet_status ramet_vocab_create(const ramet_vocab_source *source, ramet_vocab **out, ramet_error *error) {
    *out = NULL;
    bool byte_level = false;
    RAMET_TRY(check_source(source, &byte_level, error));
    ramet_vocab *v = ramet_alloc(1, sizeof *v);
    if (!v) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the vocabulary");
    v->byte_level = byte_level;
    ramet_status status = build_vocab(v, source, error);
    if (status != RAMET_OK) ramet_vocab_destroy(&v);
    *out = v;
    return status;
}

void ramet_vocab_destroy(ramet_vocab **vocab) {
    ramet_vocab *v = *vocab;
    if (!v) return;
    ramet_text_pre_destroy(&v->pre);
    ramet_text_specials_destroy(&v->specials);
    ramet_text_index_destroy(&v->index);
    free(v->ranks);
    free(v->merges);
    free(v->merge_slots);
    free(v->powers);
    free(v->hashes);
    free(v->ends);
    free(v->types);
    free(v->offs);
    free(v->arena);
    free(v);
    *vocab = NULL;
}

uint64_t ramet_vocab_bytes(const ramet_vocab *v) {
    uint64_t n = v->n_tokens, bytes = sizeof *v + v->offs[n] + 1 + (n + 1) * sizeof *v->offs + 2 * n;
    if (v->hashes) bytes += n * sizeof *v->hashes + (RAMET_TEXT_MAX_PIECE + 1) * sizeof *v->powers;
    if (v->ranks) bytes += n * sizeof *v->ranks;
    if (v->merges) bytes += v->n_merges * sizeof *v->merges + (v->merge_mask + 1) * sizeof *v->merge_slots;
    return bytes + ramet_text_index_bytes(&v->index) + v->specials.n * sizeof *v->specials.list;
}

uint32_t ramet_vocab_size(const ramet_vocab *vocab) {
    return vocab->n_tokens;
}
int32_t ramet_vocab_bos(const ramet_vocab *vocab) {
    return vocab->bos;
}
int32_t ramet_vocab_eos(const ramet_vocab *vocab) {
    return vocab->eos;
}
bool ramet_vocab_adds_bos(const ramet_vocab *vocab) {
    return vocab->adds_bos;
}
void ramet_vocab_digest(const ramet_vocab *vocab, uint8_t out[32]) {
    memcpy(out, vocab->digest, 32);
}

bool ramet_vocab_ends(const ramet_vocab *vocab, int32_t token) {
    return token >= 0 && (uint32_t)token < vocab->n_tokens && vocab->ends[token];
}

void ramet_vocab_piece(const ramet_vocab *vocab, int32_t token, bool special, const char **out, size_t *out_bytes) {
    *out = "";
    *out_bytes = 0;
    if (token < 0 || (uint32_t)token >= vocab->n_tokens) return;
    if (!special && ramet_vocab_is_control(vocab, token)) return;
    ramet_text_slice text = ramet_vocab_text(vocab, (uint32_t)token);
    *out = text.data;
    *out_bytes = text.bytes;
}
