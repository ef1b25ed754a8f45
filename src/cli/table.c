/* table.c - see table.h. */
#define _GNU_SOURCE
#include "cli/table.h"
#include "base/memory.h"
#include "cli/console.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void ramet_table_add(ramet_table *t, const char *first, ...) {
    void *rows = t->rows;
    if (t->failed || !ramet_grow(&rows, &t->capacity, t->n_rows + 1, sizeof *t->rows)) {
        t->failed = true;
        return;
    }
    t->rows = rows;
    char **row = t->rows[t->n_rows++];
    memset(row, 0, sizeof *t->rows);
    va_list args;
    va_start(args, first);
    size_t i = 0;
    for (const char *cell = first; cell && i < RAMET_TABLE_COLUMNS; cell = va_arg(args, const char *), i++)
        if (!(row[i] = strdup(cell))) t->failed = true;
    va_end(args);
    if (i > t->n_columns) t->n_columns = i;
}

static bool is_right(const ramet_table *t, size_t column) {
    return t->rows[0][column] && t->rows[0][column][0] == '>';
}

static const char *cell_text(const ramet_table *t, size_t row, size_t column) {
    const char *text = t->rows[row][column];
    if (!text) return "";
    return row == 0 && text[0] == '>' ? text + 1 : text;
}

/* Columns on a terminal: characters, not bytes. */
static size_t width_of(const char *text) {
    size_t width = 0;
    for (; *text; text++)
        if (((unsigned char)*text & 0xC0) != 0x80) width++;
    return width;
}

static void print_padded(FILE *out, const char *text, size_t width, bool right, bool pad_end) {
    size_t have = width_of(text), blanks = width > have ? width - have : 0;
    if (right) fprintf(out, "%*s", (int)blanks, "");
    ramet_print_clean(out, text);
    if (!right && pad_end) fprintf(out, "%*s", (int)blanks, "");
}

static void print_csv_row(const ramet_table *t, size_t row, FILE *out) {
    for (size_t c = 0; c < t->n_columns; c++) {
        const char *text = cell_text(t, row, c);
        if (c) fputc(',', out);
        if (!text[strcspn(text, ",\"\n")]) {
            fputs(text, out);
            continue;
        }
        fputc('"', out);
        for (; *text; text++) fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
        fputc('"', out);
    }
    fputc('\n', out);
}

static void print_rule(const ramet_table *t, const size_t *widths, FILE *out) {
    for (size_t c = 0; c < t->n_columns; c++) {
        fputs(c ? " | " : "| ", out);
        for (size_t i = 0; i + 1 < widths[c]; i++) fputc('-', out);
        fputc(is_right(t, c) ? ':' : '-', out);
    }
    fputs(" |\n", out);
}

static void print_row(const ramet_table *t, size_t row, const size_t *widths, bool bars, FILE *out) {
    if (bars) fputs("| ", out);
    for (size_t c = 0; c < t->n_columns; c++) {
        if (c) fputs(bars ? " | " : "  ", out);
        print_padded(out, cell_text(t, row, c), widths[c], is_right(t, c), bars || c + 1 < t->n_columns);
    }
    fputs(bars ? " |\n" : "\n", out);
}

ramet_status ramet_table_print(const ramet_table *t, ramet_table_form form, FILE *out, ramet_error *error) {
    if (t->failed) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a table");
    size_t widths[RAMET_TABLE_COLUMNS] = {0};
    for (size_t r = 0; r < t->n_rows; r++)
        for (size_t c = 0; c < t->n_columns; c++) {
            size_t width = width_of(cell_text(t, r, c));
            if (width > widths[c]) widths[c] = width;
        }
    for (size_t r = 0; r < t->n_rows; r++) {
        if (form == RAMET_TABLE_CSV)
            print_csv_row(t, r, out);
        else
            print_row(t, r, widths, form == RAMET_TABLE_MARKDOWN, out);
        if (r == 0 && form == RAMET_TABLE_MARKDOWN) print_rule(t, widths, out);
    }
    return RAMET_OK;
}

void ramet_table_free(ramet_table *t) {
    for (size_t r = 0; r < t->n_rows; r++)
        for (size_t c = 0; c < RAMET_TABLE_COLUMNS; c++) free(t->rows[r][c]);
    free(t->rows);
    *t = (ramet_table){0};
}
