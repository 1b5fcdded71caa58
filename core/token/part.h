/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading of tokenizer.json's components: typed members with errors that name the component. Borrowed
 * strings live as long as the document. While loading, one thread.
 */
#ifndef TPL_TOKEN_PART_H
#define TPL_TOKEN_PART_H

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

/* Sequences in sequences; published files have one level. */
#define TPL_PART_NESTING_MAX 8

/* The "type" of a component, which must be an object. */
TPL_NODISCARD tpl_status tpl_part_type(const json_t *json, const char *what, const char **type,
                                       const char *where, tpl_err *err);
/* A string member that must be there. */
TPL_NODISCARD tpl_status tpl_part_str(const json_t *json, const char *key, const char *what,
                                      tpl_str *out, const char *where, tpl_err *err);
/* A boolean member; fallback 0 or 1 when absent or null, -1: it must be there. */
TPL_NODISCARD tpl_status tpl_part_bool(const json_t *json, const char *key, int fallback,
                                       const char *what, bool *out, const char *where, tpl_err *err);
/* An integer member that must be there. */
TPL_NODISCARD tpl_status tpl_part_int(const json_t *json, const char *key, const char *what,
                                      int64_t *out, const char *where, tpl_err *err);
/* "pattern": {"String": ..} or {"Regex": ..} */
TPL_NODISCARD tpl_status tpl_part_pattern(const json_t *json, const char *what, tpl_str *out,
                                          bool *is_regex, const char *where, tpl_err *err);
/* The failures: a component that is not known, and one nested too deeply. */
tpl_status tpl_part_unknown(const char *what, const char *type, const char *where, tpl_err *err);
tpl_status tpl_part_too_deep(const char *what, const char *where, tpl_err *err);

static inline tpl_str tpl_part_text(const json_t *s)
{
    return (tpl_str){ json_string_value(s), json_string_length(s) };
}

#endif
