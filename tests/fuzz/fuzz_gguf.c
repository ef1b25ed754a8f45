/* fuzz_gguf.c - libFuzzer on everything that reads a model file: the container, the keys, the weights.
 * Build by hand, with clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc, this file, the sources of base,
 * numerics and model, -lcrypto -lxxhash -lpthread -lm. A small model of each family is a good corpus. */
#include "model/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile uint64_t sink; /* so that no read is left out */

static void touch(const ramet_gguf *gguf) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ramet_gguf_n_tensors(gguf); i++) {
        const ramet_gguf_tensor *t = ramet_gguf_tensor_at(gguf, i);
        if (t->bytes == 0) abort();
        sum += t->data[0] + t->data[t->bytes - 1];
        for (uint64_t k = 0; k < t->name.bytes; k++) sum += (unsigned char)t->name.data[k];
    }
    ramet_gguf_array tokens;
    if (ramet_gguf_array_get(gguf, "tokenizer.ggml.tokens", RAMET_GGUF_STRING, &tokens, NULL) == RAMET_OK)
        for (uint64_t i = 0; i < tokens.n; i++) {
            ramet_gguf_string s = ramet_gguf_next_string(&tokens.data);
            for (uint64_t k = 0; k < s.bytes; k++) sum += (unsigned char)s.data[k];
        }
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ramet_error error;
    ramet_gguf *gguf;
    if (ramet_gguf_open_memory(data, bytes, "fuzz.gguf", &gguf, &error) != RAMET_OK) return 0;
    touch(gguf);
    ramet_weights *weights;
    if (ramet_weights_load(gguf, NULL, 1, NULL, &weights, &error) == RAMET_OK) {
        float *row = malloc(weights->hparams.n_embd * sizeof *row);
        if (row) ramet_embedding_row(weights, (int32_t)(weights->hparams.n_vocab - 1), row);
        free(row);
    }
    ramet_weights_destroy(&weights);
    ramet_gguf_close(&gguf);
    return 0;
}
