/* SPDX-License-Identifier: Apache-2.0
 *
 * A keyed hash for tables whose keys come out of files. The key is random, so that nobody can choose keys which fall into one slot and
 * make a table slow (reliability.md A11). Order of slots is never shown. Any thread.
 */
#ifndef TPL_BASE_HASH_H
#define TPL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct tpl_hash_key {
    uint64_t k[2];
} tpl_hash_key;

tpl_hash_key tpl_hash_key_new(void);

static inline uint64_t tpl_hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline uint64_t tpl_hash_u64(tpl_hash_key key, uint64_t x)
{
    return tpl_hash_fold(x ^ key.k[0], key.k[1] | 1);
}

/* Multiply and fold over 8-byte words, both factors keyed. */
static inline uint64_t tpl_hash_bytes(tpl_hash_key key, const char *s, size_t len)
{
    uint64_t h = tpl_hash_fold(key.k[0] ^ len, key.k[1] | 1), w;
    for (; len >= 8; s += 8, len -= 8) {
        memcpy(&w, s, 8);
        h = tpl_hash_fold(h ^ w ^ key.k[0], key.k[1] ^ h << 1);
    }
    w = 0;
    if (len) memcpy(&w, s, len);
    return tpl_hash_fold(h ^ w ^ key.k[1], key.k[0] | 1);
}

#endif
