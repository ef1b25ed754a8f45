/* pre.c - see pre.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre.h"

#include "base/memory.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* White space as Unicode has it, for use inside brackets. Not \s: PCRE2 adds U+180E, which the trained splitters do
 * not. */
#define SPACE "\\p{Z}\\t-\\r\\x{85}"

/* Spaces up to the last one before a word, which goes with the word; then whatever spaces are left. */
#define SPACES       "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define GPT2_WORDS   " ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"
#define OTHERS       " ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+"

/* Every number character by itself first, then GPT-2 on what lies between: so a number ends the look-ahead like the
 * end. */
#define DIGITS_GPT2                                                                                                    \
    "\\p{N}|" CONTRACTIONS "| ?\\p{L}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+"
#define LLAMA3 "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" OTHERS "|" SPACES
#define QWEN2  "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" OTHERS "|" SPACES
#define QWEN35                                                                                                         \
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"   \
    "[" SPACE "]*[\\r\\n]+|" SPACES

static const struct family {
    const char *pattern;
    bool whole_words, adds_bos;
    const char *names[10]; /* the first is the usual one; the others mean exactly the same */
} families[] = {
    {CONTRACTIONS "|" GPT2_WORDS "|" SPACES, false, false, {"gpt-2", "gigachat", "a.x-4.0", "mellum", "trillion"}},
    {DIGITS_GPT2, false, false, {"smollm", "starcoder", "refact", "minerva-7b"}},
    {LLAMA3, true, true, {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"}},
    {LLAMA3, false, false, {"smaug-bpe"}},
    {QWEN2, false, false, {"qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"}},
    {QWEN35, false, false, {"qwen35"}},
};

static const struct family *find_family(const char *name) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (size_t k = 0; families[i].names[k]; k++)
            if (strcmp(families[i].names[k], name) == 0) return &families[i];
    return NULL;
}

ramet_status ramet_text_pre_create(const char *name, ramet_text_pre *out, ramet_error *error) {
    *out = (ramet_text_pre){0};
    if (!name)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "tokenizer.ggml.pre is missing, so nothing says how text is cut into words: use a newer "
                          "conversion of this model, or write the key (llama-bpe for Llama 3, qwen2 for Qwen 2 and 3, "
                          "smollm for SmolLM)");
    const struct family *family = find_family(name);
    if (!family)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "pre-tokeniser \"%.64s\" (tokenizer.ggml.pre) is not one that ramet knows", name);
    int code;
    PCRE2_SIZE offset;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)family->pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    RAMET_ASSERT(compiled || code == PCRE2_ERROR_HEAP_FAILED, "pattern of %s: PCRE2 error %d at %zu", name, code,
                 offset);
    if (!compiled) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the pattern of pre-tokeniser %s", name);
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter runs: same matches, slower */
    *out = (ramet_text_pre){compiled, family->whole_words, family->adds_bos};
    return RAMET_OK;
}

void ramet_text_pre_destroy(ramet_text_pre *pre) {
    pcre2_code_free(pre->code);
    pre->code = NULL;
}

struct ramet_text_splitter {
    const pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
};

ramet_text_splitter *ramet_text_splitter_create(const ramet_text_pre *pre) {
    ramet_text_splitter *s = ramet_alloc(1, sizeof *s);
    if (!s) return NULL;
    s->code = pre->code;
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (!s->match || !s->context) {
        ramet_text_splitter_destroy(s);
        return NULL;
    }
    return s;
}

void ramet_text_splitter_destroy(ramet_text_splitter *splitter) {
    if (!splitter) return;
    pcre2_match_data_free(splitter->match);
    pcre2_match_context_free(splitter->context);
    free(splitter);
}

/* The patterns step back at most once over what they took, so that this much is linear and always enough. */
static uint32_t choose_match_limit(size_t bytes) {
    uint64_t limit = 1000000u + 16u * (uint64_t)bytes;
    return limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX;
}

ramet_status ramet_text_splitter_next(ramet_text_splitter *s, const char *text, size_t bytes, size_t from,
                                      size_t *out_end, ramet_error *error) {
    pcre2_set_match_limit(s->context, choose_match_limit(bytes - from));
    int rc = pcre2_match(s->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, s->match, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(s->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match,
                         s->context);
    *out_end = bytes;
    if (rc == PCRE2_ERROR_NOMATCH) return RAMET_OK;
    if (rc < 0)
        return ramet_fail(error, RAMET_E_FAILED, "cutting text into words failed at byte %zu (PCRE2 error %d)", from,
                          rc);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->match);
    if (span[0] > from)
        *out_end = span[0]; /* the part before the match */
    else if (span[1] > from)
        *out_end = span[1];
    return RAMET_OK;
}
