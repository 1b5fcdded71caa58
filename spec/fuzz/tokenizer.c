/* SPDX-License-Identifier: Apache-2.0 */
#include "token/tokenizer.h"

#include "target.h"

tpl_status tpl_target_tokenizer(const uint8_t *data, size_t n, tpl_err *err)
{
    tpl_tokenizer *t;
    if (tpl_tokenizer_from_json(&t, (const char *)data, n, "tokenizer.json", err)) return tpl_check_refusal(err);
    tpl_use_tokenizer(t);
    tpl_tokenizer_free(t);
    return TPL_OK;
}
