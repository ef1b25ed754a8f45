/* fuzz_cli.c - what the command reads from outside: its arguments, numbers and sizes, lists of token ids, Ollama's
 * manifests; and the JSON it writes, whatever bytes are in it, which jansson must read back. The first byte of an input
 * says which, the second the command. */
#define _GNU_SOURCE
#include "base/utf8.h"
#include "fuzz.h"

#include "cli/json.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/session.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_COMMANDS = 12, MOST_ARGUMENTS = 24 };

/* A store of Ollama's with one blob, "a", and the manifest that an input becomes. */
static const char *const directories[] = {"blobs", "manifests", "manifests/registry.ollama.ai",
                                          "manifests/registry.ollama.ai/library",
                                          "manifests/registry.ollama.ai/library/fuzz"};
#define TAG "manifests/registry.ollama.ai/library/fuzz/tag"
enum { N_DIRECTORIES = sizeof directories / sizeof directories[0] };
static char store[] = "/tmp/ramet-fuzz-cli-XXXXXX";

static char *in_store(const char *name) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", store, name);
    return path;
}

static void remove_store(void) {
    unlink(in_store("blobs/sha256-a"));
    unlink(in_store(TAG));
    for (size_t i = N_DIRECTORIES; i-- > 0;) rmdir(in_store(directories[i]));
    rmdir(store);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    if (!mkdtemp(store) || setenv("OLLAMA_MODELS", store, 1) != 0) fuzz_fail("there is a directory", "%s", store);
    atexit(remove_store);
    for (size_t i = 0; i < N_DIRECTORIES; i++) mkdir(in_store(directories[i]), 0700);
    if (mknod(in_store("blobs/sha256-a"), S_IFREG | 0600, 0) != 0 || symlink(fuzz_file(NULL, 0), in_store(TAG)) != 0)
        fuzz_fail("there is a store", "%s", store);
    return 0;
}

/* ---- arguments: one a line ---- */

static void check_options(const ramet_options *o) {
    FUZZ_CHECK(o->branches >= 1 && o->branches <= 4096, "%u branches", o->branches);
    FUZZ_CHECK(o->n_forks >= 1 && o->n_forks <= 1000000, "%u forks", o->n_forks);
    FUZZ_CHECK(o->threads <= 1024, "%u threads", o->threads);
    FUZZ_CHECK((o->page_tokens & (o->page_tokens - 1)) == 0 && o->page_tokens <= 256, "pages of %u", o->page_tokens);
    FUZZ_CHECK(o->sampler.temperature >= 0 && o->sampler.temperature <= 100, "temperature");
    FUZZ_CHECK(o->sampler.top_p >= 0 && o->sampler.top_p <= 1, "top-p");
    FUZZ_CHECK(o->kv >= RAMET_KV_F32 && o->kv <= RAMET_KV_Q8, "kv %d", (int)o->kv);
}

static void fuzz_arguments(unsigned command, char *text) {
    char *argv[MOST_ARGUMENTS + 2] = {(char[]){"ramet"}}, *none[] = {argv[0], NULL};
    int argc = 1;
    for (char *line; (line = strsep(&text, "\n")) && argc <= MOST_ARGUMENTS;) argv[argc++] = line;
    optind = 0; /* getopt would go on in the arguments of the last input */
    getopt(1, none, "");
    ramet_options o;
    ramet_error error = {0};
    ramet_status status = ramet_options_parse(argc, argv, command, &o, &error);
    if (status != RAMET_OK) {
        fuzz_check_refusal(status, &error, NULL);
        FUZZ_CHECK(status == RAMET_E_ARGUMENT, "%s", ramet_status_name(status));
        return;
    }
    check_options(&o);
    FUZZ_CHECK(o.n_args < (size_t)argc && (o.n_args == 0 || o.args[o.n_args - 1]), "%zu arguments left", o.n_args);
    fuzz_was_taken = true;
}

/* ---- numbers ---- */

static void fuzz_numbers(const char *text) {
    uint64_t number = 0, size = 0;
    float real = 0;
    char written[32];
    bool is_number = ramet_parse_u64(text, &number), is_size = ramet_parse_size(text, &size);
    if (ramet_parse_float(text, &real)) FUZZ_CHECK(isfinite(real), "%s", text);
    fuzz_was_taken = is_number || is_size;
    if (is_size) FUZZ_CHECK(size < (uint64_t)9e18, "%s", text);
    if (!is_number) return;
    snprintf(written, sizeof written, "%" PRIu64, number + fuzz_control);
    FUZZ_CHECK(strcmp(written, text + (strspn(text, "0") - (number == 0 ? 1 : 0))) == 0, "%s is read as %s", text,
               written);
    if (number < 1ull << 53) FUZZ_CHECK(is_size && size == number, "%s is a size of %" PRIu64, text, size);
}

/* ---- token ids ---- */

static void write_ids(const int32_t *ids, size_t n, FILE *out) {
    ramet_json j = {.out = out};
    ramet_json_tokens(&j, NULL, ids, n);
    fclose(out);
}

static void fuzz_ids(const char *text, size_t bytes) {
    int32_t *ids = NULL, *again;
    size_t n = 0, n_again, written_bytes;
    ramet_error error = {0};
    ramet_status status = ramet_input_tokens(text, bytes, "fuzz", &ids, &n, &error);
    if (status != RAMET_OK) {
        fuzz_check_refusal(status, &error, ids);
        return;
    }
    for (size_t i = 0; i < n; i++) FUZZ_CHECK(ids[i] >= 0, "id %d", (int)ids[i]);
    char *written;
    write_ids(ids, n, open_memstream(&written, &written_bytes));
    status = ramet_input_tokens(written, written_bytes, "again", &again, &n_again, &error);
    FUZZ_CHECK(status == RAMET_OK && n_again == n && (n == 0 || memcmp(again, ids, n * sizeof *ids) == 0),
               "%s is not read back", written);
    free(written);
    free(again);
    free(ids);
    fuzz_was_taken = true;
}

/* ---- JSON ---- */

static void fuzz_json(const char *text, size_t bytes) {
    char *written;
    size_t written_bytes;
    ramet_json j = {.out = open_memstream(&written, &written_bytes)};
    ramet_json_object_begin(&j, NULL);
    ramet_json_text(&j, "text", text, bytes);
    ramet_json_double(&j, "number", bytes >= 8 ? *(const double *)memcpy(&(double){0}, text, 8) : NAN);
    ramet_json_object_end(&j);
    fclose(j.out);
    json_error_t why;
    json_t *read = json_loadb(written, written_bytes, JSON_ALLOW_NUL, &why);
    FUZZ_CHECK(read, "%s: %s", why.text, written);
    const json_t *back = json_object_get(read, "text");
    FUZZ_CHECK(json_is_string(back), "no text in %s", written);
    if (ramet_utf8_valid_bytes(text, bytes) == bytes)
        FUZZ_CHECK(json_string_length(back) == bytes && memcmp(json_string_value(back), text, bytes) == 0,
                   "another text in %s", written);
    json_decref(read);
    free(written);
    fuzz_was_taken = true;
}

/* ---- manifests ---- */

static void fuzz_manifest(const char *text, size_t bytes) {
    ramet_models models = {0};
    ramet_error error;
    fuzz_file((const uint8_t *)text, bytes);
    FUZZ_CHECK(ramet_models_scan_ollama(&models, &error) == RAMET_OK, "%s", error.message);
    FUZZ_CHECK(models.n_found <= 1, "%zu models of one manifest", models.n_found);
    if (models.n_found) {
        FUZZ_CHECK(strcmp(models.found[0].path, in_store("blobs/sha256-a")) == 0, "%s", models.found[0].path);
        FUZZ_CHECK(strcmp(models.found[0].name, "fuzz:tag") == 0, "%s", models.found[0].name);
    }
    fuzz_was_taken = models.n_found == 1;
    ramet_models_free(&models);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 2) return 0;
    size_t n = bytes - 2;
    char *text = malloc(n + 1); /* all but JSON are NUL-terminated, as the command has them */
    if (!text) abort();
    memcpy(text, data + 2, n);
    text[n] = 0;
    switch (data[0] % 5) {
    case 0: fuzz_arguments(1u << data[1] % N_COMMANDS, text); break;
    case 1: fuzz_numbers(text); break;
    case 2: fuzz_ids(text, n); break;
    case 3: fuzz_manifest(text, n); break;
    default: fuzz_json((const char *)data + 2, n);
    }
    free(text);
    return 0;
}
