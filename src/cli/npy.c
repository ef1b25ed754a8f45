/* npy.c - see npy.h. Little-endian machines only, as all of ramet. */
#include "cli/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows are written as they lie in memory"
#endif

enum { PRELUDE_BYTES = 10, HEADER_BYTES = 118 }; /* together 128: data starts 64-byte aligned */

ramet_status ramet_npy_begin(const char *path, uint64_t n_rows, uint32_t n_columns, ramet_npy *out,
                             ramet_error *error) {
    *out = (ramet_npy){.rows_left = n_rows, .n_columns = n_columns};
    char head[PRELUDE_BYTES + HEADER_BYTES + 1];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = HEADER_BYTES; /* 16-bit, little-endian */
    head[9] = 0;
    int n =
        snprintf(head + PRELUDE_BYTES, HEADER_BYTES,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu32 "), }", n_rows, n_columns);
    head[PRELUDE_BYTES + n] = ' '; /* snprintf's NUL */
    head[PRELUDE_BYTES + HEADER_BYTES - 1] = '\n';
    RAMET_TRY(ramet_publish_begin(path, &out->file, error));
    ramet_status status = ramet_publish_write(&out->file, head, PRELUDE_BYTES + HEADER_BYTES, error);
    if (status != RAMET_OK) ramet_publish_abort(&out->file);
    return status;
}

ramet_status ramet_npy_write(ramet_npy *npy, const float *rows, uint32_t n_rows, ramet_error *error) {
    RAMET_ASSERT(n_rows <= npy->rows_left, "more rows than the header says");
    npy->rows_left -= n_rows;
    return ramet_publish_write(&npy->file, rows, (size_t)n_rows * npy->n_columns * sizeof *rows, error);
}

ramet_status ramet_npy_commit(ramet_npy *npy, ramet_error *error) {
    if (npy->rows_left != 0) {
        ramet_npy_abort(npy);
        return ramet_fail(error, RAMET_E_FAILED, "%" PRIu64 " rows are missing", npy->rows_left);
    }
    return ramet_publish_commit(&npy->file, error);
}

void ramet_npy_abort(ramet_npy *npy) {
    ramet_publish_abort(&npy->file);
}
