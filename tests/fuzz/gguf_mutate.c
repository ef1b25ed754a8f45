/* gguf_mutate.c - see gguf_mutate.h. Its own reader of the format, of course: it walks as far as the file makes sense. */
#include "gguf_mutate.h"

#include "fuzz.h"

#include <string.h>

enum { MOST_ENTRIES = 256, STRING = 8, ARRAY = 9, N_TENSORS_OFF = 8, N_VALUES_OFF = 16, HEADER_BYTES = 24, SLACK = 64 };

/* A key with its value, or the description of a tensor. */
typedef struct entry {
    size_t begin, name_end, end; /* name_end: where the type of a value or the dimensions of a tensor begin */
    bool is_tensor;
} entry;

typedef struct file {
    uint8_t *data;
    size_t bytes, most;
    fuzz_random random;
    entry entries[MOST_ENTRIES];
    uint32_t n_entries;
} file;

/* Size of a value of a type without parts; 0: it has some, or is unknown. */
static size_t scalar_bytes(uint64_t type) {
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

/* Where the string at `at` ends; 0 when it does not. */
static size_t string_end(const file *f, size_t at) {
    if (f->bytes < 8 || at > f->bytes - 8) return 0;
    uint64_t n = fuzz_load(f->data + at, 8);
    return n <= f->bytes - at - 8 ? at + 8 + (size_t)n : 0;
}

static size_t value_end(const file *f, size_t at) {
    if (f->bytes - at < 4) return 0;
    uint64_t type = fuzz_load(f->data + at, 4), n = 1;
    at += 4;
    if (type == ARRAY) {
        if (f->bytes - at < 12) return 0;
        type = fuzz_load(f->data + at, 4);
        n = fuzz_load(f->data + at + 4, 8);
        at += 12;
    }
    size_t size = scalar_bytes(type);
    if (size) return n <= (f->bytes - at) / size ? at + (size_t)n * size : 0;
    if (type != STRING) return 0;
    for (uint64_t i = 0; i < n && at; i++) at = string_end(f, at);
    return at;
}

static size_t tensor_end(const file *f, size_t at) {
    if (f->bytes - at < 4) return 0;
    uint64_t n_dims = fuzz_load(f->data + at, 4);
    return n_dims <= 4 && f->bytes - at >= 16 + 8 * n_dims ? at + 16 + 8 * (size_t)n_dims : 0;
}

static void walk(file *f) {
    if (f->bytes < HEADER_BYTES) return;
    uint64_t n_tensors = fuzz_load(f->data + N_TENSORS_OFF, 8), n_values = fuzz_load(f->data + N_VALUES_OFF, 8);
    size_t at = HEADER_BYTES;
    while (f->n_entries < MOST_ENTRIES && (n_values || n_tensors)) {
        entry e = {.begin = at, .name_end = string_end(f, at), .is_tensor = n_values == 0};
        e.end = !e.name_end ? 0 : e.is_tensor ? tensor_end(f, e.name_end) : value_end(f, e.name_end);
        if (!e.end) return;
        f->entries[f->n_entries++] = e;
        at = e.end;
        (*(e.is_tensor ? &n_tensors : &n_values))--;
    }
}

/* Bytes [from, to) become `n` others, whatever is there now. False: no room. */
static bool resize(file *f, size_t from, size_t to, size_t n) {
    if (f->bytes - (to - from) + n > f->most) return false;
    memmove(f->data + from + n, f->data + to, f->bytes - to);
    f->bytes = f->bytes - (to - from) + n;
    return true;
}

static void add_to_count(file *f, const entry *e, int change) {
    uint8_t *count = f->data + (e->is_tensor ? N_TENSORS_OFF : N_VALUES_OFF);
    fuzz_store(count, fuzz_load(count, 8) + (uint64_t)(int64_t)change, 8);
}

static void remove_entry(file *f, const entry *e) {
    if (resize(f, e->begin, e->end, 0)) add_to_count(f, e, -1);
}

static void repeat_entry(file *f, const entry *e) {
    size_t n = e->end - e->begin;
    if (!resize(f, e->end, e->end, n)) return;
    memcpy(f->data + e->end, f->data + e->begin, n);
    add_to_count(f, e, 1);
}

/* The text becomes another, and its length says so. */
static void change_string(file *f, size_t at) {
    uint8_t text[512];
    size_t n = string_end(f, at) - at - 8, taken = n < 256 ? n : 256;
    memcpy(text, f->data + at + 8, taken);
    size_t now = LLVMFuzzerMutate(text, taken, sizeof text);
    if (!resize(f, at + 8, at + 8 + taken, now)) return;
    memcpy(f->data + at + 8, text, now);
    fuzz_store(f->data + at, n - taken + now, 8);
}

/* One element changes, goes, or comes twice. */
static void change_array(file *f, size_t at) {
    uint64_t type = fuzz_load(f->data + at, 4), n = fuzz_load(f->data + at + 4, 8);
    size_t size = scalar_bytes(type), begin = at + 12;
    uint32_t index = fuzz_below(&f->random, (uint32_t)n), way = fuzz_below(&f->random, 4);
    if (n == 0 || n > UINT32_MAX) return;
    if (size)
        begin += index * size;
    else
        for (uint32_t i = 0; i < index; i++) begin = string_end(f, begin);
    size_t end = size ? begin + size : string_end(f, begin);
    if (way == 0 && resize(f, begin, end, 0)) {
        fuzz_store(f->data + at + 4, n - 1, 8);
    } else if (way == 1 && resize(f, end, end, end - begin)) {
        memcpy(f->data + end, f->data + begin, end - begin);
        fuzz_store(f->data + at + 4, n + 1, 8);
    } else if (way > 1 && size) {
        fuzz_store(f->data + begin, fuzz_odd_number(&f->random), size);
    } else if (way > 1) {
        change_string(f, begin);
    }
}

static void change_value(file *f, const entry *e) {
    uint64_t type = fuzz_load(f->data + e->name_end, 4);
    size_t size = scalar_bytes(type), at = e->name_end + 4;
    if (fuzz_below(&f->random, 16) == 0)
        fuzz_store(f->data + e->name_end, fuzz_below(&f->random, 14), 4);
    else if (type == ARRAY)
        change_array(f, at);
    else if (type == STRING)
        change_string(f, at);
    else
        fuzz_store(f->data + at, fuzz_odd_number(&f->random), size);
}

static void change_tensor(file *f, const entry *e) {
    uint8_t *n_dims = f->data + e->name_end, *type = f->data + e->end - 12, *off = f->data + e->end - 8;
    uint32_t n = (uint32_t)fuzz_load(n_dims, 4);
    switch (fuzz_below(&f->random, 4)) {
    case 0: fuzz_store(n_dims, fuzz_below(&f->random, 7), 4); break;
    case 1: fuzz_store(type, fuzz_below(&f->random, 42), 4); break;
    case 2: fuzz_store(off, fuzz_load(off, 8) + 32 * fuzz_odd_number(&f->random), 8); break;
    default:
        if (n) fuzz_store(n_dims + 4 + 8 * fuzz_below(&f->random, n), fuzz_odd_number(&f->random), 8);
    }
}

static void change_entry(file *f, const entry *e) {
    switch (fuzz_below(&f->random, 8)) {
    case 0: remove_entry(f, e); break;
    case 1: repeat_entry(f, e); break;
    case 2: change_string(f, e->begin); break;
    default: (e->is_tensor ? change_tensor : change_value)(f, e);
    }
}

/* Tensors stay inside the file when the keys before them grew. */
static void add_slack(file *f) {
    size_t n = f->most - f->bytes < SLACK ? f->most - f->bytes : SLACK;
    memset(f->data + f->bytes, 0, n);
    f->bytes += n;
}

size_t gguf_mutate(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    file f = {.data = data, .bytes = bytes, .most = most, .random = {.state = seed}};
    if (seed % 2) return LLVMFuzzerMutate(data, bytes, most);
    walk(&f);
    if (f.n_entries == 0) return LLVMFuzzerMutate(data, bytes, most);
    change_entry(&f, &f.entries[fuzz_below(&f.random, f.n_entries)]);
    if (f.bytes > bytes || fuzz_below(&f.random, 8) == 0) add_slack(&f);
    return f.bytes;
}
