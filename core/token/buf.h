/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing byte string, for texts that are rewritten on their way to ids and back. Owner thread;
 * zero-initialise, free() with tpl_buf_free. Appending returns false when memory is short and leaves the
 * contents alone.
 */
#ifndef TPL_TOKEN_BUF_H
#define TPL_TOKEN_BUF_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"

typedef struct tpl_buf {
    char *s;
    size_t len, cap;
} tpl_buf;

static inline bool tpl_buf_reserve(tpl_buf *b, size_t more)
{
    uint64_t need, cap;
    if (more <= b->cap - b->len) return true;
    if (!ck_add(b->len, more, &need) || !ck_add(need, need / 2 + 64, &cap)) return false;
    char *s = realloc(b->s, cap);
    if (!s) return false;
    b->s = s;
    b->cap = cap;
    return true;
}

static inline bool tpl_buf_add(tpl_buf *b, const char *s, size_t len)
{
    if (!tpl_buf_reserve(b, len)) return false;
    if (len) memcpy(b->s + b->len, s, len);
    b->len += len;
    return true;
}

static inline void tpl_buf_free(tpl_buf *b)
{
    free(b->s);
    *b = (tpl_buf){ 0 };
}

/* Makes room for `need` items of a plain array, half as much again; false: no memory, nothing changed.
 */
static inline bool tpl_grow(void **items, size_t *cap, size_t need, size_t item_bytes)
{
    uint64_t more, bytes;
    if (need <= *cap) return true;
    if (!ck_add(need, need / 2, &more) || !ck_mul(more, item_bytes, &bytes)) return false;
    void *p = realloc(*items, bytes);
    if (!p) return false;
    *items = p;
    *cap = more;
    return true;
}

#endif
