/* gguf_internal.h - what the files of the GGUF reader share: one mapped part, its metadata, and the parser's result.
 * Owns nothing but the shapes; private to src/model. Names stand first in their structs, so that one kind of index
 * (sorted pointers to names) serves keys and tensors; sorting cannot be attacked with colliding names as a hash can. */
#ifndef RAMET_MODEL_GGUF_INTERNAL_H
#define RAMET_MODEL_GGUF_INTERNAL_H

#include "model/gguf.h"

typedef struct gguf_value {
    ramet_gguf_string key; /* first: indexes point here */
    ramet_gguf_type type;
    ramet_gguf_type element; /* of an array */
    uint64_t n;              /* elements of an array, bytes of a string */
    const uint8_t *data;     /* inside the mapping */
} gguf_value;

/* What a file is known by while nobody writes to it (digest.c); all 0: not a file. */
typedef struct gguf_stamp {
    uint64_t device, inode, bytes, mtime, ctime; /* times in nanoseconds */
} gguf_stamp;
gguf_stamp ramet_gguf_stamp(const char *path);

typedef struct gguf_part {
    char *path;
    gguf_stamp stamp; /* from before it was mapped */
    ramet_file_map map;
    bool mapped; /* false: the bytes are the caller's */
    uint32_t version;
    gguf_value *values;
    size_t n_values;
    const ramet_gguf_string **by_key;
} gguf_part;

struct ramet_gguf {
    gguf_part *parts;
    size_t n_parts, parts_capacity;
    ramet_gguf_tensor *tensors; /* of all parts, in file order */
    size_t n_tensors, tensors_capacity;
    const ramet_gguf_string **by_name;
};

/* A name as it may stand in a message: cut, and without bytes that are not printable ASCII. */
typedef struct gguf_shown {
    char text[96];
} gguf_shown;
gguf_shown ramet_gguf_show(ramet_gguf_string name);
bool ramet_gguf_string_is(ramet_gguf_string s, const char *text);

/* Parses the part that was added last and appends its tensors to gguf->tensors. */
ramet_status ramet_gguf_parse_part(ramet_gguf *gguf, ramet_error *error);
/* Opens `path` and, when it is one part of several, all the others; gguf is empty. */
ramet_status ramet_gguf_open_parts(ramet_gguf *gguf, const char *path, ramet_error *error);
/* Adds a part and parses it. `map` is taken over, also on failure. */
ramet_status ramet_gguf_add_part(ramet_gguf *gguf, const char *path, ramet_file_map map, bool mapped,
                                 ramet_error *error);
void ramet_gguf_drop_parts(ramet_gguf *gguf);

/* Sorted pointers to `n` names that stand `stride` bytes apart; NULL when there is no memory. *twice is a name that is
 * there twice (the later one in memory), or NULL. */
const ramet_gguf_string **ramet_gguf_index(const void *first, size_t n, size_t stride, const ramet_gguf_string **twice);
const void *ramet_gguf_index_find(const ramet_gguf_string *const *index, size_t n, const char *name);

ramet_status ramet_gguf_part_u32(const gguf_part *part, const char *key, uint32_t *out, ramet_error *error);
bool ramet_gguf_is_array(const ramet_gguf *gguf, const char *key);

/* Name, and size of a block, of a tensor type: also of those that ramet knows and does not run. NULL: unknown. */
typedef struct gguf_tensor_type {
    const char *name;
    uint32_t block, block_bytes;
} gguf_tensor_type;
bool ramet_gguf_tensor_type(uint32_t dtype, gguf_tensor_type *out);

/* As ramet_gguf_forget, bytes [off, off + bytes) of the tensor. */
void ramet_gguf_forget_range(const ramet_gguf *gguf, const ramet_gguf_tensor *tensor, uint64_t off, uint64_t bytes);

#endif
