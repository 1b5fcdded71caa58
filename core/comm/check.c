/* SPDX-License-Identifier: Apache-2.0
 *
 * What a collective must satisfy before it is run; the messages name it and the numbers that disagree.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/ck.h"
#include "comm/comm.h"

const char *tpl_coll_kind_name(tpl_coll_kind kind)
{
    static const char *const names[] = { "all_reduce", "reduce_scatter", "all_gather",
                                         "all_to_all", "gather",         "barrier" };
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

#define BAD(...) tpl_fail(err, TPL_ERR_ARG, 0, c->name ? c->name : "", __VA_ARGS__)

static bool product(int64_t a, int64_t b, int64_t d, int64_t *out)
{
    uint64_t r;
    if (a < 0 || b < 0 || d < 0) return false;
    if (!ck_mul((uint64_t)a, (uint64_t)b, &r) || !ck_mul(r, (uint64_t)d, &r) || r > INT64_MAX / 4)
        return false;
    *out = (int64_t)r;
    return true;
}

/* Columns that a member holds, and the width of a whole row. */
static tpl_status part_cols(const tpl_coll *c, const tpl_coll_part *p, int member, int64_t *cols,
                            int64_t *width, tpl_err *err)
{
    if (p->outer < 1 || p->n < 1 || p->inner < 1 || !product(p->outer, p->n, p->inner, width))
        return BAD("dims %" PRId64 " x %" PRId64 " x %" PRId64 " are not positive or too large", p->outer,
                   p->n, p->inner);
    const tpl_index *x = p->index[member];
    int64_t total = 0;
    for (int32_t r = 0; r < x->n; r++) {
        tpl_range g = x->ranges[r];
        if (g.first < 0 || g.count < 0 || g.first > p->n || g.count > p->n - g.first)
            return BAD("member %d holds entries %" PRId64 " + %" PRId64 " of a dim of %" PRId64, member,
                       g.first, g.count, p->n);
        total += g.count;
    }
    if (total != x->total)
        return BAD("member %d holds %" PRId64 " entries, its list says %" PRId64, member, total, x->total);
    if (!product(p->outer, total, p->inner, cols)) return BAD("member %d: too many columns", member);
    return TPL_OK;
}

/* Every entry is held by at least one member. */
static tpl_status covered(const tpl_coll *c, const tpl_coll_part *p, int size, tpl_err *err)
{
    unsigned char *seen = calloc((size_t)p->n, 1);
    if (!seen) return tpl_fail(err, TPL_ERR_MEM, 0, c->name, "out of memory");
    for (int m = 0; m < size; m++)
        for (int32_t r = 0; r < p->index[m]->n; r++)
            for (int64_t i = 0; i < p->index[m]->ranges[r].count; i++)
                seen[p->index[m]->ranges[r].first + i] = 1;
    int64_t gap = 0;
    while (gap < p->n && seen[gap]) gap++;
    free(seen);
    return gap < p->n ? BAD("no member of %d holds entry %" PRId64 " of %" PRId64, size, gap, p->n) : TPL_OK;
}

static tpl_status rows_divide(const tpl_coll *c, int size, tpl_err *err)
{
    return c->rows % size ? BAD("%" PRId64 " rows cannot be cut in %d equal pieces", c->rows, size) : TPL_OK;
}

/* One side: columns given by lists, or cut rows that keep their width. Sets what the member's columns and
 * the width must be. */
static tpl_status check_side(const tpl_coll *c, const tpl_coll_part *p, int size, int index, int64_t *cols,
                             int64_t *width, tpl_err *err)
{
    if (!p->index) {
        *width = *cols;
        return rows_divide(c, size, err);
    }
    for (int m = 0; m < size; m++) {
        int64_t held = 0;
        TPL_TRY(part_cols(c, p, m, &held, width, err));
        if (m == index && held != *cols)
            return BAD("a row here has %" PRId64 " columns, the index list gives %" PRId64, *cols, held);
    }
    return TPL_OK;
}

tpl_status tpl_coll_check(const tpl_coll *c, int size, int index, tpl_err *err)
{
    int64_t in_cols = c->in_cols, out_cols = c->out_cols, from = in_cols, to = out_cols, bytes;
    if (c->kind == TPL_COLL_BARRIER) return TPL_OK;
    if (!product(c->rows, in_cols, 4, &bytes) || !product(c->rows, out_cols, 4, &bytes))
        return BAD("negative or too large a size");
    if (c->kind == TPL_COLL_ALL_GATHER || c->kind == TPL_COLL_GATHER || c->kind == TPL_COLL_ALL_TO_ALL) {
        TPL_TRY(check_side(c, &c->from, size, index, &in_cols, &from, err));
        if (c->from.index) TPL_TRY(covered(c, &c->from, size, err));
    }
    if (c->kind == TPL_COLL_REDUCE_SCATTER || c->kind == TPL_COLL_ALL_TO_ALL)
        TPL_TRY(check_side(c, &c->to, size, index, &out_cols, &to, err));
    if (c->kind == TPL_COLL_GATHER && index != 0) return TPL_OK; /* only the root has an out */
    if (from != to)
        return BAD("whole rows have %" PRId64 " columns on one side, %" PRId64 " on the other", from, to);
    return TPL_OK;
}
