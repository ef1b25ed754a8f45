/* gguf_builder.h - writes GGUF files for tests: good ones, and, through the raw entries, ones that lie. Header-only.
 * Lengths, counts and offsets can be given by hand; nothing here checks that they are true. */
#ifndef RAMET_TESTS_GGUF_BUILDER_H
#define RAMET_TESTS_GGUF_BUILDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gb_buffer {
    uint8_t *data;
    size_t bytes, capacity;
} gb_buffer;

typedef struct gguf_builder {
    uint32_t version;
    uint64_t n_values, n_tensors; /* as they will stand in the header */
    size_t alignment;
    gb_buffer values, infos, data;
} gguf_builder;

static inline void gb_put(gb_buffer *b, const void *data, size_t bytes) {
    if (bytes == 0) return;
    if (b->bytes + bytes > b->capacity) {
        b->capacity = (b->bytes + bytes) * 2;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

static inline void gb_uint(gb_buffer *b, uint64_t value, size_t bytes) {
    uint8_t little[8];
    for (size_t i = 0; i < 8; i++) little[i] = (uint8_t)(value >> (8 * i));
    gb_put(b, little, bytes);
}

static inline void gb_text(gb_buffer *b, const char *text) {
    gb_uint(b, strlen(text), 8);
    gb_put(b, text, strlen(text));
}

static inline gguf_builder gb_begin(void) {
    return (gguf_builder){.version = 3, .alignment = 32};
}

static inline void gb_end(gguf_builder *g) {
    free(g->values.data);
    free(g->infos.data);
    free(g->data.data);
    *g = (gguf_builder){0};
}

/* A key and its type; the value's bytes follow through gb_uint, gb_put, gb_text on g->values. */
static inline void gb_key(gguf_builder *g, const char *key, uint32_t type) {
    gb_text(&g->values, key);
    gb_uint(&g->values, type, 4);
    g->n_values++;
}

static inline void gb_u32(gguf_builder *g, const char *key, uint32_t value) {
    gb_key(g, key, 4);
    gb_uint(&g->values, value, 4);
}

static inline void gb_f32(gguf_builder *g, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gb_key(g, key, 6);
    gb_uint(&g->values, bits, 4);
}

static inline void gb_bool(gguf_builder *g, const char *key, uint8_t value) {
    gb_key(g, key, 7);
    gb_uint(&g->values, value, 1);
}

static inline void gb_str(gguf_builder *g, const char *key, const char *value) {
    gb_key(g, key, 8);
    gb_text(&g->values, value);
}

/* An array's head; its elements follow. */
static inline void gb_array(gguf_builder *g, const char *key, uint32_t element, uint64_t n) {
    gb_key(g, key, 9);
    gb_uint(&g->values, element, 4);
    gb_uint(&g->values, n, 8);
}

/* A description alone, with any numbers. */
static inline void gb_info(gguf_builder *g, const char *name, uint32_t n_dims, const uint64_t *dims, size_t n_written,
                           uint32_t type, uint64_t off) {
    gb_text(&g->infos, name);
    gb_uint(&g->infos, n_dims, 4);
    for (size_t i = 0; i < n_written; i++) gb_uint(&g->infos, dims[i], 8);
    gb_uint(&g->infos, type, 4);
    gb_uint(&g->infos, off, 8);
    g->n_tensors++;
}

static inline void gb_pad(gb_buffer *b, size_t alignment) {
    while (b->bytes % alignment != 0) gb_uint(b, 0, 1);
}

/* A tensor and its data, at the next aligned place. */
static inline void gb_tensor(gguf_builder *g, const char *name, uint64_t k, uint64_t rows, uint32_t type,
                             const void *data, size_t bytes) {
    uint64_t dims[2] = {k, rows};
    uint32_t n_dims = rows > 1 ? 2 : 1;
    gb_pad(&g->data, g->alignment);
    gb_info(g, name, n_dims, dims, n_dims, type, g->data.bytes);
    gb_put(&g->data, data, bytes);
}

/* The whole file, malloc'ed to exactly its size, so that a sanitizer sees any read past its end. */
static inline uint8_t *gb_file(const gguf_builder *g, size_t *out_bytes) {
    gb_buffer b = {0};
    gb_put(&b, "GGUF", 4);
    gb_uint(&b, g->version, 4);
    gb_uint(&b, g->n_tensors, 8);
    gb_uint(&b, g->n_values, 8);
    gb_put(&b, g->values.data, g->values.bytes);
    gb_put(&b, g->infos.data, g->infos.bytes);
    if (g->data.bytes > 0) {
        gb_pad(&b, g->alignment);
        gb_put(&b, g->data.data, g->data.bytes);
    }
    uint8_t *exact = malloc(b.bytes);
    if (!exact) abort();
    memcpy(exact, b.data, b.bytes);
    free(b.data);
    *out_bytes = b.bytes;
    return exact;
}

static inline void gb_save_bytes(const char *path, const uint8_t *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) abort();
}

static inline void gb_save(const gguf_builder *g, const char *path) {
    size_t bytes;
    uint8_t *data = gb_file(g, &bytes);
    gb_save_bytes(path, data, bytes);
    free(data);
}

#endif
