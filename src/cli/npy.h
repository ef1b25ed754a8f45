/* npy.h - a float32 matrix in NumPy's .npy format (version 1.0), written row by row and published when complete.
 * Owns the file being written. Refuses to know what the rows are. */
#ifndef RAMET_CLI_NPY_H
#define RAMET_CLI_NPY_H

#include "base/file.h"

typedef struct ramet_npy {
    ramet_publisher file;
    uint64_t rows_left;
    uint32_t n_columns;
} ramet_npy;

/* "-" as path is standard output. The shape is written now, so exactly n_rows rows must follow. */
ramet_status ramet_npy_begin(const char *path, uint64_t n_rows, uint32_t n_columns, ramet_npy *out, ramet_error *error);
ramet_status ramet_npy_write(ramet_npy *npy, const float *rows, uint32_t n_rows, ramet_error *error);
/* E_FAILED, and no file, when rows are missing. */
ramet_status ramet_npy_commit(ramet_npy *npy, ramet_error *error);
void ramet_npy_abort(ramet_npy *npy);

#endif
