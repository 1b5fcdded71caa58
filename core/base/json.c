/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "base/file.h"

/* -- Before the parser ----
 *
 * Jansson recurses once per level and refuses integers outside int64, which Python's json reads. One pass
 * over the text bounds the first and counts the second; those integers get "e0" appended in a copy, which
 * makes them reals of the same value. A value takes some 50 bytes of memory and may be written with two, so
 * the pass also refuses a text that is denser than any real one. */

/* Values that any text may have; more come with its length. Token lists of tokenizer.json have one in 4 bytes or more. */
#define VALUES_FREE 200000
#define BYTES_PER_VALUE 3

typedef struct survey {
    uint64_t n_big;    /* integers outside int64 */
    uint64_t n_values; /* at least as many as there are */
    int depth;         /* deepest nesting */
    int line;          /* where max_depth was passed, 0 if it was not */
} survey;

static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\') p++;
    return p < end ? p + 1 : end;
}

/* p stands on a digit or '-'. Sets *big for an integer that int64 cannot hold. */
static const char *skip_number(const char *p, const char *end, bool *big)
{
    bool negative = *p == '-', integer = true, fits = true;
    int64_t v = 0;
    for (p += negative; p < end; p++) {
        if (*p == '.' || *p == 'e' || *p == 'E' || *p == '+' || *p == '-') {
            integer = false;
        } else if (*p >= '0' && *p <= '9') {
            int64_t digit = negative ? -(*p - '0') : *p - '0';
            fits = fits && !__builtin_mul_overflow(v, 10, &v) && !__builtin_add_overflow(v, digit, &v);
        } else {
            break;
        }
    }
    *big = integer && !fits;
    return p;
}

static survey look_over(const char *p, const char *end, int max_depth)
{
    survey s = { 0 };
    int depth = 0, line = 1;
    while (p < end) {
        bool big = false;
        if (*p == '"') {
            p = skip_string(p, end);
            continue;
        }
        if (*p == '-' || (*p >= '0' && *p <= '9')) {
            p = skip_number(p, end, &big);
            s.n_big += big;
            continue;
        }
        if (*p == '\n') line++;
        if (*p == '[' || *p == '{') depth++;
        if (*p == '[' || *p == '{' || *p == ',') s.n_values++;
        if (*p == ']' || *p == '}') depth--;
        if (depth > s.depth) s.depth = depth;
        if (depth > max_depth) {
            s.line = line;
            return s;
        }
        p++;
    }
    return s;
}

static char *with_reals(const char *p, size_t len, uint64_t n_big, size_t *out_len)
{
    const char *end = p + len;
    uint64_t extra, total;
    char *buf = ck_mul(n_big, 2, &extra) && ck_add(len, extra, &total) ? malloc(total) : NULL;
    char *q = buf;
    while (buf && p < end) {
        const char *from = p;
        bool big = false;
        if (*p == '"')
            p = skip_string(p, end);
        else if (*p == '-' || (*p >= '0' && *p <= '9'))
            p = skip_number(p, end, &big);
        else
            p++;
        memcpy(q, from, (size_t)(p - from));
        q += p - from;
        if (big) *q++ = 'e', *q++ = '0';
    }
    *out_len = (size_t)(q - buf);
    return buf;
}

/* -- Parsing ---- */

/* "name:line", and nothing for a text without a name. */
static tpl_where where_line(const char *name, int line)
{
    return *name ? tpl_where_offset(name, line > 0 ? (uint64_t)line : 1) : (tpl_where){ "" };
}

static tpl_status parse_failed(const json_error_t *e, const char *name, tpl_err *err)
{
    /* Without memory Jansson 2.14 mostly fails without a word. */
    if (json_error_code(e) == json_error_out_of_memory || !e->text[0])
        return tpl_fail(err, TPL_ERR_MEM, 0, name, "out of memory");
    return tpl_fail(err, TPL_ERR_FORMAT, 0, where_line(name, e->line).s,
                    "no valid JSON in line %d column %d: %s", e->line, e->column, e->text);
}

tpl_status tpl_json_parse(json_t **out, const char *text, size_t len, int max_depth, const char *name,
                          tpl_err *err)
{
    json_error_t e;
    char *copy = NULL;
    *out = NULL;
    if (max_depth == 0) max_depth = TPL_JSON_DEPTH;
    if (max_depth < 1 || max_depth > 512)
        return tpl_fail(err, TPL_ERR_ARG, 0, name, "JSON depth %d, expected 1 to 512", max_depth);
    survey s = look_over(text, text + len, max_depth);
    if (s.line) {
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where_line(name, s.line).s,
                        "JSON nested more than %d levels deep in line %d", max_depth, s.line);
    }
    if (s.n_values > VALUES_FREE && (s.n_values - VALUES_FREE) > len / BYTES_PER_VALUE)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where_line(name, 1).s, "JSON of %" PRIu64 " values in %zu bytes, which are too many",
                        s.n_values, len);
    if (s.n_big) {
        copy = with_reals(text, len, s.n_big, &len);
        if (!copy) return tpl_fail(err, TPL_ERR_MEM, 0, name, "out of memory");
        text = copy;
    }
    *out = json_loadb(text, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    free(copy);
    return *out ? TPL_OK : parse_failed(&e, name, err);
}

tpl_status tpl_json_load(json_t **out, const char *path, uint64_t max_bytes, tpl_err *err)
{
    char *text;
    size_t len;
    *out = NULL;
    TPL_TRY(tpl_file_load(path, max_bytes, &text, &len, err));
    tpl_status st = tpl_json_parse(out, text, len, 0, path, err);
    free(text);
    return st;
}

/* -- Members ---- */

bool tpl_json_has(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v);
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = { "an object",     "an array", "a string", "an integer",
                                         "a real number", "true",     "false",    "null" };
    return v ? names[json_typeof(v)] : "missing";
}

static tpl_status wrong(const json_t *v, const char *key, const char *name, const char *expected,
                        tpl_err *err)
{
    tpl_where w = tpl_where_key(name, key);
    return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "'%s' is %s, expected %s", key, type_name(v), expected);
}

tpl_status tpl_json_int(const json_t *obj, const char *key, const char *name, int64_t min, int64_t max,
                        int64_t *out, tpl_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_integer(v)) return wrong(v, key, name, "an integer", err);
    int64_t x = json_integer_value(v);
    if (x < min || x > max) {
        tpl_where w = tpl_where_key(name, key);
        return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "'%s' is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                        key, x, min, max);
    }
    *out = x;
    return TPL_OK;
}

tpl_status tpl_json_num(const json_t *obj, const char *key, const char *name, double *out, tpl_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_number(v)) return wrong(v, key, name, "a number", err);
    *out = json_number_value(v);
    return TPL_OK;
}

tpl_status tpl_json_bool(const json_t *obj, const char *key, const char *name, bool *out, tpl_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_boolean(v)) return wrong(v, key, name, "true or false", err);
    *out = json_is_true(v);
    return TPL_OK;
}

tpl_status tpl_json_str(const json_t *obj, const char *key, const char *name, tpl_str *out, tpl_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_string(v)) return wrong(v, key, name, "a string", err);
    *out = (tpl_str){ json_string_value(v), json_string_length(v) };
    return TPL_OK;
}

tpl_status tpl_json_obj(const json_t *obj, const char *key, const char *name, json_t **out, tpl_err *err)
{
    *out = json_object_get(obj, key);
    return json_is_object(*out) ? TPL_OK : wrong(*out, key, name, "an object", err);
}

tpl_status tpl_json_arr(const json_t *obj, const char *key, const char *name, json_t **out, tpl_err *err)
{
    *out = json_object_get(obj, key);
    return json_is_array(*out) ? TPL_OK : wrong(*out, key, name, "an array", err);
}

/* -- Numbers as text ----
 *
 * A correctly rounded %.15g restores every decimal of up to 15 digits (DBL_DIG) unless x is subnormal, so the
 * search may start there; 17 digits always read back (IEEE 754, 5.12.2). */

tpl_num_text tpl_json_shortest(double x)
{
    tpl_num_text t;
    for (int digits = fabs(x) < 1e-290 ? 1 : 15; digits <= 17; digits++) {
        snprintf(t.s, sizeof t.s, "%.*g", digits, x);
        if (strtod(t.s, NULL) == x) break;
    }
    return t;
}

tpl_num_text tpl_json_pyrepr(double x)
{
    tpl_num_text t = { "nan" };
    if (isnan(x)) return t;
    if (isinf(x)) {
        snprintf(t.s, sizeof t.s, "%s", x < 0 ? "-inf" : "inf");
        return t;
    }
    t = tpl_json_shortest(x);
    /* repr writes an exponent from 1e16 on, %g already from the number of digits on: print those
     * positionally. */
    if (strchr(t.s, 'e') && fabs(x) >= 1 && fabs(x) < 1e16) snprintf(t.s, sizeof t.s, "%.0f", x);
    /* 17 significant digits and a value of 1e16 or more: %g writes it positionally, repr with an exponent. */
    if (!strchr(t.s, 'e') && fabs(x) >= 1e16) {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(t.s, sizeof t.s, "%.*e", digits - 1, x);
            if (strtod(t.s, NULL) == x) break;
        }
    }
    size_t n = strlen(t.s);
    if (!strpbrk(t.s, ".e")) snprintf(t.s + n, sizeof t.s - n, ".0");
    return t;
}
