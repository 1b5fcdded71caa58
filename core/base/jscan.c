/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jscan.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

tpl_status tpl_jscan_fail(const tpl_jscan *s, tpl_err *err, const char *fmt, ...)
{
    char msg[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return tpl_fail(err, TPL_ERR_FORMAT, 0,
                    tpl_where_offset(s->name, s->base + (uint64_t)(s->p - s->start)).s, "%s", msg);
}

int tpl_jscan_peek(tpl_jscan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) s->p++;
    return s->p < s->end ? (unsigned char)*s->p : 0;
}

tpl_status tpl_jscan_eat(tpl_jscan *s, char c, tpl_err *err)
{
    if (tpl_jscan_peek(s) != c || s->p == s->end)
        return tpl_jscan_fail(s, err, "no valid JSON: expected '%c'", c);
    s->p++;
    return TPL_OK;
}

/* -- Strings ---- */

static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static char *put_utf8(char *q, int c)
{
    if (c < 0x80) {
        *q++ = (char)c;
    } else if (c < 0x800) {
        *q++ = (char)(0xC0 | c >> 6);
        *q++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *q++ = (char)(0xE0 | c >> 12);
        *q++ = (char)(0x80 | (c >> 6 & 63));
        *q++ = (char)(0x80 | (c & 63));
    } else {
        *q++ = (char)(0xF0 | c >> 18);
        *q++ = (char)(0x80 | (c >> 12 & 63));
        *q++ = (char)(0x80 | (c >> 6 & 63));
        *q++ = (char)(0x80 | (c & 63));
    }
    return q;
}

/* s->p stands after the backslash. Writes at *q what the escape means, never more bytes than it took. */
static bool unescape(tpl_jscan *s, char **q)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end) return false;
    char c = *s->p++;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        *(*q)++ = to[at - from];
        return true;
    }
    int u = c == 'u' ? hex4(s->p, s->end) : -1;
    if (u < 0) return false;
    s->p += 4;
    if (u >= 0xDC00 && u < 0xE000) return false;
    if (u >= 0xD800 && u < 0xDC00) {
        int low = s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u' ? hex4(s->p + 2, s->end) : -1;
        if (low < 0xDC00 || low >= 0xE000) return false;
        s->p += 6;
        u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
    }
    *q = put_utf8(*q, u);
    return true;
}

tpl_status tpl_jscan_string(tpl_jscan *s, tpl_str *out, tpl_err *err)
{
    TPL_TRY(tpl_jscan_eat(s, '"', err));
    char *start = s->p, *q = s->p;
    for (;;) {
        if (s->p == s->end) return tpl_jscan_fail(s, err, "no valid JSON: a string does not end");
        unsigned char c = (unsigned char)*s->p;
        if (c == '"') break;
        if (c < 0x20) return tpl_jscan_fail(s, err, "no valid JSON: control character in a string");
        if (c == '\\') {
            s->p++;
            if (!unescape(s, &q)) return tpl_jscan_fail(s, err, "no valid JSON: bad escape in a string");
        } else {
            int n = tpl_utf8_len(s->p, s->end);
            if (!n) return tpl_jscan_fail(s, err, "no valid JSON: a string is not UTF-8");
            while (n--) *q++ = *s->p++;
        }
    }
    s->p++;
    *q = 0; /* at the latest on the closing quote */
    *out = (tpl_str){ start, (size_t)(q - start) };
    return TPL_OK;
}

/* -- Other values ---- */

tpl_status tpl_jscan_uint(tpl_jscan *s, uint64_t *out, tpl_err *err)
{
    int64_t v = 0;
    tpl_jscan_peek(s);
    char *from = s->p;
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s->p - '0', &v))
            return tpl_jscan_fail(s, err, "size overflow: a number of 2^63 or more");
    bool plain = s->p > from && (s->p - from == 1 || *from != '0');
    if (!plain || (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E')))
        return tpl_jscan_fail(s, err, "expected an integer of 0 or more");
    *out = (uint64_t)v;
    return TPL_OK;
}

static bool skip_quoted(tpl_jscan *s)
{
    for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
        if (*s->p == '\\') s->p++;
    if (s->p >= s->end) {
        s->p = s->end;
        return false;
    }
    s->p++;
    return true;
}

tpl_status tpl_jscan_skip(tpl_jscan *s, tpl_str *out, tpl_err *err)
{
    uint64_t depth = 0;
    tpl_jscan_peek(s);
    char *from = s->p;
    while (s->p < s->end) {
        char c = *s->p;
        if (c == '"') {
            if (!skip_quoted(s)) break;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
            *out = (tpl_str){ from, (size_t)(s->p - from) };
            return TPL_OK;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        s->p++;
    }
    return tpl_jscan_fail(s, err, "no valid JSON: the text ends inside a value");
}

tpl_status tpl_jscan_next(tpl_jscan *s, char close, uint32_t *n, bool *more, tpl_err *err)
{
    int c = tpl_jscan_peek(s);
    *more = c != close;
    if (!*more) {
        s->p++;
        return TPL_OK;
    }
    if (*n) TPL_TRY(tpl_jscan_eat(s, ',', err));
    ++*n;
    return TPL_OK;
}

tpl_status tpl_jscan_key(tpl_jscan *s, tpl_str *out, tpl_err *err)
{
    TPL_TRY(tpl_jscan_string(s, out, err));
    return tpl_jscan_eat(s, ':', err);
}
