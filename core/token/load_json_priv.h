/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the tokenizer.json loader share: load_json.c reads the document, added tokens
 * and the parts, load_json_model.c the model and its vocabulary. One thread.
 */
#ifndef TPL_TOKEN_LOAD_JSON_PRIV_H
#define TPL_TOKEN_LOAD_JSON_PRIV_H

#include "token/part.h"
#include "token/tokenizer_priv.h"

typedef struct tpl_json_loader {
    tpl_tokenizer *t;
    const json_t *root, *model;
    const json_t *added; /* "added_tokens", an array or NULL */
    const json_t *more;  /* "added_tokens_decoder" of tokenizer_config.json, an object or NULL */
    const char *where, *where_more;
    tpl_err *err;
} tpl_json_loader;

/* Fills the vocabulary with the model's tokens, with room for the added ones, and makes the model. */
TPL_NODISCARD tpl_status tpl_json_load_model(tpl_json_loader *l);

#endif
