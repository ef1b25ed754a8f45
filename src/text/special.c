/* special.c - see special.h. */
#include "text/special.h"

#include <stdlib.h>
#include <string.h>

static int compare_specials(const void *a, const void *b) {
    const ramet_text_special *x = a, *y = b;
    size_t shared = x->text.bytes < y->text.bytes ? x->text.bytes : y->text.bytes;
    int order = memcmp(x->text.data, y->text.data, shared);
    if (order != 0) return order;
    if (x->text.bytes != y->text.bytes) return x->text.bytes < y->text.bytes ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

void ramet_text_specials_take(ramet_text_specials *specials, ramet_text_special *list, size_t n) {
    if (n) qsort(list, n, sizeof *list, compare_specials);
    specials->list = list;
    specials->n = n;
    size_t at = 0;
    for (uint32_t byte = 0; byte < 257; byte++) {
        while (at < n && (uint8_t)list[at].text.data[0] < byte) at++;
        specials->first[byte] = (uint32_t)at;
    }
}

void ramet_text_specials_destroy(ramet_text_specials *specials) {
    free(specials->list);
    specials->list = NULL;
}

/* First of list[low..high), whose texts agree on depth bytes and are longer than that, with a byte >= `byte` there. */
static size_t find_bound(const ramet_text_special *list, size_t low, size_t high, size_t depth, unsigned byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uint8_t)list[middle].text.data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* list[low..high) always holds exactly the texts that begin with the first `depth` bytes of `text`. */
const ramet_text_special *ramet_text_specials_match(const ramet_text_specials *specials, const char *text, size_t bytes,
                                                    bool control) {
    if (bytes == 0) return NULL;
    const ramet_text_special *list = specials->list, *best = NULL;
    size_t low = specials->first[(uint8_t)text[0]], high = specials->first[(uint8_t)text[0] + 1u];
    for (size_t depth = 1; low < high; depth++) {
        for (; low < high && list[low].text.bytes == depth; low++) /* those that end here sort first */
            if ((control || !list[low].control) && (!best || best->text.bytes < depth)) best = &list[low];
        if (depth == bytes) break;
        low = find_bound(list, low, high, depth, (uint8_t)text[depth]);
        high = find_bound(list, low, high, depth, (uint8_t)text[depth] + 1u);
    }
    return best;
}
