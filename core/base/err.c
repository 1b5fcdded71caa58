/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* Names out of files may hold anything, and "%.60s" may end inside a character. */
static void one_line(char *s)
{
    const char *end = s + strlen(s);
    while (s < end) {
        int n = tpl_utf8_len(s, end);
        if (!n) *s = '?';
        else if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = ' ';
        s += n ? n : 1;
    }
}

tpl_status tpl_fail(tpl_err *err, tpl_status code, int sys, const char *where, const char *fmt, ...)
{
    va_list ap;
    if (!err || err->code) return code;
    err->code = code;
    err->sys = sys;
    err->hint[0] = 0;
    snprintf(err->where, sizeof err->where, "%s", where ? where : "");
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    one_line(err->where);
    one_line(err->msg);
    return code;
}

tpl_status tpl_hint(tpl_err *err, tpl_status code, const char *fmt, ...)
{
    va_list ap;
    if (!err) return code;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
    one_line(err->hint);
    return err->code;
}

const char *tpl_status_name(tpl_status code)
{
    static const char *const names[] = { "ok", "arg", "mem", "io", "format", "unsupported", "device", "comm", "canceled" };
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "unknown";
}
