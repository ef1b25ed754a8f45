/* micro.h - two models of a few hundred kilobytes, made from a fixed generator instead of a file: every weight type, both rope
 * pairings, both gates, norms, biases and a sliding window occur. What they compute is the numerics_id. */
#ifndef RAMET_ENGINE_MICRO_H
#define RAMET_ENGINE_MICRO_H

#include "model/model.h"

enum { RAMET_MICRO_KINDS = 2, RAMET_MICRO_VOCAB = 64 };

/* Weights of micro-model `kind`; NULL: no memory. Destroyed by ramet_micro_destroy. */
ramet_weights *ramet_micro_create(int kind);
void ramet_micro_destroy(ramet_weights **weights);

#endif
