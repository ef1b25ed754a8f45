/* models.h - the GGUF files that this machine already has, and what a name given to -m stands for.
 * Owns the knowledge of where programs keep models. Refuses to open a model, and never downloads. */
#ifndef RAMET_CLI_MODELS_H
#define RAMET_CLI_MODELS_H

#include "base/error.h"

/* In the order of the search. */
typedef enum ramet_store {
    RAMET_STORE_RAMET,
    RAMET_STORE_OLLAMA,
    RAMET_STORE_HF,
    RAMET_STORE_LMSTUDIO,
    RAMET_STORE_BUNDLED
} ramet_store;
const char *ramet_store_name(ramet_store store);

typedef struct ramet_found_model {
    ramet_store store;
    char *name; /* what to give to -m */
    char *path;
    uint64_t bytes; /* all parts of a split file */
} ramet_found_model;

typedef struct ramet_searched {
    ramet_store store;
    char *directory;
    bool exists;
} ramet_searched;

typedef struct ramet_models {
    ramet_found_model *found; /* by store, then by name */
    size_t n_found, found_capacity;
    ramet_searched *searched;
    size_t n_searched, searched_capacity;
} ramet_models;

ramet_status ramet_models_scan(ramet_models *out, ramet_error *error);
void ramet_models_free(ramet_models *models);

/* Path of the model that `name` means: a file, or the best match in the first store that has one. *out is malloc'ed;
 * *out_looked_up is false when `name` is itself the path. E_NOT_FOUND lists where it looked, E_ARGUMENT the choices. */
ramet_status ramet_models_find(const char *name, char **out, bool *out_looked_up, ramet_error *error);

/* For the stores' own files: each adds what it finds below its directories. */
ramet_status ramet_models_add(ramet_models *m, ramet_store store, const char *name, const char *path,
                              ramet_error *error);
/* Notes that `directory` is searched; true when it is there. */
bool ramet_models_search(ramet_models *m, ramet_store store, const char *directory);
ramet_status ramet_models_scan_ollama(ramet_models *m, ramet_error *error);

/* malloc'ed text; NULL: no memory. */
char *ramet_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Calls `visit` for every entry of a directory (not . and ..), sorted by name; a missing directory has none. */
typedef ramet_status (*ramet_visit_fn)(void *user, const char *path, const char *name, bool is_directory,
                                       ramet_error *error);
ramet_status ramet_visit_directory(const char *path, ramet_visit_fn visit, void *user, ramet_error *error);

#endif
