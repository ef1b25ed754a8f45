/* twin_parts.h - what the two files of the twin share. */
#ifndef RAMET_TEST_TWIN_PARTS_H
#define RAMET_TEST_TWIN_PARTS_H

#include "model/twin.h"

uint64_t twin_bytes_of(const twin *t, twin_kind kind);
uint32_t twin_pages_for(const twin *t, uint32_t n);
void twin_copy_text(twin_text *to, const twin_text *from); /* what is there of it, not the whole arrays */
void twin_open(twin_context *c);                           /* empty */
/* Why a block that it needs could not be read back, or RAMET_OK. */
ramet_status twin_lost_block(const twin *t, const twin_text *text);
void twin_remove_lost_entries(twin *t);

#endif
