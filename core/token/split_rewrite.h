/* SPDX-License-Identifier: Apache-2.0
 *
 * From the regex dialect of tokenizer.json (Oniguruma, Ruby syntax, Unicode 16.0) to that of PCRE2: \s
 * becomes White_Space, \p{..} of a general category gets the characters assigned since PCRE2's Unicode
 * version, and constructs that mean something else in PCRE2 are refused by name (TPL_ERR_UNSUPPORTED).
 * Any thread.
 */
#ifndef TPL_TOKEN_SPLIT_REWRITE_H
#define TPL_TOKEN_SPLIT_REWRITE_H

#include "base/err.h"
#include "base/str.h"
#include "token/buf.h"

TPL_NODISCARD tpl_status tpl_split_rewrite(tpl_str pattern, tpl_buf *out, const char *where,
                                           tpl_err *err);

#endif
