/* gguf_split.c - models in several files, "name-00001-of-00004.gguf". Whichever part is named, all are opened, in
 * order. Owns the names of parts and the keys split.*; refuses to know the format. Only the first part's metadata
 * count. */
#include "model/gguf_internal.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUFFIX_BYTES = sizeof "-00001-of-00004.gguf" - 1 };

static ramet_status open_part(ramet_gguf *gguf, const char *path, ramet_error *error) {
    ramet_file_map map;
    gguf_stamp stamp = ramet_gguf_stamp(path);
    RAMET_TRY(ramet_file_map_open(path, &map, error));
    RAMET_TRY(ramet_gguf_add_part(gguf, path, map, true, error));
    gguf->parts[gguf->n_parts - 1].stamp = stamp;
    return RAMET_OK;
}

/* *count = 0 when the file is whole. */
static ramet_status read_split(const gguf_part *part, uint32_t *no, uint32_t *count, ramet_error *error) {
    *no = *count = 0;
    ramet_status status = ramet_gguf_part_u32(part, "split.count", count, error);
    if (status == RAMET_E_NOT_FOUND || (status == RAMET_OK && *count <= 1)) {
        *count = 0;
        return RAMET_OK;
    }
    if (status != RAMET_OK) return status;
    status = ramet_gguf_part_u32(part, "split.no", no, error);
    if (status == RAMET_E_NOT_FOUND || (status == RAMET_OK && *no >= *count))
        return ramet_fail(error, RAMET_E_CORRUPT, "%s: key 'split.no' is missing or not below 'split.count' (%u)",
                          part->path, *count);
    return status;
}

/* Not terminated. False: no file name holds such numbers. */
static bool write_suffix(char *out, uint32_t no, uint32_t count) {
    char text[40];
    int n = snprintf(text, sizeof text, "-%05u-of-%05u.gguf", no + 1, count);
    if (n != SUFFIX_BYTES) return false;
    memcpy(out, text, SUFFIX_BYTES);
    return true;
}

static ramet_status check_part(const gguf_part *part, uint32_t no, uint32_t count, ramet_error *error) {
    uint32_t part_no, part_count;
    RAMET_TRY(read_split(part, &part_no, &part_count, error));
    if (part_no == no && part_count == count) return RAMET_OK;
    return ramet_fail(error, RAMET_E_CORRUPT, "%s says that it is part %u of %u, and its name says part %u of %u",
                      part->path, part_no + 1, part_count, no + 1, count);
}

static ramet_status check_total(const ramet_gguf *gguf, ramet_error *error) {
    uint32_t total;
    ramet_status status = ramet_gguf_part_u32(&gguf->parts[0], "split.tensors.count", &total, error);
    if (status == RAMET_E_NOT_FOUND) return RAMET_OK;
    if (status == RAMET_OK && total != gguf->n_tensors)
        return ramet_fail(error, RAMET_E_CORRUPT, "%s: key 'split.tensors.count' is %u, and the parts have %zu tensors",
                          gguf->parts[0].path, total, gguf->n_tensors);
    return status;
}

/* `path` ends in a suffix of the right length; it is changed in place to each part's name. */
static ramet_status open_all(ramet_gguf *gguf, char *path, uint32_t count, ramet_error *error) {
    char *suffix = path + strlen(path) - SUFFIX_BYTES;
    for (uint32_t no = 0; no < count; no++) {
        (void)write_suffix(suffix, no, count); /* fits: the last one did */
        ramet_status status = open_part(gguf, path, error);
        if (status != RAMET_OK) return ramet_fail_prefix(error, status, "part %u of %u", no + 1, count);
        RAMET_TRY(check_part(&gguf->parts[no], no, count, error));
    }
    return check_total(gguf, error);
}

ramet_status ramet_gguf_open_parts(ramet_gguf *gguf, const char *path, ramet_error *error) {
    RAMET_TRY(open_part(gguf, path, error));
    uint32_t no, count;
    RAMET_TRY(read_split(&gguf->parts[0], &no, &count, error));
    if (count == 0) return RAMET_OK;
    char suffix[SUFFIX_BYTES];
    size_t n = strlen(path);
    if (!write_suffix(suffix, no, count) || n < SUFFIX_BYTES ||
        memcmp(path + n - SUFFIX_BYTES, suffix, SUFFIX_BYTES) != 0)
        return ramet_fail(error, RAMET_E_CORRUPT,
                          "%s is part %u of %u of a model, and its name does not end in "
                          "-00001-of-00004.gguf and the like, so that the other parts cannot be found",
                          path, no + 1, count);
    char *name = ramet_alloc(n + 1, 1);
    if (!name) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to open %s", path);
    memcpy(name, path, n + 1);
    ramet_gguf_drop_parts(gguf); /* the named part comes again, in its place */
    ramet_status status = open_all(gguf, name, count, error);
    free(name);
    return status;
}
