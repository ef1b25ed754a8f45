/* gguf.h - the GGUF container, versions 2 and 3, whole or split; memory-mapped; hostile until checked.
 *
 * After ramet_gguf_open every string, array and tensor lies inside the mapping, names are unique, shapes multiply
 * without overflow, the sizes of types are known (whether ramet runs them or not), and offsets are aligned and
 * ascending, never outside and never overlapping. Time and memory are proportional to the file. Owns the mappings;
 * refuses to know what the keys mean. */
#ifndef RAMET_MODEL_GGUF_H
#define RAMET_MODEL_GGUF_H

#include "base/error.h"
#include "base/file.h"
#include "numerics/dtype.h"

typedef struct ramet_gguf ramet_gguf;

typedef enum ramet_gguf_type {
    RAMET_GGUF_U8,
    RAMET_GGUF_I8,
    RAMET_GGUF_U16,
    RAMET_GGUF_I16,
    RAMET_GGUF_U32,
    RAMET_GGUF_I32,
    RAMET_GGUF_F32,
    RAMET_GGUF_BOOL,
    RAMET_GGUF_STRING,
    RAMET_GGUF_ARRAY,
    RAMET_GGUF_U64,
    RAMET_GGUF_I64,
    RAMET_GGUF_F64,
} ramet_gguf_type;

typedef struct ramet_gguf_string {
    const char *data; /* not NUL-terminated */
    uint64_t bytes;
} ramet_gguf_string;

typedef struct ramet_gguf_tensor {
    ramet_gguf_string name;
    uint32_t n_dims;
    uint64_t dims[4]; /* GGUF order: dims[0] is the row length (k), the rest multiply to the rows; unused are 1 */
    uint32_t dtype;   /* GGUF's number; may be one that ramet does not run: ramet_dtype_get tells */
    uint64_t bytes;
    uint64_t off;        /* of the data, from where its file's tensor data begin */
    const uint8_t *data; /* inside the mapping */
    uint32_t part;       /* which file of a split model */
} ramet_gguf_tensor;

/* Opens one file, or the first (or any) part of a split model "name-00001-of-00004.gguf": all parts are opened. Errors
 * name the file and the key or tensor. */
ramet_status ramet_gguf_open(const char *path, ramet_gguf **out, ramet_error *error);
/* The same over memory that stays valid; for tests and fuzzing. `name` is used in messages. */
ramet_status ramet_gguf_open_memory(const uint8_t *data, uint64_t bytes, const char *name, ramet_gguf **out,
                                    ramet_error *error);
void ramet_gguf_close(ramet_gguf **gguf);

uint32_t ramet_gguf_version(const ramet_gguf *gguf);
uint64_t ramet_gguf_file_bytes(const ramet_gguf *gguf); /* all parts */
uint64_t ramet_gguf_n_tensors(const ramet_gguf *gguf);
const ramet_gguf_tensor *ramet_gguf_tensor_at(const ramet_gguf *gguf, uint64_t index);
const ramet_gguf_tensor *ramet_gguf_find(const ramet_gguf *gguf, const char *name); /* NULL: absent; O(log n) */
const char *ramet_gguf_path(const ramet_gguf *gguf);
/* Gives the file's pages back to the kernel (they are read again if touched). */
void ramet_gguf_forget(const ramet_gguf *gguf);
/* SHA-256 over the bytes of all parts in order. Cost: reads the files once; quickly when `cache` (a directory, or NULL)
 * has it from an earlier time and the bytes are the same: *out_cached (may be NULL). */
ramet_status ramet_gguf_digest(const ramet_gguf *gguf, const char *cache, uint8_t out[32], bool *out_cached,
                               ramet_error *error);
/* After all was read, the digest too: both are of the same bytes. E_IO: a file is not as it was when it was opened. */
ramet_status ramet_gguf_check_unchanged(const ramet_gguf *gguf, ramet_error *error);

/* Metadata. `out` is untouched and the status E_NOT_FOUND when the key is absent; a key of another type, or a value out
 * of range, is E_CORRUPT naming the key. Integers of any GGUF width convert when the value fits. */
bool ramet_gguf_has(const ramet_gguf *gguf, const char *key);
ramet_status ramet_gguf_u32(const ramet_gguf *gguf, const char *key, uint32_t *out, ramet_error *error);
ramet_status ramet_gguf_i32(const ramet_gguf *gguf, const char *key, int32_t *out, ramet_error *error);
ramet_status ramet_gguf_f32(const ramet_gguf *gguf, const char *key, float *out, ramet_error *error);
ramet_status ramet_gguf_bool(const ramet_gguf *gguf, const char *key, bool *out, ramet_error *error);
ramet_status ramet_gguf_str(const ramet_gguf *gguf, const char *key, ramet_gguf_string *out, ramet_error *error);

typedef struct ramet_gguf_array {
    ramet_gguf_type type;
    uint64_t n;
    const uint8_t *data; /* unaligned little-endian elements; strings: the first, for ramet_gguf_next_string */
} ramet_gguf_array;
ramet_status ramet_gguf_array_get(const ramet_gguf *gguf, const char *key, ramet_gguf_type type, ramet_gguf_array *out,
                                  ramet_error *error);
/* The string at *at, which moves on to the next; at most array.n times. The file's own bytes are the only copy. */
ramet_gguf_string ramet_gguf_next_string(const uint8_t **at);

#endif
