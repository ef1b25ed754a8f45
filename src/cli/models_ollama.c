/* models_ollama.c - Ollama's store: manifests/HOST/NAMESPACE/NAME/TAG is a JSON file that names the blob of each layer.
 * A model in its library goes by NAME:TAG, others by NAMESPACE/NAME:TAG, with HOST/ in front of an unusual one. */
#define _GNU_SOURCE
#include "cli/models.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define USUAL_HOST "registry.ollama.ai"
#define LIBRARY    "library"
#define MODEL_TYPE "application/vnd.ollama.image.model"

typedef struct walk {
    ramet_models *models;
    const char *root;     /* the directory with blobs/ and manifests/ */
    const char *parts[4]; /* host, namespace, name, tag */
    unsigned depth;
} walk;

/* Digest of the layer that holds the weights, "sha256:...", borrowed from `manifest`; NULL when it has none. */
static const char *digest_of(const json_t *manifest) {
    const json_t *layers = json_object_get(manifest, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        if (type && strcmp(type, MODEL_TYPE) == 0) return json_string_value(json_object_get(layer, "digest"));
    }
    return NULL;
}

static char *name_of(const walk *w) {
    const char *host = w->parts[0], *space = w->parts[1];
    bool usual_host = strcmp(host, USUAL_HOST) == 0, in_library = strcmp(space, LIBRARY) == 0;
    return ramet_print("%s%s%s%s%s:%s", usual_host ? "" : host, usual_host ? "" : "/",
                       usual_host && in_library ? "" : space, usual_host && in_library ? "" : "/", w->parts[2],
                       w->parts[3]);
}

/* A manifest that cannot be read, or whose blob is gone, is simply no model. */
static ramet_status add_manifest(const walk *w, const char *path, ramet_error *error) {
    json_t *manifest = json_load_file(path, 0, NULL);
    const char *digest = digest_of(manifest);
    if (!digest || strncmp(digest, "sha256:", 7) != 0 || strchr(digest, '/')) {
        json_decref(manifest);
        return RAMET_OK;
    }
    char *blob = ramet_print("%s/blobs/sha256-%s", w->root, digest + 7);
    char *name = name_of(w);
    json_decref(manifest);
    ramet_status status = RAMET_OK;
    struct stat st;
    if (!blob || !name)
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the list of models");
    else if (stat(blob, &st) == 0 && S_ISREG(st.st_mode))
        status = ramet_models_add(w->models, RAMET_STORE_OLLAMA, name, blob, error);
    free(blob);
    free(name);
    return status;
}

static ramet_status visit_level(void *user, const char *path, const char *name, bool is_directory, ramet_error *error) {
    walk *w = user;
    bool is_tag = w->depth == 3;
    if (is_directory == is_tag) return RAMET_OK;
    w->parts[w->depth] = name;
    if (is_tag) return add_manifest(w, path, error);
    w->depth++;
    ramet_status status = ramet_visit_directory(path, visit_level, w, error);
    w->depth--;
    return status;
}

ramet_status ramet_models_scan_ollama(ramet_models *m, ramet_error *error) {
    const char *set = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    char *root = set && set[0] ? ramet_print("%s", set) : ramet_print("%s/.ollama/models", home ? home : "");
    char *manifests = root ? ramet_print("%s/manifests", root) : NULL;
    ramet_status status = RAMET_OK;
    if (!manifests)
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the list of models");
    else if (ramet_models_search(m, RAMET_STORE_OLLAMA, root)) {
        walk w = {.models = m, .root = root};
        status = ramet_visit_directory(manifests, visit_level, &w, error);
    }
    free(manifests);
    free(root);
    return status;
}
