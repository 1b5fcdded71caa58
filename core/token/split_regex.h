/* SPDX-License-Identifier: Apache-2.0
 *
 * Regexes of tokenizer.json, which are written for Oniguruma with Ruby syntax, run by PCRE2 (UTF, UCP,
 * JIT). Where the two dialects differ the pattern is rewritten (\s, multi-line anchors) or refused by
 * name; matching is bounded in steps and memory. Character properties are those of the PCRE2 library
 * (Unicode 14 in Debian 12): the patterns that matter have hand-written scanners in scan.h. A tpl_regex
 * is read by any thread; a tpl_regex_work belongs to one call.
 */
#ifndef TPL_TOKEN_SPLIT_REGEX_H
#define TPL_TOKEN_SPLIT_REGEX_H

#include "base/err.h"
#include "base/str.h"

typedef struct tpl_regex tpl_regex;
typedef struct tpl_regex_work tpl_regex_work;

TPL_NODISCARD tpl_status tpl_regex_new(tpl_regex **out, tpl_str pattern, const char *where,
                                       tpl_err *err);
void tpl_regex_free(tpl_regex *re);

/* The leftmost match in s[from..len) of valid UTF-8; *start = *end = SIZE_MAX when there is none. *work
 * is made on first use, for the caller to free once. */
TPL_NODISCARD tpl_status tpl_regex_find(const tpl_regex *re, tpl_regex_work **work, tpl_str text,
                                        size_t from, size_t *start, size_t *end, tpl_err *err);
void tpl_regex_work_free(tpl_regex_work *work);

#endif
