/* models.c - see models.h: ramet's own directory, Hugging Face's cache, LM Studio's folders, and matching by name.
 * Ollama's store has a file of its own. Only this room of ramet reads the environment. */
#define _GNU_SOURCE
#include "cli/models.h"
#include "base/memory.h"
#include "cli/options.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ramet_store_name(ramet_store store) {
    static const char *const names[] = {"ramet", "ollama", "huggingface", "lmstudio", "bundled"};
    return names[store];
}

static ramet_status fail_memory(ramet_error *error) {
    return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the list of models");
}

char *ramet_print(const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---------------------------------------------------------------- lists ---- */

ramet_status ramet_visit_directory(const char *path, ramet_visit_fn visit, void *user, ramet_error *error) {
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) return RAMET_OK;
    ramet_status status = RAMET_OK;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (status == RAMET_OK && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            struct stat st;
            char *full = ramet_print("%s/%s", path, name);
            if (!full)
                status = fail_memory(error);
            else if (stat(full, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
                status = visit(user, full, name, S_ISDIR(st.st_mode), error);
            free(full);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Parts after the first of a split file count as part of the first: "NAME-00001-of-00003.gguf". */
static bool split_of(const char *file, unsigned *out_part, unsigned *out_parts) {
    const char *mark = strstr(file, "-of-");
    return mark && mark - file >= 6 && sscanf(mark - 6, "-%5u-of-%5u.gguf", out_part, out_parts) == 2;
}

static uint64_t bytes_of(const char *path) {
    struct stat st;
    unsigned part, parts;
    if (!split_of(base_of(path), &part, &parts)) return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    uint64_t total = 0;
    int stem = (int)(strstr(base_of(path), "-of-") - path) - 6;
    for (part = 1; part <= parts; part++) {
        char *one = ramet_print("%.*s-%05u-of-%05u.gguf", stem, path, part, parts);
        if (one && stat(one, &st) == 0) total += (uint64_t)st.st_size;
        free(one);
    }
    return total;
}

static bool is_model_file(const char *file) {
    unsigned part, parts;
    if (!ends_with(file, ".gguf") || strcasestr(file, "mmproj")) return false;
    return !split_of(file, &part, &parts) || part == 1;
}

ramet_status ramet_models_add(ramet_models *m, ramet_store store, const char *name, const char *path,
                              ramet_error *error) {
    for (size_t i = 0; i < m->n_found; i++) /* the same name from a second directory of one store */
        if (m->found[i].store == store && strcmp(m->found[i].name, name) == 0) return RAMET_OK;
    void *found = m->found;
    if (!ramet_grow(&found, &m->found_capacity, m->n_found + 1, sizeof *m->found)) return fail_memory(error);
    m->found = found;
    ramet_found_model one = {store, strdup(name), strdup(path), bytes_of(path)};
    if (!one.name || !one.path) {
        free(one.name);
        free(one.path);
        return fail_memory(error);
    }
    m->found[m->n_found++] = one;
    return RAMET_OK;
}

bool ramet_models_search(ramet_models *m, ramet_store store, const char *directory) {
    struct stat st;
    bool exists = stat(directory, &st) == 0 && S_ISDIR(st.st_mode);
    void *searched = m->searched;
    if (!ramet_grow(&searched, &m->searched_capacity, m->n_searched + 1, sizeof *m->searched)) return exists;
    m->searched = searched;
    char *copy = strdup(directory);
    if (copy) m->searched[m->n_searched++] = (ramet_searched){store, copy, exists};
    return exists;
}

void ramet_models_free(ramet_models *m) {
    for (size_t i = 0; i < m->n_found; i++) {
        free(m->found[i].name);
        free(m->found[i].path);
    }
    for (size_t i = 0; i < m->n_searched; i++) free(m->searched[i].directory);
    free(m->found);
    free(m->searched);
    *m = (ramet_models){0};
}

/* ------------------------------------------- plain folders and LM Studio ---- */

typedef struct walk {
    ramet_models *models;
    ramet_store store;
    const char *prefix; /* name of the repository so far, or NULL */
    unsigned depth;     /* folders still to go into */
} walk;

static ramet_status visit_folder(void *user, const char *path, const char *name, bool is_directory,
                                 ramet_error *error) {
    walk *w = user;
    if (is_directory ? w->depth == 0 : !is_model_file(name)) return RAMET_OK;
    char *full = w->prefix ? ramet_print("%s/%s", w->prefix, name) : strdup(name);
    if (!full) return fail_memory(error);
    ramet_status status;
    if (is_directory) {
        walk deeper = {w->models, w->store, full, w->depth - 1};
        status = ramet_visit_directory(path, visit_folder, &deeper, error);
    } else {
        full[strlen(full) - strlen(".gguf")] = '\0';
        status = ramet_models_add(w->models, w->store, full, path, error);
    }
    free(full);
    return status;
}

/* Takes `directory`. */
static ramet_status scan_folder(ramet_models *m, ramet_store store, char *directory, unsigned depth,
                                ramet_error *error) {
    if (!directory) return fail_memory(error);
    walk w = {m, store, NULL, depth};
    ramet_status status = RAMET_OK;
    if (ramet_models_search(m, store, directory)) status = ramet_visit_directory(directory, visit_folder, &w, error);
    free(directory);
    return status;
}

/* --------------------------------------------------------- Hugging Face ---- */

/* "Q4_K_M" of "model-Q4_K_M.gguf" or "model.Q4_K_M.gguf"; the whole stem when it names no type. malloc'ed. */
static char *quant_of(const char *file) {
    char *stem = strdup(file);
    if (!stem) return NULL;
    unsigned part, parts;
    if (split_of(stem, &part, &parts))
        *(strstr(stem, "-of-") - 6) = '\0';
    else
        stem[strlen(stem) - strlen(".gguf")] = '\0';
    for (char *c = stem + strlen(stem); c > stem; c--) {
        if (c[-1] != '-' && c[-1] != '.') continue;
        const char *types[] = {"q1", "q2", "q3", "q4", "q5", "q6", "q8", "iq", "tq", "f16", "f32", "bf16", "mxfp"};
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            if (strncasecmp(c, types[i], strlen(types[i])) == 0) {
                memmove(stem, c, strlen(c) + 1);
                return stem;
            }
    }
    return stem;
}

static ramet_status visit_snapshot(void *user, const char *path, const char *name, bool is_directory,
                                   ramet_error *error) {
    walk *w = user;
    if (is_directory) {
        walk deeper = {w->models, w->store, w->prefix, w->depth - 1};
        return w->depth ? ramet_visit_directory(path, visit_snapshot, &deeper, error) : RAMET_OK;
    }
    if (!is_model_file(name)) return RAMET_OK;
    char *quant = quant_of(name);
    char *full = quant ? ramet_print("%s:%s", w->prefix, quant) : NULL;
    ramet_status status = full ? ramet_models_add(w->models, w->store, full, path, error) : fail_memory(error);
    free(full);
    free(quant);
    return status;
}

/* The revision that refs/main names comes first, so that it wins over others with the same file. */
static ramet_status scan_repository(walk *w, const char *path, ramet_error *error) {
    char revision[128] = "";
    char *ref = ramet_print("%s/refs/main", path), *snapshots = ramet_print("%s/snapshots", path), *main = NULL;
    FILE *file = ref ? fopen(ref, "r") : NULL;
    if (file) {
        if (fscanf(file, "%127[0-9A-Za-z]", revision) != 1) revision[0] = '\0';
        fclose(file);
    }
    ramet_status status = snapshots ? RAMET_OK : fail_memory(error);
    if (status == RAMET_OK && revision[0] && (main = ramet_print("%s/%s", snapshots, revision)))
        status = ramet_visit_directory(main, visit_snapshot, w, error);
    if (status == RAMET_OK) status = ramet_visit_directory(snapshots, visit_snapshot, w, error);
    free(main);
    free(snapshots);
    free(ref);
    return status;
}

static ramet_status visit_repository(void *user, const char *path, const char *name, bool is_directory,
                                     ramet_error *error) {
    if (!is_directory || strncmp(name, "models--", 8) != 0) return RAMET_OK;
    char *repository = strdup(name + 8);
    if (!repository) return fail_memory(error);
    char *slash = strstr(repository, "--");
    if (slash) {
        *slash = '/';
        memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
    }
    walk w = {user, RAMET_STORE_HF, repository, 3};
    ramet_status status = scan_repository(&w, path, error);
    free(repository);
    return status;
}

static ramet_status scan_hugging_face(ramet_models *m, const char *home, ramet_error *error) {
    const char *hub = getenv("HF_HUB_CACHE"), *hf = getenv("HF_HOME"), *cache = getenv("XDG_CACHE_HOME");
    char *directory = hub && hub[0]       ? strdup(hub)
                      : hf && hf[0]       ? ramet_print("%s/hub", hf)
                      : cache && cache[0] ? ramet_print("%s/huggingface/hub", cache)
                                          : ramet_print("%s/.cache/huggingface/hub", home);
    if (!directory) return fail_memory(error);
    ramet_status status = RAMET_OK;
    if (ramet_models_search(m, RAMET_STORE_HF, directory))
        status = ramet_visit_directory(directory, visit_repository, m, error);
    free(directory);
    return status;
}

/* ----------------------------------------------------------------- scan ---- */

static char *own_directory(const char *home) {
    const char *set = getenv("RAMET_MODELS"), *data = getenv("XDG_DATA_HOME");
    if (set && set[0]) return strdup(set);
    if (data && data[0]) return ramet_print("%s/ramet/models", data);
    return ramet_print("%s/.local/share/ramet/models", home);
}

/* What came with ramet: beside the sources when this program lies in its build tree, else where it was installed. */
static char *bundled_directory(void) {
    char exe[PATH_MAX];
    size_t n = strlen(RAMET_BUILD_DIR);
    if (realpath("/proc/self/exe", exe) && strncmp(exe, RAMET_BUILD_DIR, n) == 0 && exe[n] == '/')
        return strdup(RAMET_SOURCE_SHARE_DIR "/models");
    return strdup(RAMET_SHARE_DIR "/models");
}

static int compare_found(const void *a, const void *b) {
    const ramet_found_model *x = a, *y = b;
    return x->store != y->store ? (x->store < y->store ? -1 : 1) : strcasecmp(x->name, y->name);
}

ramet_status ramet_models_scan(ramet_models *out, ramet_error *error) {
    *out = (ramet_models){0};
    const char *home = getenv("HOME") ? getenv("HOME") : "";
    ramet_status status = scan_folder(out, RAMET_STORE_RAMET, own_directory(home), 0, error);
    if (status == RAMET_OK) status = ramet_models_scan_ollama(out, error);
    if (status == RAMET_OK) status = scan_hugging_face(out, home, error);
    if (status == RAMET_OK)
        status = scan_folder(out, RAMET_STORE_LMSTUDIO, ramet_print("%s/.lmstudio/models", home), 2, error);
    if (status == RAMET_OK)
        status = scan_folder(out, RAMET_STORE_LMSTUDIO, ramet_print("%s/.cache/lm-studio/models", home), 2, error);
    if (status == RAMET_OK) status = scan_folder(out, RAMET_STORE_BUNDLED, bundled_directory(), 0, error);
    if (status != RAMET_OK) ramet_models_free(out);
    if (out->n_found > 0) qsort(out->found, out->n_found, sizeof *out->found, compare_found);
    return status;
}

/* ---------------------------------------------------------------- match ---- */

/* 3: this is its name; 2: its name up to a : or /, the rest left open; 1: the beginning of it; 0: something else. */
static int match_rank(const ramet_found_model *model, const char *wanted) {
    size_t n = strlen(wanted);
    const char *file = base_of(model->path);
    bool file_is_named = model->store != RAMET_STORE_OLLAMA; /* there it is a digest */
    if (strcasecmp(model->name, wanted) == 0) return 3;
    if (file_is_named && strcasecmp(file, wanted) == 0) return 3;
    if (file_is_named && strncasecmp(file, wanted, n) == 0 && strcasecmp(file + n, ".gguf") == 0) return 3;
    if (strncasecmp(model->name, wanted, n) == 0) {
        if (model->store == RAMET_STORE_OLLAMA && strcmp(model->name + n, ":latest") == 0) return 3;
        return model->name[n] == ':' || model->name[n] == '/' ? 2 : 1;
    }
    return file_is_named && strncasecmp(file, wanted, n) == 0 ? 1 : 0;
}

static ramet_status fail_ambiguous(const ramet_models *m, ramet_store store, const char *wanted, int rank,
                                   ramet_error *error) {
    char choices[300] = "";
    for (size_t i = 0; i < m->n_found; i++)
        if (m->found[i].store == store && match_rank(&m->found[i], wanted) == rank && strlen(choices) < 200)
            snprintf(choices + strlen(choices), sizeof choices - strlen(choices), "%s%s", choices[0] ? ", " : "",
                     m->found[i].name);
    return ramet_fail(error, RAMET_E_ARGUMENT, "model '%s' could be any of: %s", wanted, choices);
}

/* The home directory as ~, to keep the line short. */
static void append_directory(char *text, size_t size, const ramet_searched *s) {
    const char *home = getenv("HOME"), *directory = s->directory;
    size_t used = strlen(text), n = home ? strlen(home) : 0;
    bool below = n > 1 && strncmp(directory, home, n) == 0 && directory[n] == '/';
    snprintf(text + used, size - used, "%s%s%s%s", used ? ", " : "", below ? "~" : "",
             below ? directory + n : directory, s->exists ? "" : " (missing)");
}

static ramet_status fail_missing(const ramet_models *m, const char *wanted, ramet_error *error) {
    char places[420] = "";
    const char *nearest = NULL;
    unsigned best = UINT_MAX;
    for (size_t i = 0; i < m->n_searched; i++) append_directory(places, sizeof places, &m->searched[i]);
    for (size_t i = 0; i < m->n_found; i++)
        if (ramet_is_near(wanted, m->found[i].name, &best)) nearest = m->found[i].name;
    if (nearest)
        return ramet_fail(error, RAMET_E_NOT_FOUND, "no model '%s'; did you mean %s? Searched %s", wanted, nearest,
                          places);
    return ramet_fail(error, RAMET_E_NOT_FOUND, "no model '%s': not a file here, and not in %s", wanted, places);
}

static ramet_status find_in(const ramet_models *m, const char *wanted, const ramet_found_model **out,
                            ramet_error *error) {
    *out = NULL;
    for (int store = RAMET_STORE_RAMET; store <= (int)RAMET_STORE_BUNDLED; store++) {
        int rank = 0;
        size_t n_best = 0;
        for (size_t i = 0; i < m->n_found; i++) {
            int one = m->found[i].store == (ramet_store)store ? match_rank(&m->found[i], wanted) : 0;
            if (one == 0 || one < rank) continue;
            n_best = one > rank ? 1 : n_best + 1;
            rank = one;
            *out = &m->found[i];
        }
        if (n_best > 1) return fail_ambiguous(m, (ramet_store)store, wanted, rank, error);
        if (n_best == 1) return RAMET_OK;
    }
    return fail_missing(m, wanted, error);
}

ramet_status ramet_models_find(const char *name, char **out, bool *out_looked_up, ramet_error *error) {
    struct stat st;
    *out = NULL;
    *out_looked_up = false;
    if (stat(name, &st) == 0 && !S_ISDIR(st.st_mode)) {
        *out = strdup(name);
        return *out ? RAMET_OK : fail_memory(error);
    }
    if (name[0] == '\0' || name[0] == '/' || name[0] == '.')
        return ramet_fail(error, RAMET_E_NOT_FOUND, "no model file '%s'; `ramet models` lists those on this machine",
                          name);
    ramet_models models;
    RAMET_TRY(ramet_models_scan(&models, error));
    const ramet_found_model *found;
    ramet_status status = find_in(&models, name, &found, error);
    if (status == RAMET_OK && !(*out = strdup(found->path))) status = fail_memory(error);
    *out_looked_up = status == RAMET_OK;
    ramet_models_free(&models);
    return status;
}
