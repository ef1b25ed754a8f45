/* fuzz_tokenizer.c - any bytes into ids and back, and any ids into text, for each kind of tokenizer that the fixtures
 * have, and SentencePiece without its space in front (text_checks.h has what is checked).
 * Input: which tokenizer, flags, then the text or the ids. */
#include "fuzz.h"

#include "test_text_fixture.h"
#include "text_checks.h"

enum { ALLOW_CONTROL = 1, ADD_BOS = 2, ARE_IDS = 4 };

static const struct {
    const char *file;
    int8_t add_space;
} kinds[] = {{"tiny-llama3.bin", -1}, {"tiny-smollm.bin", -1}, {"tiny-gpt2.bin", -1}, {"tiny-qwen2.bin", -1},
             {"tiny-qwen35.bin", -1}, {"tiny-gemma.bin", 0},   {"tiny-gemma.bin", 1}, {"smollm2.bin", -1}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static ramet_vocab *vocabs[N_KINDS];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    for (size_t i = 0; i < N_KINDS; i++) {
        fixture f;
        fixture_open(&f, kinds[i].file);
        if (kinds[i].add_space >= 0) f.source.add_space_prefix = kinds[i].add_space;
        vocabs[i] = create_vocab(&f.source);
        fixture_close(&f);
    }
    return 0;
}

static void fuzz_ids(const ramet_vocab *v, const uint8_t *data, size_t bytes) {
    size_t n = bytes / 2, text_bytes;
    int32_t *ids = calloc(n + 1, sizeof *ids);
    bool are_inside = true;
    ramet_error error = {0};
    char *text;
    if (!ids) abort();
    for (size_t i = 0; i < n; i++) { /* mostly inside a small vocabulary, sometimes negative */
        ids[i] = (int16_t)fuzz_load(data + 2 * i, 2);
        are_inside = are_inside && ids[i] >= 0 && (uint32_t)ids[i] < v->n_tokens;
    }
    ramet_status status = ramet_vocab_decode(v, ids, n, true, &text, &text_bytes, &error);
    FUZZ_CHECK((status == RAMET_OK) == are_inside, "%s", ramet_status_name(status));
    if (status == RAMET_OK)
        check_stream(v, ids, n, text, text_bytes);
    else
        fuzz_check_refusal(status, &error, text);
    fuzz_was_taken = are_inside;
    free(text);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 2) return 0;
    const ramet_vocab *v = vocabs[data[0] % N_KINDS];
    unsigned flags =
        (data[1] & ALLOW_CONTROL ? RAMET_TOKENIZE_SPECIAL : 0) | (data[1] & ADD_BOS ? RAMET_TOKENIZE_BOS : 0);
    fuzz_was_taken = true;
    if (data[1] & ARE_IDS)
        fuzz_ids(v, data + 2, bytes - 2);
    else
        check_text(v, (const char *)data + 2, bytes - 2, flags);
    return 0;
}
