/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kinds of GGUF vocabularies share while they are loaded: each kind is a function tpl_load_KIND
 * that fills a tokenizer whose fields are zero. One thread.
 */
#ifndef TPL_TOKEN_LOAD_PRIV_H
#define TPL_TOKEN_LOAD_PRIV_H

#include "token/tokenizer_priv.h"

#define TPL_STR_NONE ((tpl_str){ "", 0 })

/* The type of token i; all are normal where the file does not say. */
int32_t tpl_load_type(const tpl_vocab_source *s, size_t i);
/* Fills the vocabulary and the added tokens. */
TPL_NODISCARD tpl_status tpl_load_tokens(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err);
/* Checks an id of the file: it is -1, or has a token. */
TPL_NODISCARD tpl_status tpl_load_id(const tpl_tokenizer *t, const tpl_vocab_source *s, const char *key,
                                     int64_t value, int32_t *id, tpl_err *err);
/* bos, eos, what ends a generation, what goes around a text; add_bos is what the kind does unless the
 * file says. */
TPL_NODISCARD tpl_status tpl_load_specials(tpl_tokenizer *t, const tpl_vocab_source *s, bool add_bos,
                                           tpl_err *err);

/* "llama": SentencePiece BPE, load_spm.c */
TPL_NODISCARD tpl_status tpl_load_spm(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err);

#endif
