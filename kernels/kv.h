/* SPDX-License-Identifier: Apache-2.0
 *
 * The paged KV cache of one layer on one rank, as kernels and tests see it (layout: tpl_kv_pool in ops.h). Any
 * thread, except that tpl_kv_poison wants the page to itself.
 */
#ifndef TPL_KERNELS_KV_H
#define TPL_KERNELS_KV_H

#include "kernels/ops.h"

/* Elements from k (or v) to position `in_page` of page `page`, kv head `head`. */
static inline int64_t tpl_kv_at(const tpl_kv_pool *kv, int64_t page, int head, int in_page)
{
    return ((page * kv->kvh + head) * kv->page + in_page) * kv->hd;
}

/* Fills a page with NaN: a debug build does so to pages that nobody owns, so that reading one shows. */
void tpl_kv_poison(const tpl_kv_pool *kv, int64_t page);

/* Whether the op's cache is there, in a type the kernels read, with these heads. */
tpl_status tpl_kv_check(const tpl_bound *op, int64_t kvh, int64_t hd, tpl_err *err);

#endif
