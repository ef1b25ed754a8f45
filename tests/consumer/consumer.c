/* consumer.c - the shortest useful program on the public header: prefill, fork, and the same bits in both. */
#include <ramet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const ramet_error *error) {
    fprintf(stderr, "consumer: %s\n", error->message);
    return ramet_status_exit_code(error->code);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    ramet_error error = {0};
    ramet_model *model = NULL;
    ramet_engine *engine = NULL;
    ramet_context *trunk = NULL, *branch = NULL;
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    const float *trunk_logits, *branch_logits;
    ramet_model_info info;

    if (ramet_model_open(argv[1], NULL, &model, &error)) return fail(&error);
    ramet_model_get_info(model, &info);
    if (ramet_engine_create(model, NULL, &engine, &error)) return fail(&error);
    if (ramet_tokenize(model, argv[2], strlen(argv[2]), RAMET_TOKENIZE_BOS, &tokens, &n_tokens, &error))
        return fail(&error);

    if (ramet_context_create(engine, &trunk, &error)) return fail(&error);
    if (ramet_context_extend(trunk, tokens, n_tokens, &error)) return fail(&error);
    if (ramet_context_fork(trunk, &branch, &error)) return fail(&error);
    /* One more token in both: each computes it for itself. */
    if (ramet_context_extend(trunk, tokens, 1, &error)) return fail(&error);
    if (ramet_context_extend(branch, tokens, 1, &error)) return fail(&error);
    if (ramet_context_logits(trunk, &trunk_logits, &error)) return fail(&error);
    if (ramet_context_logits(branch, &branch_logits, &error)) return fail(&error);
    int differs = memcmp(trunk_logits, branch_logits, info.n_vocab * sizeof(float)) != 0;
    printf("ramet %s, %s, %zu tokens, branch %s\n", ramet_version(), info.arch, n_tokens,
           differs ? "DIFFERS" : "equal");

    free(tokens);
    if (ramet_context_close(&branch, &error) || ramet_context_close(&trunk, &error)) return fail(&error);
    ramet_engine_destroy(&engine);
    ramet_model_close(&model);
    return differs;
}
