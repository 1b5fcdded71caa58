/* SPDX-License-Identifier: Apache-2.0
 *
 * Post-processors of tokenizer.json, as what they come to for one text: ids in front and ids behind.
 * Known: TemplateProcessing, ByteLevel (moves offsets only), RobertaProcessing, BertProcessing,
 * Sequence; any other is TPL_ERR_UNSUPPORTED by name. Built while loading, then any thread.
 */
#ifndef TPL_TOKEN_POST_H
#define TPL_TOKEN_POST_H

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

#define TPL_POST_MAX 16

typedef struct tpl_post {
    int n_front, n_back;
    int32_t front[TPL_POST_MAX], back[TPL_POST_MAX];
} tpl_post;

/* json: the "post_processor" member, NULL or null for none. */
TPL_NODISCARD tpl_status tpl_post_from_json(tpl_post *p, const json_t *json, const char *where,
                                            tpl_err *err);
/* Puts one more id around what is there. */
TPL_NODISCARD tpl_status tpl_post_add_front(tpl_post *p, int64_t id, const char *where, tpl_err *err);
TPL_NODISCARD tpl_status tpl_post_add_back(tpl_post *p, int64_t id, const char *where, tpl_err *err);

#endif
