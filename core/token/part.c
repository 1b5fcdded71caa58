/* SPDX-License-Identifier: Apache-2.0 */
#include "token/part.h"

#include <string.h>

tpl_status tpl_part_type(const json_t *json, const char *what, const char **type, const char *where,
                         tpl_err *err)
{
    const json_t *t = json_object_get(json, "type");
    *type = "";
    if (!json_is_object(json))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s is not an object", what);
    if (!json_is_string(t))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s has no string 'type'", what);
    *type = json_string_value(t);
    return TPL_OK;
}

tpl_status tpl_part_str(const json_t *json, const char *key, const char *what, tpl_str *out,
                        const char *where, tpl_err *err)
{
    const json_t *s = json_object_get(json, key);
    if (!json_is_string(s))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: '%s' is not a string", what, key);
    *out = tpl_part_text(s);
    return TPL_OK;
}

tpl_status tpl_part_bool(const json_t *json, const char *key, int fallback, const char *what, bool *out,
                         const char *where, tpl_err *err)
{
    const json_t *b = json_object_get(json, key);
    if ((!b || json_is_null(b)) && fallback >= 0) *out = fallback;
    else if (json_is_boolean(b)) *out = json_is_true(b);
    else return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: '%s' is not true or false", what, key);
    return TPL_OK;
}

tpl_status tpl_part_int(const json_t *json, const char *key, const char *what, int64_t *out,
                        const char *where, tpl_err *err)
{
    const json_t *n = json_object_get(json, key);
    if (!json_is_integer(n))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: '%s' is not an integer", what, key);
    *out = json_integer_value(n);
    return TPL_OK;
}

tpl_status tpl_part_pattern(const json_t *json, const char *what, tpl_str *out, bool *is_regex,
                            const char *where, tpl_err *err)
{
    const json_t *p = json_object_get(json, "pattern");
    const json_t *s = json_object_get(p, "String"), *r = json_object_get(p, "Regex");
    *is_regex = json_is_string(r);
    if (json_object_size(p) != 1 || (!json_is_string(s) && !*is_regex))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                        "%s: 'pattern' is not {\"String\": ..} or {\"Regex\": ..}", what);
    *out = tpl_part_text(*is_regex ? r : s);
    return TPL_OK;
}

tpl_status tpl_part_unknown(const char *what, const char *type, const char *where, tpl_err *err)
{
    tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "%s '%.60s' is not supported", what, type);
    tpl_hint(err, TPL_ERR_UNSUPPORTED,
             "a GGUF file of the same model may have a tokenizer that is supported");
    return TPL_ERR_UNSUPPORTED;
}

tpl_status tpl_part_too_deep(const char *what, const char *where, tpl_err *err)
{
    return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s is nested more than %d deep", what,
                    TPL_PART_NESTING_MAX);
}
