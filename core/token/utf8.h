/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 of tokenizers: decoding of text known to be valid, and the lossy decoder for bytes that may not
 * be: one U+FFFD for each maximal invalid part (WHATWG Encoding standard, Rust's from_utf8_lossy,
 * Python's errors="replace"). The decoder is a state machine over bytes, so the result does not depend
 * on where a stream is cut. Functions without state: any thread.
 */
#ifndef TPL_TOKEN_UTF8_H
#define TPL_TOKEN_UTF8_H

#include <stdint.h>

#include "base/str.h"
#include "token/buf.h"

/* Decodes the character at s[*pos] of valid UTF-8 and moves *pos behind it. */
static inline uint32_t tpl_utf8_next(const char *s, size_t *pos)
{
    const unsigned char *p = (const unsigned char *)s + *pos;
    if (p[0] < 0x80) {
        *pos += 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *pos += 2;
        return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    }
    if (p[0] < 0xF0) {
        *pos += 3;
        return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    }
    *pos += 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

/* Start of the character that ends before s[pos], pos > 0, in valid UTF-8. */
static inline size_t tpl_utf8_prev(const char *s, size_t pos)
{
    do pos--;
    while (pos > 0 && ((unsigned char)s[pos] & 0xC0) == 0x80);
    return pos;
}

/* Writes c (a scalar value) and returns its bytes, 1..4. */
int tpl_utf8_put(char *s, uint32_t c);

/* Length of the longest prefix that is valid UTF-8. */
size_t tpl_utf8_valid(const char *s, size_t len);

typedef struct tpl_utf8_stream {
    char pending[4];
    uint8_t n_pending, n_missing; /* bytes kept, bytes that complete them; both 0 between characters */
    uint8_t low, high;            /* what the next byte may be */
} tpl_utf8_stream;

/* Appends to out what is complete after these bytes; false: no memory (state unchanged). */
bool tpl_utf8_push(tpl_utf8_stream *st, const char *s, size_t len, tpl_buf *out);
/* Appends one U+FFFD if bytes are pending, and resets. */
bool tpl_utf8_flush(tpl_utf8_stream *st, tpl_buf *out);

#endif
