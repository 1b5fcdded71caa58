/* SPDX-License-Identifier: Apache-2.0
 *
 * A borrowed, length-counted byte string: not necessarily NUL-terminated, may hold NUL bytes, need not be
 * UTF-8. Whoever hands one out says how long the bytes live. Any thread; owns nothing.
 */
#ifndef TPL_BASE_STR_H
#define TPL_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tpl_str {
    const char *s;
    size_t len;
} tpl_str;

/* Bytes of the UTF-8 sequence at s, 1..4, or 0 when it is not one (RFC 3629: no overlong forms, no
 * surrogates, <= U+10FFFF). */
static inline int tpl_utf8_len(const char *s, const char *end)
{
    const unsigned char *p = (const unsigned char *)s;
    int64_t left = end - s;
    if (left < 1) return 0;
    if (p[0] < 0x80) return 1;
    int n = p[0] >= 0xC2 && p[0] < 0xE0   ? 2
            : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
            : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                          : 0;
    if (!n || left < n) return 0;
    unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) return 0;
    for (int i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

#endif
