/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers: text to ids and back, from a tokenizer.json or from the vocabulary of a GGUF file. A
 * tpl_tokenizer is made and configured by one thread; after that it is constant and any thread may use
 * it. A tpl_detok belongs to one stream of tokens (owner thread) and must be freed before its tokenizer.
 * Ids count from 0. Text is bytes: what is not UTF-8 is read with one U+FFFD for each maximal invalid
 * part, and decoded text is always valid UTF-8.
 */
#ifndef TPL_TOKEN_TOKENIZER_H
#define TPL_TOKEN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "base/vocab.h"

typedef struct tpl_tokenizer tpl_tokenizer;
typedef struct tpl_detok tpl_detok;

/* -- Making one ------------------------------------------------------------------------------- */

/* From the bytes of a tokenizer.json; `where` names the file in messages. A component that is not known:
 * TPL_ERR_UNSUPPORTED. */
TPL_NODISCARD tpl_status tpl_tokenizer_from_json(tpl_tokenizer **out, const char *bytes, size_t len,
                                                 const char *where, tpl_err *err);
/* The same with the tokenizer_config.json that lies beside it (s NULL: there is none), whose
 * added_tokens_decoder may hold tokens that tokenizer.json does not have. Nothing else of it is read. */
TPL_NODISCARD tpl_status tpl_tokenizer_from_files(tpl_tokenizer **out, tpl_str json, const char *where,
                                                  tpl_str config, const char *where_config,
                                                  tpl_err *err);
/* From GGUF metadata; everything is copied. */
TPL_NODISCARD tpl_status tpl_tokenizer_from_vocab(tpl_tokenizer **out, const tpl_vocab_source *source,
                                                  tpl_err *err);
/* Accepts NULL. */
void tpl_tokenizer_free(tpl_tokenizer *t);

/* What stands beside tokenizer.json, in tokenizer_config.json: spellings (s NULL: not stated) and
 * whether they go around a text
 * (-1: as the post-processor says, 0: no, 1: yes). */
typedef struct tpl_tokenizer_config {
    tpl_str bos_token, eos_token;
    int add_bos, add_eos;
} tpl_tokenizer_config;

/* Before the tokenizer is shared. A spelling that is not a token: TPL_ERR_FORMAT. */
TPL_NODISCARD tpl_status tpl_tokenizer_configure(tpl_tokenizer *t, const tpl_tokenizer_config *config,
                                                 tpl_err *err);
/* Makes an id end generations, as eos_token_id of generation_config.json asks; before the tokenizer is
 * shared. */
TPL_NODISCARD tpl_status tpl_tokenizer_add_eog(tpl_tokenizer *t, int64_t id, tpl_err *err);

/* -- What it has ------------------------------------------------------------------------------ */

int32_t tpl_tokenizer_n_vocab(const tpl_tokenizer *t); /* highest id + 1 */
int32_t tpl_tokenizer_bos(const tpl_tokenizer *t);     /* -1: none is stated */
int32_t tpl_tokenizer_eos(const tpl_tokenizer *t);
/* True for tokens that end a generation: eos, eot, eom, and control tokens known by their spelling,
 * <|im_end|> and the like. */
bool tpl_tokenizer_is_eog(const tpl_tokenizer *t, int32_t id);
/* True for control tokens. */
bool tpl_tokenizer_is_special(const tpl_tokenizer *t, int32_t id);
/* The spelling in the vocabulary (byte-level alphabet and all), borrowed until free; s NULL: no such
 * token. */
tpl_str tpl_tokenizer_token(const tpl_tokenizer *t, int32_t id);
/* The id of a spelling, or -1. */
int32_t tpl_tokenizer_find(const tpl_tokenizer *t, const char *s, size_t len);
/* True when encoding with TPL_ENCODE_BOS puts bos in front. */
bool tpl_tokenizer_adds_bos(const tpl_tokenizer *t);

/* -- Encoding --------------------------------------------------------------------------------- */

enum {
    TPL_ENCODE_SPECIAL = 1, /* the spelling of a control token is that token; else it is plain text */
    TPL_ENCODE_BOS = 2,     /* adds what the post-processor adds: a BOS, <s> .. </s>, or nothing */
};

/* Longest text, in bytes; callers with a tighter limit check before. */
#define TPL_TOKENIZE_MAX_BYTES ((size_t)64 << 20)

/* Writes the first `cap` ids to ids and the number of all to *n: when that is more than cap, call again
 * with room for *n. */
TPL_NODISCARD tpl_status tpl_tokenizer_encode(const tpl_tokenizer *t, const char *text, size_t len,
                                              unsigned flags, int32_t *ids, size_t cap, size_t *n,
                                              tpl_err *err);

/* -- Decoding, a token at a time -------------------------------------------------------------- */

/* n_prompt: the first so many tokens belong to a prompt. They are followed, but show nothing. */
TPL_NODISCARD tpl_status tpl_detok_new(tpl_detok **out, const tpl_tokenizer *t, bool skip_special,
                                       size_t n_prompt, tpl_err *err);
void tpl_detok_free(tpl_detok *d);

/* Takes a token and gives the text that it completes: whole characters only, often none. *text is
 * borrowed until the next call. An id without a token shows nothing. */
TPL_NODISCARD tpl_status tpl_detok_push(tpl_detok *d, int32_t id, tpl_str *text, tpl_err *err);
/* Gives what is left, U+FFFD for an unfinished character, and starts over without a prompt. */
TPL_NODISCARD tpl_status tpl_detok_flush(tpl_detok *d, tpl_str *text, tpl_err *err);

#endif
