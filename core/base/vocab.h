/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary as a model file states it (GGUF tokenizer.* keys), handed from model to token by bind:
 * the two are siblings. All pointers are borrowed for the duration of the call that takes the struct;
 * numbers are as read, not yet checked.
 */
#ifndef TPL_BASE_VOCAB_H
#define TPL_BASE_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* tokenizer.ggml.token_type */
enum {
    TPL_VOCAB_NORMAL = 1,
    TPL_VOCAB_UNKNOWN = 2,
    TPL_VOCAB_CONTROL = 3,
    TPL_VOCAB_USER_DEFINED = 4,
    TPL_VOCAB_UNUSED = 5,
    TPL_VOCAB_BYTE = 6,
};

typedef struct tpl_vocab_source {
    const char *where; /* file name, for messages */
    tpl_str model;     /* "gpt2" byte-level BPE, "llama" SentencePiece BPE; empty = absent */
    tpl_str pre;       /* name of the pre-tokenizer; empty = absent */
    size_t n_tokens;
    const tpl_str *tokens; /* [n_tokens] */
    size_t n_types;        /* 0 or n_tokens */
    const int32_t *types;
    size_t n_scores; /* 0 or n_tokens */
    const float *scores;
    size_t n_merges;
    const tpl_str *merges;                                  /* "left right" */
    int64_t bos_id, eos_id, eot_id, eom_id, unk_id, pad_id; /* -1 = absent */
    int add_bos, add_eos, add_space_prefix;                 /* -1 = absent, else 0 or 1 */
    tpl_str chat_template;                                  /* empty = absent */
} tpl_vocab_source;

#define TPL_VOCAB_SOURCE_NONE \
    { .where = "",            \
      .bos_id = -1,           \
      .eos_id = -1,           \
      .eot_id = -1,           \
      .eom_id = -1,           \
      .unk_id = -1,           \
      .pad_id = -1,           \
      .add_bos = -1,          \
      .add_eos = -1,          \
      .add_space_prefix = -1 }

#endif
