/* gguf_parse.c - one GGUF file, byte by byte, as if an enemy had written it.
 * Owns the format: header, metadata, tensor descriptions, where data lie. Refuses to know several parts and what keys
 * mean. Invariant: a count is compared with the bytes that are left, at the least size an element can have, before
 * anything is allocated for it; so memory stays below 16 times the file's size and time is linear (sorting names adds a
 * logarithm). */
#include "model/gguf_internal.h"

#include "base/bytes.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum {
    LEAST_VALUE_BYTES = 8 + 1 + 4 + 1,          /* key length, key, type, value */
    LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, n_dims, a dimension, type, offset */
    MOST_NAME_BYTES = 65535,
    MOST_ALIGNMENT = 1 << 20,
    DEFAULT_ALIGNMENT = 32,
};

typedef struct cursor {
    const uint8_t *data;
    uint64_t bytes, at;
    const char *path;
    ramet_error *error;
} cursor;

/* Of a string and an array: at least. */
static const uint8_t value_bytes[] = {
    [RAMET_GGUF_U8] = 1,  [RAMET_GGUF_I8] = 1,  [RAMET_GGUF_U16] = 2,  [RAMET_GGUF_I16] = 2,    [RAMET_GGUF_U32] = 4,
    [RAMET_GGUF_I32] = 4, [RAMET_GGUF_F32] = 4, [RAMET_GGUF_BOOL] = 1, [RAMET_GGUF_STRING] = 8, [RAMET_GGUF_ARRAY] = 12,
    [RAMET_GGUF_U64] = 8, [RAMET_GGUF_I64] = 8, [RAMET_GGUF_F64] = 8,
};
enum { N_VALUE_TYPES = sizeof value_bytes };

/* Types that other programs run; known here so that a tensor that nobody wants does not spoil the file. */
static const struct {
    uint32_t dtype;
    gguf_tensor_type type;
} other_types[] = {
    {9, {"Q8_1", 32, 36}},      {15, {"Q8_K", 256, 292}},   {16, {"IQ2_XXS", 256, 66}}, {17, {"IQ2_XS", 256, 74}},
    {18, {"IQ3_XXS", 256, 98}}, {19, {"IQ1_S", 256, 50}},   {20, {"IQ4_NL", 32, 18}},   {21, {"IQ3_S", 256, 110}},
    {22, {"IQ2_S", 256, 82}},   {23, {"IQ4_XS", 256, 136}}, {24, {"I8", 1, 1}},         {25, {"I16", 1, 2}},
    {26, {"I32", 1, 4}},        {27, {"I64", 1, 8}},        {28, {"F64", 1, 8}},        {29, {"IQ1_M", 256, 56}},
    {34, {"TQ1_0", 256, 54}},   {35, {"TQ2_0", 256, 66}},   {39, {"MXFP4", 32, 17}},
};

bool ramet_gguf_tensor_type(uint32_t dtype, gguf_tensor_type *out) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    if (info) {
        *out = (gguf_tensor_type){.name = info->name, .block = info->block, .block_bytes = info->block_bytes};
        return true;
    }
    for (size_t i = 0; i < sizeof other_types / sizeof other_types[0]; i++)
        if (other_types[i].dtype == dtype) {
            *out = other_types[i].type;
            return true;
        }
    return false;
}

static uint64_t left(const cursor *c) {
    return c->bytes - c->at;
}

static ramet_status fail_at_end(const cursor *c, const char *what) {
    return ramet_fail(c->error, RAMET_E_CORRUPT,
                      "%s: the file ends (at byte %llu) inside %s; it is cut short or corrupt", c->path,
                      (unsigned long long)c->bytes, what);
}

static bool read_uint(cursor *c, unsigned bytes, uint64_t *out) {
    if (left(c) < bytes) return false;
    *out = ramet_get_le(c->data + c->at, bytes);
    c->at += bytes;
    return true;
}

static bool read_u32(cursor *c, uint32_t *out) {
    uint64_t value;
    if (!read_uint(c, 4, &value)) return false;
    *out = (uint32_t)value;
    return true;
}

static bool read_string(cursor *c, ramet_gguf_string *out) {
    uint64_t n;
    if (!read_uint(c, 8, &n) || n > left(c)) return false;
    *out = (ramet_gguf_string){.data = (const char *)c->data + c->at, .bytes = n};
    c->at += n;
    return true;
}

/* A key or a tensor's name. `number` tells which one in messages, since there is no name to say yet. */
static ramet_status read_name(cursor *c, const char *kind, uint64_t number, ramet_gguf_string *out) {
    char what[64];
    snprintf(what, sizeof what, "the name of %s %llu", kind, (unsigned long long)number);
    if (!read_string(c, out)) return fail_at_end(c, what);
    if (out->bytes == 0) return ramet_fail(c->error, RAMET_E_CORRUPT, "%s: %s is empty", c->path, what);
    if (out->bytes > MOST_NAME_BYTES)
        return ramet_fail(c->error, RAMET_E_CORRUPT, "%s: %s has %llu bytes, at most %d are allowed ('%s')", c->path,
                          what, (unsigned long long)out->bytes, MOST_NAME_BYTES, ramet_gguf_show(*out).text);
    for (uint64_t i = 0; i < out->bytes; i++)
        if ((unsigned char)out->data[i] < 0x20 || out->data[i] == 0x7f)
            return ramet_fail(c->error, RAMET_E_CORRUPT, "%s: %s ('%s') has a control character", c->path, what,
                              ramet_gguf_show(*out).text);
    return RAMET_OK;
}

static ramet_status fail_value(const cursor *c, const gguf_value *v, ramet_status code, const char *what) {
    return ramet_fail(c->error, code, "%s: key '%s' %s", c->path, ramet_gguf_show(v->key).text, what);
}

static ramet_status fail_value_at_end(const cursor *c, const gguf_value *v) {
    char what[128];
    snprintf(what, sizeof what, "the value of key '%s'", ramet_gguf_show(v->key).text);
    return fail_at_end(c, what);
}

static ramet_status check_bools(const cursor *c, const gguf_value *v, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (v->data[i] > 1) return fail_value(c, v, RAMET_E_CORRUPT, "has a bool that is neither 0 nor 1");
    return RAMET_OK;
}

static ramet_status read_array(cursor *c, gguf_value *v) {
    uint32_t element;
    if (!read_u32(c, &element) || !read_uint(c, 8, &v->n)) return fail_value_at_end(c, v);
    if (element >= N_VALUE_TYPES) return fail_value(c, v, RAMET_E_CORRUPT, "is an array of an unknown type");
    if (element == RAMET_GGUF_ARRAY)
        return fail_value(c, v, RAMET_E_UNSUPPORTED, "is an array of arrays: not supported");
    if (v->n > left(c) / value_bytes[element]) return fail_value_at_end(c, v);
    v->element = (ramet_gguf_type)element;
    v->data = c->data + c->at;
    if (v->element != RAMET_GGUF_STRING) {
        c->at += v->n * value_bytes[element];
        return v->element == RAMET_GGUF_BOOL ? check_bools(c, v, v->n) : RAMET_OK;
    }
    ramet_gguf_string s;
    for (uint64_t i = 0; i < v->n; i++)
        if (!read_string(c, &s)) return fail_value_at_end(c, v);
    return RAMET_OK;
}

static ramet_status read_value(cursor *c, gguf_value *v) {
    uint32_t type;
    if (!read_u32(c, &type)) return fail_value_at_end(c, v);
    if (type >= N_VALUE_TYPES) return fail_value(c, v, RAMET_E_CORRUPT, "has an unknown type");
    v->type = (ramet_gguf_type)type;
    if (v->type == RAMET_GGUF_ARRAY) return read_array(c, v);
    if (v->type == RAMET_GGUF_STRING) {
        ramet_gguf_string s;
        if (!read_string(c, &s)) return fail_value_at_end(c, v);
        v->data = (const uint8_t *)s.data;
        v->n = s.bytes;
        return RAMET_OK;
    }
    if (left(c) < value_bytes[type]) return fail_value_at_end(c, v);
    v->data = c->data + c->at;
    c->at += value_bytes[type];
    return v->type == RAMET_GGUF_BOOL ? check_bools(c, v, 1) : RAMET_OK;
}

static ramet_status read_metadata(cursor *c, gguf_part *part, uint64_t n) {
    if (n > left(c) / LEAST_VALUE_BYTES) return fail_at_end(c, "the metadata");
    part->values = ramet_alloc((size_t)n, sizeof *part->values);
    if (!part->values) return ramet_fail(c->error, RAMET_E_NO_MEMORY, "no memory for the metadata of %s", c->path);
    for (uint64_t i = 0; i < n; i++) {
        gguf_value *v = &part->values[part->n_values];
        RAMET_TRY(read_name(c, "key", i, &v->key));
        RAMET_TRY(read_value(c, v));
        part->n_values++;
    }
    const ramet_gguf_string *twice;
    part->by_key = ramet_gguf_index(part->values, part->n_values, sizeof *part->values, &twice);
    if (!part->by_key) return ramet_fail(c->error, RAMET_E_NO_MEMORY, "no memory for the metadata of %s", c->path);
    if (twice) return fail_value(c, (const gguf_value *)(const void *)twice, RAMET_E_CORRUPT, "is there twice");
    return RAMET_OK;
}

static ramet_status fail_tensor(const cursor *c, const ramet_gguf_tensor *t, ramet_status code, const char *what) {
    return ramet_fail(c->error, code, "%s: tensor '%s' %s", c->path, ramet_gguf_show(t->name).text, what);
}

static ramet_status measure_tensor(const cursor *c, ramet_gguf_tensor *t) {
    gguf_tensor_type type;
    if (!ramet_gguf_tensor_type(t->dtype, &type))
        return ramet_fail(c->error, RAMET_E_UNSUPPORTED, "%s: tensor '%s' has type %u, which is not supported", c->path,
                          ramet_gguf_show(t->name).text, t->dtype);
    if (t->dims[0] % type.block != 0)
        return ramet_fail(c->error, RAMET_E_CORRUPT,
                          "%s: tensor '%s' has rows of %llu, no multiple of %s's block of %u", c->path,
                          ramet_gguf_show(t->name).text, (unsigned long long)t->dims[0], type.name, type.block);
    t->bytes = type.block_bytes;
    bool fits = ramet_mul_u64(t->bytes, t->dims[0] / type.block, &t->bytes);
    for (uint32_t i = 1; i < 4; i++) fits = fits && ramet_mul_u64(t->bytes, t->dims[i], &t->bytes);
    uint64_t elements = t->dims[0]; /* of the sub-byte types there are more elements than bytes */
    for (uint32_t i = 1; i < 4; i++) fits = fits && ramet_mul_u64(elements, t->dims[i], &elements);
    return fits ? RAMET_OK : fail_tensor(c, t, RAMET_E_CORRUPT, "has dimensions whose product is too large");
}

static ramet_status read_tensor(cursor *c, uint64_t number, ramet_gguf_tensor *t) {
    RAMET_TRY(read_name(c, "tensor", number, &t->name));
    if (!read_u32(c, &t->n_dims)) return fail_tensor(c, t, RAMET_E_CORRUPT, "is cut off by the end of the file");
    if (t->n_dims < 1 || t->n_dims > 4)
        return ramet_fail(c->error, RAMET_E_CORRUPT, "%s: tensor '%s' has %u dimensions, 1 to 4 are allowed", c->path,
                          ramet_gguf_show(t->name).text, t->n_dims);
    for (uint32_t i = 0; i < 4; i++) t->dims[i] = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (!read_uint(c, 8, &t->dims[i]))
            return fail_tensor(c, t, RAMET_E_CORRUPT, "is cut off by the end of the file");
        if (t->dims[i] == 0) return fail_tensor(c, t, RAMET_E_CORRUPT, "has a dimension of 0");
    }
    if (!read_u32(c, &t->dtype) || !read_uint(c, 8, &t->off))
        return fail_tensor(c, t, RAMET_E_CORRUPT, "is cut off by the end of the file");
    return measure_tensor(c, t);
}

/* Offsets ascend in every file that a known writer made; so a running end finds every overlap. */
static ramet_status place_tensor(const cursor *c, const ramet_gguf_tensor *t, uint64_t alignment, uint64_t data_bytes,
                                 uint64_t *end) {
    uint64_t off = t->off;
    if (off % alignment != 0) return fail_tensor(c, t, RAMET_E_CORRUPT, "has an offset that is not aligned");
    if (off > data_bytes || t->bytes > data_bytes - off)
        return ramet_fail(c->error, RAMET_E_CORRUPT,
                          "%s: tensor '%s' (%llu bytes at offset %llu) lies past the end of the file; "
                          "it is cut short or corrupt",
                          c->path, ramet_gguf_show(t->name).text, (unsigned long long)t->bytes,
                          (unsigned long long)off);
    if (off < *end) return fail_tensor(c, t, RAMET_E_CORRUPT, "overlaps the tensor before it, or lies before it");
    *end = off + t->bytes;
    return RAMET_OK;
}

static ramet_status read_alignment(const cursor *c, const gguf_part *part, uint64_t *out) {
    *out = DEFAULT_ALIGNMENT;
    const gguf_value *v = ramet_gguf_index_find(part->by_key, part->n_values, "general.alignment");
    if (!v) return RAMET_OK;
    if (v->type != RAMET_GGUF_U32) return fail_value(c, v, RAMET_E_CORRUPT, "must be an unsigned 32-bit integer");
    *out = ramet_get_le(v->data, 4);
    if (*out == 0 || (*out & (*out - 1)) != 0 || *out > MOST_ALIGNMENT)
        return fail_value(c, v, RAMET_E_CORRUPT, "must be a power of two of at most 1048576");
    return RAMET_OK;
}

static ramet_status read_tensors(cursor *c, ramet_gguf *gguf, uint64_t n) {
    gguf_part *part = &gguf->parts[gguf->n_parts - 1];
    uint64_t alignment;
    RAMET_TRY(read_alignment(c, part, &alignment));
    if (n == 0) return RAMET_OK;
    if (n > left(c) / LEAST_TENSOR_BYTES) return fail_at_end(c, "the descriptions of tensors");
    void *grown = gguf->tensors;
    bool ok = ramet_grow(&grown, &gguf->tensors_capacity, gguf->n_tensors + (size_t)n, sizeof *gguf->tensors);
    gguf->tensors = grown;
    if (!ok) return ramet_fail(c->error, RAMET_E_NO_MEMORY, "no memory for the tensors of %s", c->path);
    ramet_gguf_tensor *tensors = gguf->tensors + gguf->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        tensors[i] = (ramet_gguf_tensor){.part = (uint32_t)(gguf->n_parts - 1)};
        RAMET_TRY(read_tensor(c, i, &tensors[i]));
    }
    uint64_t data_off = (c->at + alignment - 1) & ~(alignment - 1), end = 0;
    uint64_t data_bytes = data_off < c->bytes ? c->bytes - data_off : 0;
    for (uint64_t i = 0; i < n; i++) {
        RAMET_TRY(place_tensor(c, &tensors[i], alignment, data_bytes, &end));
        tensors[i].data = c->data + data_off + tensors[i].off;
    }
    gguf->n_tensors += (size_t)n;
    return RAMET_OK;
}

static ramet_status check_version(const cursor *c, uint32_t version) {
    if (version == 2 || version == 3) return RAMET_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return ramet_fail(c->error, RAMET_E_UNSUPPORTED, "%s is a big-endian GGUF file; ramet reads little-endian ones",
                          c->path);
    return ramet_fail(c->error, RAMET_E_UNSUPPORTED, "%s has GGUF version %u; ramet reads versions 2 and 3", c->path,
                      version);
}

ramet_status ramet_gguf_parse_part(ramet_gguf *gguf, ramet_error *error) {
    gguf_part *part = &gguf->parts[gguf->n_parts - 1];
    cursor c = {.data = part->map.data, .bytes = part->map.bytes, .path = part->path, .error = error};
    uint64_t n_tensors, n_values;
    if (left(&c) < 4 || memcmp(c.data, "GGUF", 4) != 0)
        return ramet_fail(error, RAMET_E_CORRUPT, "%s is not a GGUF file", part->path);
    c.at = 4;
    if (!read_u32(&c, &part->version)) return fail_at_end(&c, "the header");
    RAMET_TRY(check_version(&c, part->version));
    if (!read_uint(&c, 8, &n_tensors) || !read_uint(&c, 8, &n_values)) return fail_at_end(&c, "the header");
    RAMET_TRY(read_metadata(&c, part, n_values));
    return read_tensors(&c, gguf, n_tensors);
}
