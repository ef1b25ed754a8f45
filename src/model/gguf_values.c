/* gguf_values.c - metadata by key and type. Integers of any width convert when the value fits; nothing else converts.
 * Owns the conversions; refuses to know what keys mean. */
#include "model/gguf_internal.h"

#include "base/bytes.h"

#include <math.h>
#include <string.h>

static const gguf_value *find_value(const gguf_part *part, const char *key) {
    return ramet_gguf_index_find(part->by_key, part->n_values, key);
}

static ramet_status fail_missing(const gguf_part *part, const char *key, ramet_error *error) {
    return ramet_fail(error, RAMET_E_NOT_FOUND, "%s: key '%s' is missing", part->path, key);
}

static ramet_status fail_key(const gguf_part *part, const char *key, const char *what, ramet_error *error) {
    return ramet_fail(error, RAMET_E_CORRUPT, "%s: key '%s' %s", part->path, key, what);
}

/* An integer as sign and magnitude, so that every width fits one pair. False: not an integer. */
static bool to_integer(const gguf_value *v, bool *negative, uint64_t *magnitude) {
    static const struct {
        unsigned bytes;
        bool is_signed;
    } widths[] = {
        [RAMET_GGUF_U8] = {1, false},  [RAMET_GGUF_I8] = {1, true},   [RAMET_GGUF_U16] = {2, false},
        [RAMET_GGUF_I16] = {2, true},  [RAMET_GGUF_U32] = {4, false}, [RAMET_GGUF_I32] = {4, true},
        [RAMET_GGUF_U64] = {8, false}, [RAMET_GGUF_I64] = {8, true},
    };
    if ((size_t)v->type >= sizeof widths / sizeof widths[0] || widths[v->type].bytes == 0) return false;
    unsigned bytes = widths[v->type].bytes;
    uint64_t value = ramet_get_le(v->data, bytes);
    *negative = widths[v->type].is_signed && (value >> (8 * bytes - 1)) != 0;
    if (*negative) value = (~value + 1) & (UINT64_MAX >> (64 - 8 * bytes));
    *magnitude = value;
    return true;
}

ramet_status ramet_gguf_part_u32(const gguf_part *part, const char *key, uint32_t *out, ramet_error *error) {
    const gguf_value *v = find_value(part, key);
    if (!v) return fail_missing(part, key, error);
    bool negative;
    uint64_t magnitude;
    if (!to_integer(v, &negative, &magnitude)) return fail_key(part, key, "is not an integer", error);
    if (negative || magnitude > UINT32_MAX) return fail_key(part, key, "is out of range", error);
    *out = (uint32_t)magnitude;
    return RAMET_OK;
}

ramet_status ramet_gguf_u32(const ramet_gguf *gguf, const char *key, uint32_t *out, ramet_error *error) {
    return ramet_gguf_part_u32(&gguf->parts[0], key, out, error);
}

ramet_status ramet_gguf_i32(const ramet_gguf *gguf, const char *key, int32_t *out, ramet_error *error) {
    const gguf_part *part = &gguf->parts[0];
    const gguf_value *v = find_value(part, key);
    if (!v) return fail_missing(part, key, error);
    bool negative;
    uint64_t magnitude;
    if (!to_integer(v, &negative, &magnitude)) return fail_key(part, key, "is not an integer", error);
    if (magnitude > (negative ? (uint64_t)INT32_MAX + 1 : (uint64_t)INT32_MAX))
        return fail_key(part, key, "is out of range", error);
    *out = (int32_t)(negative ? -(int64_t)magnitude : (int64_t)magnitude);
    return RAMET_OK;
}

bool ramet_gguf_has(const ramet_gguf *gguf, const char *key) {
    return find_value(&gguf->parts[0], key) != NULL;
}

bool ramet_gguf_is_array(const ramet_gguf *gguf, const char *key) {
    const gguf_value *v = find_value(&gguf->parts[0], key);
    return v && v->type == RAMET_GGUF_ARRAY;
}

ramet_status ramet_gguf_f32(const ramet_gguf *gguf, const char *key, float *out, ramet_error *error) {
    const gguf_part *part = &gguf->parts[0];
    const gguf_value *v = find_value(part, key);
    if (!v) return fail_missing(part, key, error);
    if (v->type == RAMET_GGUF_F32) {
        uint32_t bits = (uint32_t)ramet_get_le(v->data, 4);
        memcpy(out, &bits, sizeof bits);
        return RAMET_OK;
    }
    if (v->type != RAMET_GGUF_F64) return fail_key(part, key, "is not a floating-point number", error);
    uint64_t bits = ramet_get_le(v->data, 8);
    double value;
    memcpy(&value, &bits, sizeof bits);
    if (isfinite(value) && (value > (double)3.4e38f || value < (double)-3.4e38f))
        return fail_key(part, key, "is out of range", error);
    *out = (float)value;
    return RAMET_OK;
}

ramet_status ramet_gguf_bool(const ramet_gguf *gguf, const char *key, bool *out, ramet_error *error) {
    const gguf_part *part = &gguf->parts[0];
    const gguf_value *v = find_value(part, key);
    if (!v) return fail_missing(part, key, error);
    if (v->type != RAMET_GGUF_BOOL) return fail_key(part, key, "is not a bool", error);
    *out = v->data[0] != 0;
    return RAMET_OK;
}

ramet_status ramet_gguf_str(const ramet_gguf *gguf, const char *key, ramet_gguf_string *out, ramet_error *error) {
    const gguf_part *part = &gguf->parts[0];
    const gguf_value *v = find_value(part, key);
    if (!v) return fail_missing(part, key, error);
    if (v->type != RAMET_GGUF_STRING) return fail_key(part, key, "is not a string", error);
    *out = (ramet_gguf_string){.data = (const char *)v->data, .bytes = v->n};
    return RAMET_OK;
}

ramet_status ramet_gguf_array_get(const ramet_gguf *gguf, const char *key, ramet_gguf_type type, ramet_gguf_array *out,
                                  ramet_error *error) {
    const gguf_part *part = &gguf->parts[0];
    const gguf_value *v = find_value(part, key);
    if (!v) return fail_missing(part, key, error);
    if (v->type != RAMET_GGUF_ARRAY) return fail_key(part, key, "is not an array", error);
    if (v->element != type) return fail_key(part, key, "is an array of another type", error);
    *out = (ramet_gguf_array){.type = type, .n = v->n, .data = v->data};
    return RAMET_OK;
}

ramet_gguf_string ramet_gguf_next_string(const uint8_t **at) {
    ramet_gguf_string s = {.data = (const char *)*at + 8, .bytes = ramet_get_le(*at, 8)};
    *at += 8 + s.bytes;
    return s;
}
