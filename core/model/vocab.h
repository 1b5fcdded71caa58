/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary in a GGUF file's tokenizer.* keys as base/vocab.h's struct, which bind hands to core/token. The spellings point into
 * the checkpoint, so it must outlive the struct; lists are owned by it. One thread.
 */
#ifndef TPL_MODEL_VOCAB_H
#define TPL_MODEL_VOCAB_H

#include "base/vocab.h"
#include "model/checkpoint.h"

typedef struct tpl_checkpoint_vocab {
    tpl_vocab_source source; /* n_tokens 0: the file has no vocabulary */
    void *lists[4];
} tpl_checkpoint_vocab;

/* `where` names the file in messages and is borrowed. A key of the wrong type: TPL_ERR_FORMAT. After a failure there is nothing to free. */
TPL_NODISCARD tpl_status tpl_checkpoint_vocab_read(tpl_checkpoint_vocab *out, const tpl_checkpoint *cp, const char *where,
                                                   tpl_err *err);
void tpl_checkpoint_vocab_free(tpl_checkpoint_vocab *v);

#endif
