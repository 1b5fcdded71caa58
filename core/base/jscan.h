/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict pull scanner for JSON of known shape: the header of a safetensors file and the index of its shards
 * may hold a million entries, for which a tree would take a kilobyte each and reliability.md (C-FILE, A11)
 * allows 64 bytes. It works in place: strings are unescaped where they stand and end in NUL, so the buffer
 * must be writable and outlive the results. One thread per scanner.
 */
#ifndef TPL_BASE_JSCAN_H
#define TPL_BASE_JSCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct tpl_jscan {
    char *start, *p, *end;
    uint64_t base;    /* file offset of start, for messages */
    const char *name; /* of the file */
} tpl_jscan;

/* Fails with `where` = "name:offset" of the present position. */
tpl_status tpl_jscan_fail(const tpl_jscan *s, tpl_err *err, const char *fmt, ...) TPL_PRINTF(3, 4);

/* The next character that is not white space, 0 at the end; it is not taken. */
int tpl_jscan_peek(tpl_jscan *s);
/* Takes the character c, after white space. */
TPL_NODISCARD tpl_status tpl_jscan_eat(tpl_jscan *s, char c, tpl_err *err);
/* A string: valid UTF-8, no raw control characters, no lone surrogates. May hold NUL (from an escape). */
TPL_NODISCARD tpl_status tpl_jscan_string(tpl_jscan *s, tpl_str *out, tpl_err *err);
/* An integer 0 <= *out < 2^63 without fraction or exponent. */
TPL_NODISCARD tpl_status tpl_jscan_uint(tpl_jscan *s, uint64_t *out, tpl_err *err);
/* Any value, by its brackets and strings only: *out is its text, for tpl_json_parse to judge. */
TPL_NODISCARD tpl_status tpl_jscan_skip(tpl_jscan *s, tpl_str *out, tpl_err *err);

/* Walks the members of an object or array whose opening bracket was taken: call it before each member, with
 * *n = 0 first. *more is false when `close` was taken instead; *n counts the members. */
TPL_NODISCARD tpl_status tpl_jscan_next(tpl_jscan *s, char close, uint32_t *n, bool *more, tpl_err *err);
/* A member's name and its colon. */
TPL_NODISCARD tpl_status tpl_jscan_key(tpl_jscan *s, tpl_str *out, tpl_err *err);

#endif
