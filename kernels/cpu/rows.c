/* SPDX-License-Identifier: Apache-2.0
 *
 * rows: picks the rows whose logits are wanted. Work is cut at cache lines of the output, so one row is
 * shared too.
 */
#include <string.h>

#include "kernels/cpu/simple.h"

/* The row of x that output row i is, or -1: not held here, or padding. */
static int64_t source(const tpl_bound *op, const tpl_step *s, int64_t i)
{
    if (i >= s->n_out) return -1;
    int64_t t = tpl_step_out(s)[i];
    if (!op->imm[0].i) return t;
    int64_t held = tpl_view_rows(&op->in[0], s), first = op->imm[1].i * held;
    return t >= first && t < first + held ? t - first : -1;
}

static void run_rows(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    const int64_t cols = op->out[0].cols;
    int64_t at, end;
    tpl_cut_floats(ctx, tpl_view_rows(&op->out[0], ctx->step) * cols, &at, &end);
    while (at < end) {
        int64_t i = at / cols, c = at % cols, n = cols - c < end - at ? cols - c : end - at;
        int64_t row = source(op, ctx->step, i);
        float *out = tpl_row(&op->out[0], i) + c;
        if (row < 0)
            memset(out, 0, (size_t)n * 4);
        else
            memcpy(out, tpl_row(&op->in[0], row) + c, (size_t)n * 4);
        at += n;
    }
}

tpl_status tpl_cpu_bind_rows(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    (void)isa;
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_simple_equal(op, "the width of out", op->out[0].cols, op->in[0].cols, err));
    TPL_TRY(tpl_simple_equal(op, "the cut of out", op->out[0].div, 1, err));
    TPL_TRY(tpl_simple_equal(op, "the kind of rows of out", op->out[0].sym, TPL_SYM_OUT, err));
    if (!op->imm[0].i) TPL_TRY(tpl_simple_equal(op, "the cut of x", op->in[0].div, 1, err));
    op->run = run_rows;
    op->variant = "rows";
    return TPL_OK;
}
