/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram: of all ways to cut a piece into tokens, the one whose scores sum up highest (Viterbi). Time
 * and memory O(n) in the length of a piece, with the longest token (at most UNIGRAM_TOKEN_MAX bytes) as
 * factor. The vocabulary is borrowed and outlives the model. Threads: as model.h.
 */
#ifndef TPL_TOKEN_UNIGRAM_H
#define TPL_TOKEN_UNIGRAM_H

#include "token/model.h"
#include "token/vocab.h"

/* Bytes of the longest token; published ones have less than 100. */
#define TPL_UNIGRAM_TOKEN_MAX 1024

typedef struct tpl_unigram_options {
    const tpl_vocab *vocab; /* the model's own tokens take part, whatever else they are */
    const double *scores;   /* [vocab->n]; copied */
    bool byte_fallback;     /* an unknown stretch becomes its byte tokens <0xHH>, if all exist */
    int32_t unk_id;         /* what an unknown stretch gives; must be a token */
} tpl_unigram_options;

/* A token that is too long: TPL_ERR_UNSUPPORTED. */
TPL_NODISCARD tpl_status tpl_unigram_new(tpl_model **out, const tpl_unigram_options *o,
                                         const char *where, tpl_err *err);

#endif
