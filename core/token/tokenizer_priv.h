/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer, in the order in which a text passes them: added tokens cut out of the raw
 * text, normalizer, added tokens cut out of the normalised text, pre-tokenizer, model, post-processor;
 * and the decoder for the way back. The two loaders fill this struct. Threads: as tokenizer.h.
 */
#ifndef TPL_TOKEN_TOKENIZER_PRIV_H
#define TPL_TOKEN_TOKENIZER_PRIV_H

#include "token/added.h"
#include "token/decoder.h"
#include "token/model.h"
#include "token/normalizer.h"
#include "token/post.h"
#include "token/pretok.h"
#include "token/tokenizer.h"
#include "token/vocab.h"

struct tpl_tokenizer {
    tpl_vocab vocab;
    tpl_added raw, normalized;
    tpl_normalizer normalizer;
    tpl_pretok pretok;
    tpl_model *model;
    tpl_post post;
    tpl_decoder decoder;
    int32_t bos, eos;  /* -1: none */
    char *shown;       /* bytes that tokens show, one after the other */
    size_t *shown_end; /* [vocab.n] where those of a token end */
};

/* Both loaders end with this: the shown bytes and the tokens that end generations. */
TPL_NODISCARD tpl_status tpl_tokenizer_finish(tpl_tokenizer *t, const char *where, tpl_err *err);

#endif
