/* SPDX-License-Identifier: Apache-2.0 */
#include "model/names.h"

#include <stdlib.h>
#include <string.h>

/* The slot that holds the name, or the free one where it belongs. */
static uint32_t slot_of(const tpl_names *x, tpl_name_of name_of, const void *ctx, const char *s, size_t len)
{
    uint32_t at = (uint32_t)(tpl_hash_bytes(x->key, s, len) >> 20) & x->mask;
    for (; x->slots[at]; at = (at + 1) & x->mask) {
        tpl_str other = name_of(ctx, x->slots[at] - 1);
        if (other.len == len && !memcmp(other.s, s, len)) break;
    }
    return at;
}

tpl_names_result tpl_names_build(tpl_names *x, uint32_t n, tpl_name_of name_of, const void *ctx)
{
    uint32_t n_slots = 8;
    memset(x, 0, sizeof *x);
    while (n_slots / 4 * 3 < n) n_slots *= 2;
    x->slots = calloc(n_slots, sizeof *x->slots);
    if (!x->slots) return TPL_NAMES_NO_MEMORY;
    x->mask = n_slots - 1;
    x->key = tpl_hash_key_new();
    for (uint32_t i = 0; i < n; i++) {
        tpl_str name = name_of(ctx, i);
        uint32_t at = slot_of(x, name_of, ctx, name.s, name.len);
        if (x->slots[at]) {
            x->n_dup_first = x->slots[at] - 1;
            x->n_dup_second = i;
            return TPL_NAMES_DUPLICATE;
        }
        x->slots[at] = i + 1;
    }
    return TPL_NAMES_OK;
}

int64_t tpl_names_find(const tpl_names *x, tpl_name_of name_of, const void *ctx, const char *s, size_t len)
{
    if (!x->slots) return -1;
    return (int64_t)x->slots[slot_of(x, name_of, ctx, s, len)] - 1;
}

void tpl_names_free(tpl_names *x)
{
    free(x->slots);
    x->slots = NULL;
}
