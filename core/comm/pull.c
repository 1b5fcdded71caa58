/* SPDX-License-Identifier: Apache-2.0
 *
 * All collectives are one thing here: `out` is a set of runs of the whole value, and each run is either the
 * sum over all members (all_reduce, reduce_scatter) or lies in pieces with members that hold parts
 * (all_gather, gather, all_to_all).
 *
 *   whole row   |0 ................................ width|   columns [outer][n][inner]
 *   out run          |x ............... x + len|             at column y of a row of out
 *   held by          | member 2  | member 0    |             pieces, found one by one, copied for all rows
 *
 * Where rows are cut and columns are not, all is contiguous, and the matrix is treated as one long row. Sums
 * add in member order 0..n-1 for each element, so neither the shares of the threads nor the phases change a
 * bit.
 */
#include "comm/pull_priv.h"

#include <string.h>

enum { LINE_FLOATS = 16 };

tpl_span tpl_span_of(int64_t n, int ith, int nth)
{
    int64_t lines = (n + LINE_FLOATS - 1) / LINE_FLOATS;
    tpl_span s = { lines * ith / nth * LINE_FLOATS, lines * (ith + 1) / nth * LINE_FLOATS };
    if (s.begin > n) s.begin = n;
    if (s.end > n) s.end = n;
    return s;
}

/* -- Sums ------------------------------------------------------------------------------------------------ */

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));

/* out[0..len) = in[0][at..] + in[1][at..] + ..., in this order. */
static void sum(float *restrict out, const float *const *in, int n, int64_t at, int64_t len)
{
    int64_t i = 0;
    for (; i + 32 <= len; i += 32) {
        const float *first = in[0] + at + i;
        vec a = *(const vec *)first, b = *(const vec *)(first + 16);
        for (int m = 1; m < n; m++) {
            const float *p = in[m] + at + i;
            a += *(const vec *)p;
            b += *(const vec *)(p + 16);
        }
        *(vec *)(out + i) = a;
        *(vec *)(out + i + 16) = b;
    }
    for (; i < len; i++) {
        float a = in[0][at + i];
        for (int m = 1; m < n; m++) a += in[m][at + i];
        out[i] = a;
    }
}

/* -- Who holds what -------------------------------------------------------------------------------------- */

static int64_t held_cols(const tpl_coll_part *part, int member)
{
    return part->outer * part->index[member]->total * part->inner;
}

/* Where entry j of the middle dim lies: the member, its local entry, and how many entries follow there. The
 * first member that has it, so that all ranks take copies from the same one. */
typedef struct place {
    int member;
    int64_t local, run;
} place;

static bool find_entry(const tpl_coll_part *part, int size, int64_t j, place *out)
{
    for (int m = 0; m < size; m++) {
        const tpl_index *x = part->index[m];
        int64_t local = 0;
        for (int32_t r = 0; r < x->n; local += x->ranges[r++].count) {
            int64_t off = j - x->ranges[r].first;
            if (off < 0 || off >= x->ranges[r].count) continue;
            *out = (place){ m, local + off, x->ranges[r].count - off };
            return true;
        }
    }
    return false;
}

typedef struct rows {
    int64_t begin, end;
} rows;

/* -- Copies ---------------------------------------------------------------------------------------------- */

static void copy_rows(float *dst, int64_t dst_stride, const float *src, int64_t src_stride, int64_t n,
                      int64_t len)
{
    for (int64_t r = 0; r < n; r++)
        memcpy(dst + r * dst_stride, src + r * src_stride, (size_t)len * sizeof *dst);
}

/* Columns [x, x + len) of rows held by columns: every member has all rows. dst: the first of the rows. */
static void copy_from_columns(const tpl_pull *p, rows r, float *dst, int64_t x, int64_t len)
{
    const tpl_coll *c = p->coll;
    const tpl_coll_part *f = &c->from;
    while (len > 0) {
        place at;
        int64_t outer = x / (f->n * f->inner), rest = x % (f->n * f->inner), within = rest % f->inner;
        if (!find_entry(f, p->size, rest / f->inner, &at)) return; /* tpl_coll_check refuses such lists */
        int64_t take = at.run * f->inner - within, stride = held_cols(f, at.member);
        if (take > len) take = len;
        int64_t col = (outer * p->coll->from.index[at.member]->total + at.local) * f->inner + within;
        copy_rows(dst, c->out_cols, p->in[at.member] + r.begin * stride + col, stride, r.end - r.begin, take);
        dst += take;
        x += take;
        len -= take;
    }
}

/* The same where members hold whole rows, rows / size each. */
static void copy_from_rows(const tpl_pull *p, rows r, float *dst, int64_t x, int64_t len)
{
    const tpl_coll *c = p->coll;
    int64_t each = c->rows / p->size, width = c->in_cols;
    for (int64_t row = r.begin; row < r.end;) {
        int64_t m = row / each, n = (m + 1) * each < r.end ? (m + 1) * each - row : r.end - row;
        copy_rows(dst, c->out_cols, p->in[m] + (row - m * each) * width + x, width, n, len);
        dst += n * c->out_cols;
        row += n;
    }
}

static bool is_sum(tpl_coll_kind kind)
{
    return kind == TPL_COLL_ALL_REDUCE || kind == TPL_COLL_REDUCE_SCATTER;
}

/* dst: the run's place in this member's first row of r. */
static void pull_run(const tpl_pull *p, rows r, float *dst, int64_t x, int64_t len)
{
    const tpl_coll *c = p->coll;
    if (is_sum(c->kind)) {
        for (int64_t row = r.begin; row < r.end; row++, dst += c->out_cols)
            sum(dst, p->in, p->size, row * c->in_cols + x, len);
    } else if (c->from.index) {
        copy_from_columns(p, r, dst, x, len);
    } else {
        copy_from_rows(p, r, dst, x, len);
    }
}

/* -- Runs of out ----------------------------------------------------------------------------------------- */

static bool cuts_out_rows(const tpl_coll *c)
{
    return (c->kind == TPL_COLL_REDUCE_SCATTER || c->kind == TPL_COLL_ALL_TO_ALL) && !c->to.index;
}

static bool cuts_out_columns(const tpl_coll *c)
{
    return (c->kind == TPL_COLL_REDUCE_SCATTER || c->kind == TPL_COLL_ALL_TO_ALL) && c->to.index;
}

static bool cuts_in_rows(const tpl_coll *c)
{
    return !is_sum(c->kind) && !c->from.index;
}

/* This thread's share of out: all columns of some rows, or some columns of all rows when there are few
 * rows. */
static void pull_share(const tpl_pull *p, rows mine, tpl_span cols)
{
    const tpl_coll *c = p->coll;
    int64_t each = c->rows / p->size, top = cuts_out_rows(c) ? p->index * each : 0;
    rows whole = { top + mine.begin, top + mine.end };
    float *dst = c->out + mine.begin * c->out_cols;
    if (!cuts_out_columns(c)) {
        if (cols.end > cols.begin) pull_run(p, whole, dst + cols.begin, cols.begin, cols.end - cols.begin);
        return;
    }
    const tpl_index *x = c->to.index[p->index];
    int64_t y = 0;
    for (int64_t o = 0; o < c->to.outer; o++)
        for (int32_t r = 0; r < x->n; r++) {
            int64_t len = x->ranges[r].count * c->to.inner,
                    at = (o * c->to.n + x->ranges[r].first) * c->to.inner;
            int64_t begin = cols.begin > y ? cols.begin : y, end = cols.end < y + len ? cols.end : y + len;
            if (begin < end) pull_run(p, whole, dst + begin, at + begin - y, end - begin);
            y += len;
        }
}

/* Whole columns everywhere: one long row. Only rows may be cut on either side. */
static bool is_flat(const tpl_coll *c)
{
    return !cuts_out_columns(c) && (is_sum(c->kind) || !c->from.index);
}

static void pull_flat(const tpl_pull *p)
{
    const tpl_coll *c = p->coll;
    int64_t each = c->rows / p->size * c->in_cols; /* of one member where rows are cut */
    int64_t total = cuts_out_rows(c) ? each : c->rows * c->in_cols,
            top = cuts_out_rows(c) ? p->index * each : 0;
    tpl_span s = tpl_span_of(total, p->ith, p->nth);
    if (is_sum(c->kind)) {
        sum(c->out + s.begin, p->in, p->size, top + s.begin, s.end - s.begin);
        return;
    }
    for (int64_t at = top + s.begin, end = top + s.end; at < end;) {
        int64_t m = at / each, take = (m + 1) * each < end ? (m + 1) * each - at : end - at;
        memcpy(c->out + at - top, p->in[m] + at - m * each, (size_t)take * sizeof(float));
        at += take;
    }
}

void tpl_pull_run(const tpl_pull *p)
{
    const tpl_coll *c = p->coll;
    if (c->kind == TPL_COLL_BARRIER || (c->kind == TPL_COLL_GATHER && p->index != 0)) return;
    if (is_flat(c)) {
        pull_flat(p);
        return;
    }
    int64_t n = cuts_out_rows(c) ? c->rows / p->size : c->rows;
    if (n >= 4 * (int64_t)p->nth) /* at most a quarter more work for the busiest thread */
        pull_share(p, (rows){ n * p->ith / p->nth, n * (p->ith + 1) / p->nth }, (tpl_span){ 0, c->out_cols });
    else
        pull_share(p, (rows){ 0, n }, tpl_span_of(c->out_cols, p->ith, p->nth));
}

/* -- All-reduce in two phases ---------------------------------------------------------------------------- */

static tpl_span slice_share(const tpl_pull *p, int member)
{
    tpl_span slice = tpl_span_of(p->coll->rows * p->coll->in_cols, member, p->size);
    tpl_span s = tpl_span_of(slice.end - slice.begin, p->ith, p->nth);
    return (tpl_span){ slice.begin + s.begin, slice.begin + s.end };
}

void tpl_pull_own_slice(const tpl_pull *p)
{
    tpl_span s = slice_share(p, p->index);
    sum(p->coll->out + s.begin, p->in, p->size, s.begin, s.end - s.begin);
}

void tpl_pull_other_slices(const tpl_pull *p, float *const *out)
{
    for (int k = 1; k < p->size; k++) { /* from behind oneself on: not all read the same member at once */
        int m = (p->index + k) % p->size;
        tpl_span s = slice_share(p, m);
        memcpy(p->coll->out + s.begin, out[m] + s.begin, (size_t)(s.end - s.begin) * sizeof(float));
    }
}

/* -- Shapes ---------------------------------------------------------------------------------------------- */

int64_t tpl_coll_width(const tpl_coll *c)
{
    if (cuts_in_rows(c) || is_sum(c->kind)) return c->in_cols;
    return c->from.outer * c->from.n * c->from.inner;
}

size_t tpl_coll_in_bytes(const tpl_coll *c, int size)
{
    if (c->kind == TPL_COLL_BARRIER) return 0;
    int64_t n = cuts_in_rows(c) ? c->rows / size : c->rows;
    return (size_t)(n * c->in_cols) * sizeof(float);
}
