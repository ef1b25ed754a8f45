/* gguf.c - the object behind gguf.h: opening, closing, tensors by name, giving pages back.
 * Owns the life of the parts; refuses to know the format (gguf_parse.c), the names of parts (gguf_split.c) and their
 * digest (digest.c). */
#include "model/gguf_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *left, const void *right) {
    const ramet_gguf_string *a = *(const ramet_gguf_string *const *)left, *b = *(const ramet_gguf_string *const *)right;
    int order = memcmp(a->data, b->data, (size_t)(a->bytes < b->bytes ? a->bytes : b->bytes));
    if (order != 0) return order;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

const ramet_gguf_string **ramet_gguf_index(const void *first, size_t n, size_t stride,
                                           const ramet_gguf_string **twice) {
    const ramet_gguf_string **index = ramet_alloc(n, sizeof *index);
    *twice = NULL;
    if (!index) return NULL;
    for (size_t i = 0; i < n; i++) index[i] = (const void *)((const char *)first + i * stride);
    qsort(index, n, sizeof *index, compare_names);
    for (size_t i = 1; i < n && !*twice; i++)
        if (compare_names(&index[i - 1], &index[i]) == 0) *twice = index[i - 1] < index[i] ? index[i] : index[i - 1];
    return index;
}

const void *ramet_gguf_index_find(const ramet_gguf_string *const *index, size_t n, const char *name) {
    ramet_gguf_string wanted = {.data = name, .bytes = strlen(name)};
    const ramet_gguf_string *key = &wanted;
    const ramet_gguf_string *const *found = n ? bsearch(&key, index, n, sizeof *index, compare_names) : NULL;
    return found ? *found : NULL;
}

gguf_shown ramet_gguf_show(ramet_gguf_string name) {
    gguf_shown shown = {0};
    size_t n = name.bytes < sizeof shown.text - 4 ? (size_t)name.bytes : sizeof shown.text - 4;
    for (size_t i = 0; i < n; i++) shown.text[i] = (name.data[i] >= 0x20 && name.data[i] < 0x7f) ? name.data[i] : '?';
    if (n < name.bytes) memcpy(shown.text + n, "...", 4);
    return shown;
}

bool ramet_gguf_string_is(ramet_gguf_string s, const char *text) {
    return s.bytes == strlen(text) && memcmp(s.data, text, (size_t)s.bytes) == 0;
}

static void free_part(gguf_part *part) {
    free(part->values);
    free(part->by_key);
    free(part->path);
    if (part->mapped) ramet_file_map_close(&part->map);
}

void ramet_gguf_drop_parts(ramet_gguf *gguf) {
    for (size_t i = 0; i < gguf->n_parts; i++) free_part(&gguf->parts[i]);
    gguf->n_parts = gguf->n_tensors = 0;
}

ramet_status ramet_gguf_add_part(ramet_gguf *gguf, const char *path, ramet_file_map map, bool mapped,
                                 ramet_error *error) {
    size_t path_bytes = strlen(path) + 1;
    char *copy = ramet_alloc(path_bytes, 1);
    void *parts = gguf->parts;
    bool grown = copy && ramet_grow(&parts, &gguf->parts_capacity, gguf->n_parts + 1, sizeof *gguf->parts);
    gguf->parts = parts;
    if (!grown) {
        free(copy);
        if (mapped) ramet_file_map_close(&map);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to open %s", path);
    }
    memcpy(copy, path, path_bytes);
    gguf->parts[gguf->n_parts++] = (gguf_part){.path = copy, .map = map, .mapped = mapped};
    return ramet_gguf_parse_part(gguf, error);
}

static ramet_status index_tensors(ramet_gguf *gguf, ramet_error *error) {
    const ramet_gguf_string *twice;
    gguf->by_name = ramet_gguf_index(gguf->tensors, gguf->n_tensors, sizeof *gguf->tensors, &twice);
    if (!gguf->by_name) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to open %s", gguf->parts[0].path);
    if (!twice) return RAMET_OK;
    const ramet_gguf_tensor *tensor = (const void *)twice;
    return ramet_fail(error, RAMET_E_CORRUPT, "%s: there are two tensors named '%s'", gguf->parts[tensor->part].path,
                      ramet_gguf_show(*twice).text);
}

static ramet_status finish_open(ramet_gguf *gguf, ramet_status status, ramet_gguf **out, ramet_error *error) {
    if (status == RAMET_OK) status = index_tensors(gguf, error);
    if (status == RAMET_OK)
        *out = gguf;
    else
        ramet_gguf_close(&gguf);
    return status;
}

ramet_status ramet_gguf_open(const char *path, ramet_gguf **out, ramet_error *error) {
    *out = NULL;
    ramet_gguf *gguf = ramet_alloc(1, sizeof *gguf);
    if (!gguf) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to open %s", path);
    return finish_open(gguf, ramet_gguf_open_parts(gguf, path, error), out, error);
}

ramet_status ramet_gguf_open_memory(const uint8_t *data, uint64_t bytes, const char *name, ramet_gguf **out,
                                    ramet_error *error) {
    *out = NULL;
    ramet_gguf *gguf = ramet_alloc(1, sizeof *gguf);
    if (!gguf) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to open %s", name);
    ramet_file_map map = {.data = data, .bytes = bytes};
    ramet_status status = ramet_gguf_add_part(gguf, name, map, false, error);
    uint32_t count = 0;
    if (status == RAMET_OK) {
        status = ramet_gguf_part_u32(&gguf->parts[0], "split.count", &count, error);
        if (status == RAMET_E_NOT_FOUND) status = RAMET_OK;
    }
    if (status == RAMET_OK && count > 1)
        status = ramet_fail(error, RAMET_E_UNSUPPORTED, "%s is one of %u parts, and memory has no others", name, count);
    return finish_open(gguf, status, out, error);
}

void ramet_gguf_close(ramet_gguf **gguf) {
    ramet_gguf *g = *gguf;
    *gguf = NULL;
    if (!g) return;
    ramet_gguf_drop_parts(g);
    free(g->parts);
    free(g->tensors);
    free(g->by_name);
    free(g);
}

uint32_t ramet_gguf_version(const ramet_gguf *gguf) {
    return gguf->parts[0].version;
}

uint64_t ramet_gguf_file_bytes(const ramet_gguf *gguf) {
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf->n_parts; i++) sum += gguf->parts[i].map.bytes;
    return sum;
}

uint64_t ramet_gguf_n_tensors(const ramet_gguf *gguf) {
    return gguf->n_tensors;
}

const ramet_gguf_tensor *ramet_gguf_tensor_at(const ramet_gguf *gguf, uint64_t index) {
    return index < gguf->n_tensors ? &gguf->tensors[index] : NULL;
}

const ramet_gguf_tensor *ramet_gguf_find(const ramet_gguf *gguf, const char *name) {
    return ramet_gguf_index_find(gguf->by_name, gguf->n_tensors, name);
}

const char *ramet_gguf_path(const ramet_gguf *gguf) {
    return gguf->parts[0].path;
}

void ramet_gguf_forget_range(const ramet_gguf *gguf, const ramet_gguf_tensor *tensor, uint64_t off, uint64_t bytes) {
    const gguf_part *part = &gguf->parts[tensor->part];
    if (part->mapped) ramet_file_map_forget(&part->map, (uint64_t)(tensor->data - part->map.data) + off, bytes);
}

void ramet_gguf_forget(const ramet_gguf *gguf) {
    for (size_t i = 0; i < gguf->n_parts; i++)
        if (gguf->parts[i].mapped) ramet_file_map_forget(&gguf->parts[i].map, 0, gguf->parts[i].map.bytes);
}
