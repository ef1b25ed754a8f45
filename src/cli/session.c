/* session.c - see session.h. */
#define _GNU_SOURCE
#include "cli/session.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/models.h"
#include "cli/policy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --------------------------------------------------------------- model ---- */

/* "FILE=0.5": the scale is what follows the last '=' when that is a number; a name may contain '='. malloc'ed. */
static ramet_status split_lora(const char *text, char **out_path, float *out_scale, ramet_error *error) {
    *out_scale = 1;
    if (!(*out_path = strdup(text))) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory");
    char *mark = strrchr(*out_path, '=');
    if (mark && ramet_parse_float(mark + 1, out_scale)) *mark = '\0';
    return RAMET_OK;
}

/* Where the library remembers digests of models: made when it is not there, private as the XDG directories ask. NULL,
 * or a path where nothing could be made: not remembered. malloc'ed. */
static char *make_digest_directory(void) {
    const char *set = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *base = set && set[0] == '/' ? strdup(set) : home && home[0] == '/' ? ramet_print("%s/.cache", home) : NULL;
    char *own = base ? ramet_print("%s/ramet", base) : NULL, *digests = own ? ramet_print("%s/digests", own) : NULL;
    if (digests) {
        mkdir(base, 0700);
        mkdir(own, 0700);
        mkdir(digests, 0700);
    }
    free(own);
    free(base);
    return digests;
}

static ramet_status open_path(const ramet_options *o, const char *path, ramet_session *out, ramet_error *error) {
    ramet_model_options options = {.lora_scale = 1, .threads = o->threads};
    char *lora = NULL;
    *out = (ramet_session){0};
    if (o->lora) RAMET_TRY(split_lora(o->lora, &lora, &options.lora_scale, error));
    options.lora_path = lora;
    char *digests = o->no_digest_cache ? NULL : make_digest_directory();
    options.digest_cache = digests;
    ramet_status status = ramet_model_open(path, &options, &out->model, error);
    free(digests);
    free(lora);
    if (status == RAMET_OK) ramet_model_get_info(out->model, &out->info);
    return status;
}

ramet_status ramet_session_open(const ramet_options *o, ramet_session *out, ramet_error *error) {
    char *path;
    bool looked_up;
    *out = (ramet_session){0};
    if (!o->model) return ramet_fail(error, RAMET_E_ARGUMENT, "which model? Give -m MODEL");
    RAMET_TRY(ramet_models_find(o->model, &path, &looked_up, error));
    if (looked_up) ramet_say(o, "model %s", path);
    ramet_status status = open_path(o, path, out, error);
    free(path);
    return status;
}

/* How many words of the model's own name are in the name or path of a file: which ones are worth opening. */
static unsigned count_words(const char *model_name, const ramet_found_model *candidate) {
    char words[128], *rest = words, *word;
    unsigned n = 0;
    snprintf(words, sizeof words, "%s", model_name);
    for (char *c = words; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = ' ';
    while ((word = strtok_r(rest, " ", &rest)))
        if (strlen(word) >= 2 && (strcasestr(candidate->path, word) || strcasestr(candidate->name, word))) n++;
    return n;
}

static ramet_status open_if_equal(const ramet_options *o, const ramet_snapshot_info *snapshot, const char *path,
                                  ramet_session *out) {
    ramet_error ignored;
    if (open_path(o, path, out, &ignored) != RAMET_OK) return RAMET_E_NOT_FOUND; /* it is somebody else's problem */
    if (strcmp(out->info.weights_sha256, snapshot->weights_sha256) == 0) return RAMET_OK;
    ramet_session_close(out);
    return RAMET_E_NOT_FOUND;
}

ramet_status ramet_session_open_for(const ramet_options *o, const ramet_snapshot_info *snapshot, ramet_session *out,
                                    ramet_error *error) {
    ramet_models models;
    *out = (ramet_session){0};
    if (o->model) return ramet_session_open(o, out, error);
    RAMET_TRY(ramet_models_scan(&models, error));
    unsigned most = 0;
    for (size_t i = 0; i < models.n_found; i++) {
        unsigned n = count_words(snapshot->model_name, &models.found[i]);
        if (n > most) most = n;
    }
    ramet_status status = RAMET_E_NOT_FOUND;
    for (unsigned n = most; n > 0 && status != RAMET_OK; n--) /* the likeliest names first */
        for (size_t i = 0; i < models.n_found && status != RAMET_OK; i++) {
            if (count_words(snapshot->model_name, &models.found[i]) != n) continue;
            status = open_if_equal(o, snapshot, models.found[i].path, out);
            if (status == RAMET_OK) ramet_say(o, "model %s", models.found[i].path);
        }
    ramet_models_free(&models);
    if (status == RAMET_OK) return RAMET_OK;
    return ramet_fail(error, RAMET_E_NOT_FOUND,
                      "no model on this machine has the weights %.16s... of '%s'; give -m MODEL",
                      snapshot->weights_sha256, snapshot->model_name);
}

/* -------------------------------------------------------------- engine ---- */

ramet_engine_options ramet_engine_options_of(const ramet_options *o) {
    return (ramet_engine_options){
        .kv = o->kv,
        .n_ctx = o->ctx_size,
        .page_tokens = o->page_tokens,
        .threads = o->threads,
        .chunk_tokens = o->chunk,
        .kv_budget_bytes = o->kv_budget_bytes,
        .spill_directory = o->spill_directory,
        .kernels = o->kernels,
    };
}

ramet_status ramet_session_start(ramet_session *s, const ramet_options *o, uint32_t n_ctx, ramet_error *error) {
    ramet_engine_options options = ramet_engine_options_of(o);
    ramet_policy policy;
    if (options.n_ctx == 0) options.n_ctx = n_ctx;
    RAMET_TRY(ramet_policy_open(o, &policy, error));
    options.snapshots = policy.rules;
    ramet_status status = ramet_engine_create(s->model, &options, &s->engine, error);
    ramet_policy_close(&policy); /* the engine has a copy */
    if (status == RAMET_OK) ramet_engine_get_info(s->engine, &s->engine_info);
    return status;
}

void ramet_session_close(ramet_session *s) {
    ramet_engine_destroy(&s->engine);
    ramet_model_close(&s->model);
}

void ramet_drop(ramet_context **context) {
    ramet_status status = ramet_context_close(context, NULL);
    RAMET_ASSERT(status == RAMET_OK, "a context of this command is busy");
}

static ramet_status check_directory_of(const char *path, ramet_error *error) {
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!directory) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory");
    ramet_status status = RAMET_OK;
    if (access(directory, W_OK | X_OK) != 0)
        status = ramet_fail_errno(error, "cannot write to directory %s", directory);
    free(directory);
    return status;
}

ramet_status ramet_output_check(const char *path, ramet_error *error) {
    struct stat st;
    size_t n = strlen(path);
    if (strcmp(path, "-") == 0) return RAMET_OK;
    if (n == 0 || path[n - 1] == '/') return ramet_fail(error, RAMET_E_ARGUMENT, "-o '%s' names no file", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return ramet_fail(error, RAMET_E_ARGUMENT, "-o %s is not a regular file; -o - writes to standard output", path);
    return check_directory_of(path, error);
}

ramet_status ramet_save_patiently(ramet_context *context, const char *path, const ramet_snapshot_options *options,
                                  ramet_snapshot_info *out_info, ramet_error *error) {
    ramet_signals_patient(true);
    ramet_status status = ramet_snapshot_save(context, path, options, out_info, error);
    ramet_signals_patient(false);
    return status == RAMET_OK ? ramet_check_interrupt(error) : status;
}

/* -------------------------------------------------------------- inputs ---- */

ramet_status ramet_input_text(const ramet_options *o, char **out, size_t *out_bytes, ramet_error *error) {
    *out = NULL;
    *out_bytes = 0;
    if (o->file) return ramet_read_all(o->file, out, out_bytes, error);
    if (!o->prompt) return ramet_fail(error, RAMET_E_ARGUMENT, "no input; give -p TEXT or -f FILE");
    if (strcmp(o->prompt, "-") == 0) return ramet_read_all("-", out, out_bytes, error);
    *out = strdup(o->prompt);
    *out_bytes = strlen(o->prompt);
    return *out ? RAMET_OK : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the prompt");
}

ramet_status ramet_input_tokens(const char *text, size_t bytes, const char *what, int32_t **out, size_t *out_n,
                                ramet_error *error) {
    static const char separators[] = ", \t\r\n[]";
    int32_t *tokens = NULL;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < bytes;) {
        if (text[i] && strchr(separators, text[i])) {
            i++;
            continue;
        }
        int64_t value = 0;
        size_t start = i;
        for (; i < bytes && isdigit((unsigned char)text[i]) && value <= INT32_MAX; i++)
            value = value * 10 + (text[i] - '0');
        bool ends = i == bytes || (text[i] && strchr(separators, text[i]));
        if (i == start || !ends || value > INT32_MAX) {
            free(tokens);
            return ramet_fail(error, RAMET_E_ARGUMENT, "%s: no token id at byte %zu: '%.12s'", what, start,
                              text + start);
        }
        void *grown = tokens;
        if (!ramet_grow(&grown, &capacity, n + 1, sizeof *tokens)) {
            free(tokens);
            return ramet_fail(error, RAMET_E_NO_MEMORY, "%s: no memory for the token ids", what);
        }
        tokens = grown;
        tokens[n++] = (int32_t)value;
    }
    *out = tokens;
    *out_n = n;
    return RAMET_OK;
}

static ramet_status copy_input(const char *path, ramet_error *error) {
    char block[1 << 16];
    size_t n;
    FILE *to = fopen(path, "wx");
    if (!to) return ramet_fail_errno(error, "cannot create %s", path);
    ramet_status status = RAMET_OK;
    while (status == RAMET_OK && (n = fread(block, 1, sizeof block, stdin)) > 0)
        if (fwrite(block, 1, n, to) != n) status = ramet_fail_errno(error, "cannot write %s", path);
    if (status == RAMET_OK && ferror(stdin)) status = ramet_fail_errno(error, "cannot read standard input");
    if (fclose(to) != 0 && status == RAMET_OK) status = ramet_fail_errno(error, "cannot write %s", path);
    return status;
}

ramet_status ramet_input_file_open(const char *path, ramet_input_file *out, ramet_error *error) {
    *out = (ramet_input_file){.path = path};
    if (strcmp(path, "-") != 0) return RAMET_OK;
    RAMET_TRY(ramet_scratch_create(ramet_temporary_parent(), "standard-input.ramet", &out->scratch, error));
    ramet_status status = copy_input(out->scratch.file, error);
    out->path = out->scratch.file;
    if (status != RAMET_OK) ramet_input_file_close(out);
    return status;
}

void ramet_input_file_close(ramet_input_file *f) {
    ramet_scratch_remove(&f->scratch);
}

void ramet_input_file_explain(const ramet_input_file *f, ramet_error *error) {
    char *at = f->scratch.file[0] ? strstr(error->message, f->scratch.file) : NULL;
    if (!at) return;
    ramet_error told = *error;
    size_t before = (size_t)(at - error->message);
    snprintf(told.message + before, sizeof told.message - before, "standard input%s", at + strlen(f->scratch.file));
    *error = told;
}
