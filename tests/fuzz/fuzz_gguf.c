/* fuzz_gguf.c - everything that reads a model file: the container, the keys, the weights, the tokenizer's arrays. What
 * opens is used: every tensor's ends, a row of the embedding, a text into ids and back. */
#include "fuzz.h"
#include "gguf_mutate.h"
#include "heap_map.h"
#include "text_checks.h"

#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink; /* so that no read is left out */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    return 0;
}

static uint64_t sum_of(const void *data, uint64_t bytes) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes; i++) sum += ((const uint8_t *)data)[i];
    return sum;
}

static void touch(const ramet_gguf *gguf) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ramet_gguf_n_tensors(gguf); i++) {
        const ramet_gguf_tensor *t = ramet_gguf_tensor_at(gguf, i);
        FUZZ_CHECK(t->bytes > 0, "tensor %llu is empty", (unsigned long long)i);
        sum += t->data[0] + t->data[t->bytes - 1] + sum_of(t->name.data, t->name.bytes);
    }
    ramet_gguf_array tokens;
    if (ramet_gguf_array_get(gguf, "tokenizer.ggml.tokens", RAMET_GGUF_STRING, &tokens, NULL) == RAMET_OK)
        for (uint64_t i = 0; i < tokens.n; i++) {
            const ramet_gguf_string text = ramet_gguf_next_string(&tokens.data);
            sum += sum_of(text.data, text.bytes);
        }
    sink = sum;
}

static void use_embedding(const ramet_weights *w) {
    float *row = malloc(w->hparams.n_embd * sizeof *row);
    if (!row) abort();
    ramet_embedding_row(w, (int32_t)(w->hparams.n_vocab - 1), row);
    sink = sum_of(row, w->hparams.n_embd * sizeof *row);
    free(row);
}

/* The promises hold for any vocabulary that was taken, whatever the text: the file's own end. */
static void use_tokenizer(const ramet_vocab *vocab, const uint8_t *data, size_t bytes) {
    static const char text[] = "A b\xC3\xA9 12\xFF<s></s><|im_end|>\n";
    size_t n = bytes < 100 ? bytes : 100;
    check_text(vocab, text, sizeof text - 1, RAMET_TOKENIZE_SPECIAL | RAMET_TOKENIZE_BOS);
    check_text(vocab, (const char *)data + bytes - n, n, RAMET_TOKENIZE_SPECIAL | RAMET_TOKENIZE_BOS);
    check_text(vocab, (const char *)data + bytes - n, n, 0);
}

static void use_model(const char *path, const uint8_t *data, size_t bytes) {
    ramet_error error = {0};
    ramet_model *model;
    ramet_status status = ramet_model_open(path, &(ramet_model_options){.threads = 1}, &model, &error);
    if (status != RAMET_OK) {
        fuzz_check_refusal(status, &error, model);
        return;
    }
    ramet_model_info info;
    ramet_model_get_info(model, &info);
    FUZZ_CHECK(info.name[0] && fuzz_is_clean(info.name), "the model is called '%s'", info.name);
    use_embedding(model->weights);
    use_tokenizer(model->vocab, data, bytes);
    ramet_model_close(&model);
    fuzz_was_taken = true;
}

/* A file on its own: the container is looked at also where it makes no model. */
static void use_file(const uint8_t *data, size_t bytes) {
    ramet_error error = {0};
    ramet_gguf *gguf;
    ramet_status status = ramet_gguf_open_memory(data, bytes, "fuzz.gguf", &gguf, &error);
    if (status != RAMET_OK) {
        fuzz_check_refusal(status, &error, gguf);
        return;
    }
    touch(gguf);
    ramet_gguf_close(&gguf);
    heap_map_set(data, bytes);
    use_model("fuzz.gguf", data, bytes);
}

/* Two parts of a model as one input: "SPLT", bytes of the first, the first, the second. */
enum { SPLIT_BYTES = 8, MOST_BYTES = 1 << 16 };

static bool split(const uint8_t *data, size_t bytes, size_t *out_first) {
    if (bytes < SPLIT_BYTES || memcmp(data, "SPLT", 4) != 0) return false;
    *out_first = (size_t)fuzz_load(data + 4, 4);
    return *out_first <= bytes - SPLIT_BYTES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    size_t n;
    if (!split(data, bytes, &n)) {
        use_file(data, bytes);
        return 0;
    }
    heap_map_set(data + SPLIT_BYTES, n);
    heap_map_set_second(data + SPLIT_BYTES + n, bytes - SPLIT_BYTES - n);
    use_model("fuzz-00001-of-00002.gguf", data, bytes);
    return 0;
}

/* One of two parts changes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    static uint8_t part[MOST_BYTES];
    size_t n;
    if (!split(data, bytes, &n) || most > sizeof part) return gguf_mutate(data, bytes, most, seed);
    uint8_t *first = data + SPLIT_BYTES, *second = first + n;
    size_t n_second = bytes - SPLIT_BYTES - n;
    if (seed / 2 % 2) return SPLIT_BYTES + n + gguf_mutate(second, n_second, most - SPLIT_BYTES - n, seed);
    memcpy(part, first, n);
    size_t now = gguf_mutate(part, n, most - SPLIT_BYTES - n_second, seed);
    memmove(first + now, second, n_second);
    memcpy(first, part, now);
    fuzz_store(data + 4, now, 4);
    return SPLIT_BYTES + now + n_second;
}
