/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/pages.h"

#include <stdlib.h>
#include <string.h>

struct tpl_pages {
    uint32_t total, left;
    uint32_t stack[]; /* stack[0 .. left) are free */
};

/* SplitMix64 (Steele, Lea, Flood 2014), for shuffling only. */
static uint64_t next_random(uint64_t *s)
{
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

tpl_pages *tpl_pages_new(uint32_t n, bool shuffle, uint64_t seed)
{
    tpl_pages *p = malloc(sizeof *p + (size_t)n * sizeof *p->stack);
    if (!p) return NULL;
    p->total = p->left = n;
    for (uint32_t i = 0; i < n; i++) p->stack[i] = n - 1 - i;
    for (uint32_t i = n; shuffle && i > 1; i--) {
        uint32_t j = (uint32_t)(next_random(&seed) % i), t = p->stack[i - 1];
        p->stack[i - 1] = p->stack[j];
        p->stack[j] = t;
    }
    return p;
}

void tpl_pages_free(tpl_pages *p)
{
    free(p);
}

uint32_t tpl_pages_total(const tpl_pages *p)
{
    return p->total;
}

uint32_t tpl_pages_left(const tpl_pages *p)
{
    return p->left;
}

bool tpl_pages_take(tpl_pages *p, uint32_t n, uint32_t *out)
{
    if (n > p->left) return false;
    for (uint32_t i = 0; i < n; i++) out[i] = p->stack[--p->left];
    return true;
}

void tpl_pages_give(tpl_pages *p, uint32_t n, const uint32_t *pages)
{
    memcpy(p->stack + p->left, pages, n * sizeof *pages);
    p->left += n;
}
