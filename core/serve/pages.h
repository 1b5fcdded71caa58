/* SPDX-License-Identifier: Apache-2.0
 *
 * The page allocator of one KV domain: a stack of free page numbers. All stages number their pages alike, so one
 * allocator serves a pipeline. Owner thread only; no allocation after new.
 */
#ifndef TPL_SERVE_PAGES_H
#define TPL_SERVE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tpl_pages tpl_pages;

/* shuffle: hand pages out in a seeded random order (TPL_PAGE_ORDER), so that tests see that order does not matter.
 * NULL: out of memory. */
tpl_pages *tpl_pages_new(uint32_t n, bool shuffle, uint64_t seed);
void tpl_pages_free(tpl_pages *p);
uint32_t tpl_pages_total(const tpl_pages *p);
uint32_t tpl_pages_left(const tpl_pages *p);
/* Takes n pages into out, or none when fewer are left. */
bool tpl_pages_take(tpl_pages *p, uint32_t n, uint32_t *out);
void tpl_pages_give(tpl_pages *p, uint32_t n, const uint32_t *pages);

#endif
