/* SPDX-License-Identifier: Apache-2.0
 *
 * The seam between the text pipeline and a tokenisation model: pieces in, ids out. BPE (byte-level and
 * SentencePiece-style) is bpe.c; Unigram becomes a second implementation. A model is read by any thread;
 * work memory belongs to one encode call.
 */
#ifndef TPL_TOKEN_MODEL_H
#define TPL_TOKEN_MODEL_H

#include "base/err.h"
#include "base/str.h"

/* Where ids go: the first cap of them are kept, all are counted. */
typedef struct tpl_ids {
    int32_t *ids;
    size_t cap, n;
} tpl_ids;

static inline void tpl_ids_put(tpl_ids *out, int32_t id)
{
    if (out->n < out->cap) out->ids[out->n] = id;
    out->n++;
}

typedef struct tpl_model tpl_model;

typedef struct tpl_model_ops {
    /* Appends the ids of a piece of valid UTF-8, not empty. *work starts as NULL. */
    tpl_status (*encode)(const tpl_model *m, tpl_str piece, void **work, tpl_ids *out, tpl_err *err);
    void (*work_free)(void *work); /* accepts NULL */
    void (*free)(tpl_model *m);    /* accepts NULL */
} tpl_model_ops;

struct tpl_model {
    const tpl_model_ops *ops;
};

#endif
