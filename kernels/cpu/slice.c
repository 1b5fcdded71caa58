/* SPDX-License-Identifier: Apache-2.0
 *
 * slice and slice_tok: the part of a replicated value that this rank holds, by columns or by rows.
 */
#include <string.h>

#include "kernels/cpu/simple.h"

static void run_slice(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    const int64_t outer = op->imm[0].i, n = op->imm[1].i, inner = op->imm[2].i;
    const tpl_index *index = op->index;
    int64_t at, end;
    tpl_cut(ctx, tpl_view_rows(&op->in[0], ctx->step) * outer, &at, &end);
    for (; at < end; at++) {
        const float *in = tpl_row(&op->in[0], at / outer) + at % outer * n * inner;
        float *out = tpl_row(&op->out[0], at / outer) + at % outer * index->total * inner;
        for (int32_t r = 0; r < index->n; r++) {
            const int64_t count = index->ranges[r].count * inner;
            memcpy(out, in + index->ranges[r].first * inner, (size_t)count * 4);
            out += count;
        }
    }
}

static void run_slice_tok(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    const int64_t n = tpl_view_rows(&op->out[0], ctx->step) * op->out[0].cols;
    const float *in = tpl_row(&op->in[0], 0) + op->imm[0].i * n;
    int64_t at, end;
    tpl_cut_floats(ctx, n, &at, &end);
    memcpy(tpl_row(&op->out[0], 0) + at, in + at, (size_t)(end - at) * 4);
}

static tpl_status check_index(const tpl_bound *op, int64_t n, tpl_err *err)
{
    if (!op->index) return tpl_fail(err, TPL_ERR_ARG, 0, "", "kernels: %s: no index list is bound", op->name);
    int64_t total = 0;
    for (int32_t r = 0; r < op->index->n; r++) {
        const tpl_range *range = &op->index->ranges[r];
        if (range->first < 0 || range->count < 0 || range->first > n - range->count)
            return tpl_fail(err, TPL_ERR_ARG, 0, "",
                            "kernels: %s: range %d of the index list, %lld + %lld, ends beyond %lld",
                            op->name, r, (long long)range->first, (long long)range->count, (long long)n);
        total += range->count;
    }
    return tpl_simple_equal(op, "the length of the index list", total, op->index->total, err);
}

tpl_status tpl_cpu_bind_slice(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    (void)isa;
    const int64_t outer = op->imm[0].i, n = op->imm[1].i, inner = op->imm[2].i;
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(check_index(op, n, err));
    TPL_TRY(tpl_simple_equal(op, "the width of x", op->in[0].cols, outer * n * inner, err));
    TPL_TRY(tpl_simple_equal(op, "the width of out", op->out[0].cols, outer * op->index->total * inner, err));
    TPL_TRY(tpl_simple_equal(op, "the cut of out", op->out[0].div, op->in[0].div, err));
    TPL_TRY(tpl_simple_equal(op, "the kind of rows of out", op->out[0].sym, op->in[0].sym, err));
    op->run = run_slice;
    op->variant = "slice";
    return TPL_OK;
}

tpl_status tpl_cpu_bind_slice_tok(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    (void)isa;
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_simple_equal(op, "the width of out", op->out[0].cols, op->in[0].cols, err));
    TPL_TRY(tpl_simple_equal(op, "the kind of rows of out", op->out[0].sym, op->in[0].sym, err));
    if (op->out[0].div % op->in[0].div || op->imm[0].i < 0 || op->imm[0].i >= op->out[0].div / op->in[0].div)
        return tpl_fail(err, TPL_ERR_ARG, 0, "",
                        "kernels: %s: piece %lld of rows cut by %u out of rows cut by %u", op->name,
                        (long long)op->imm[0].i, op->out[0].div, op->in[0].div);
    op->run = run_slice_tok;
    op->variant = "slice_tok";
    return TPL_OK;
}
