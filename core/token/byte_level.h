/* SPDX-License-Identifier: Apache-2.0
 *
 * The alphabet of byte-level BPE (GPT-2): every byte is written as one printable character. Bytes
 * 33-126, 161-172 and 174-255 are themselves, the other 68 follow in ascending order from U+0100 on. Any
 * thread.
 */
#ifndef TPL_TOKEN_BYTE_LEVEL_H
#define TPL_TOKEN_BYTE_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

/* The character of a byte. */
static inline uint32_t tpl_byte_level_char(uint8_t b)
{
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174) return b;
    if (b <= 32) return 0x100u + b;
    return b == 173 ? 0x100 + 67 : 0x100u + 33 + (b - 127u); /* 127..160 -> 33..66, 173 -> 67 */
}

/* The byte of a character, or -1. */
static inline int tpl_byte_level_byte(uint32_t c)
{
    if (c < 0x100) return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174 ? (int)c : -1;
    uint32_t n = c - 0x100;
    return n <= 32 ? (int)n : n <= 66 ? (int)(n - 33 + 127) : n == 67 ? 173 : -1;
}

#endif
