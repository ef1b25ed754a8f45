/* table.h - tables of text: as aligned columns, as Markdown or as CSV.
 * Owns copies of its cells. Refuses to know what they mean. */
#ifndef RAMET_CLI_TABLE_H
#define RAMET_CLI_TABLE_H

#include "base/error.h"

#include <stdio.h>

enum { RAMET_TABLE_COLUMNS = 8 };
typedef enum ramet_table_form { RAMET_TABLE_TEXT, RAMET_TABLE_MARKDOWN, RAMET_TABLE_CSV } ramet_table_form;

typedef struct ramet_table {
    size_t n_columns, n_rows, capacity;
    char *(*rows)[RAMET_TABLE_COLUMNS];
    bool failed; /* an allocation did; printing then reports it */
} ramet_table;

/* The first row is the head. NULL ends the cells; missing ones are empty. A head that begins with '>' aligns right. */
void ramet_table_add(ramet_table *t, const char *first, ...) __attribute__((sentinel));
ramet_status ramet_table_print(const ramet_table *t, ramet_table_form form, FILE *out, ramet_error *error);
void ramet_table_free(ramet_table *t);

#endif
