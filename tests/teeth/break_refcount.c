/* break_refcount.c - a fault for tests/teeth: a page that is retained counts one pointer too many now and then. */
#include "state/internal.h"

void __real_ramet_page_retain(ramet_page *page);
void __wrap_ramet_page_retain(ramet_page *page);

void __wrap_ramet_page_retain(ramet_page *page) {
    __real_ramet_page_retain(page);
    if (page->counts.refcount == 3) page->counts.refcount++;
}
