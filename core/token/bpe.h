/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte pair encoding: symbols (bytes or characters) are merged, lowest rank first, leftmost among
 * equals. The ranks are the order of merges in the file, or for SentencePiece vocabularies the order of
 * the scores. Time O(n log n) in the length of a piece. The vocabulary is borrowed and outlives the
 * model. Threads: as model.h.
 */
#ifndef TPL_TOKEN_BPE_H
#define TPL_TOKEN_BPE_H

#include "token/model.h"
#include "token/vocab.h"

typedef struct tpl_bpe_options {
    const tpl_vocab *vocab;
    bool byte_level;    /* symbols are bytes, spelt in the alphabet of byte_level.h */
    bool byte_fallback; /* a character without a token becomes its byte tokens <0xHH>, if all exist */
    bool fuse_unk;      /* adjoining unknown characters give one unknown token */
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
    int32_t unk_id;     /* -1: characters without a token are dropped */
} tpl_bpe_options;

typedef struct tpl_bpe tpl_bpe;

/* Room for n_merges; they are added in order of rank. */
TPL_NODISCARD tpl_status tpl_bpe_new(tpl_bpe **out, const tpl_bpe_options *o, size_t n_merges,
                                     const char *where, tpl_err *err);
/* Adds the merge of two spellings, which must be tokens, as must be their concatenation. A pair that is
 * there already keeps the lower rank. */
TPL_NODISCARD tpl_status tpl_bpe_add(tpl_bpe *b, tpl_str left, tpl_str right, uint32_t rank,
                                     const char *where, tpl_err *err);
/* The same by ids. */
void tpl_bpe_add_ids(tpl_bpe *b, int32_t left, int32_t right, int32_t merged, uint32_t rank);

tpl_model *tpl_bpe_model(tpl_bpe *b);
void tpl_bpe_free(tpl_bpe *b);

#endif
