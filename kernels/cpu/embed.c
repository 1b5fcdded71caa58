/* SPDX-License-Identifier: Apache-2.0
 *
 * The embed op: each token's row of the table, expanded to float. A token whose id is not in the index list
 * (the vocabulary rows held here), and padding, give zero rows. Rows are shared out by token; a row is one
 * gather over its panel. Any thread of a team.
 */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/panel.h"

/* Where the list holds id, or -1. No list: everything is held. */
static int64_t local_row(const tpl_index *index, int64_t n_rows, int64_t id)
{
    if (!index) return id >= 0 && id < n_rows ? id : -1;
    int64_t before = 0;
    for (int32_t i = 0; i < index->n; i++) {
        const tpl_range *r = &index->ranges[i];
        if (id >= r->first && id < r->first + r->count) return before + id - r->first;
        before += r->count;
    }
    return -1;
}

/* Token t of the step: a literal, or what the step before chose (negative where it found no finite logit: that sequence
 * has ended, and nobody looks at what follows). */
static int32_t token_at(const tpl_op_ctx *ctx, int64_t t)
{
    const int32_t id = tpl_step_tok(ctx->step)[t];
    return id >= 0 || !ctx->before ? id : tpl_step_res_tok(ctx->before)[-1 - id];
}

static void embed_run(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    const tpl_view *out = &op->out[0];
    const tpl_weight *table = op->w[0];
    const int64_t rows = tpl_view_rows(out, ctx->step), first = op->imm[1].i * rows;
    for (int64_t r = rows * ctx->ith / ctx->nth; r < rows * (ctx->ith + 1) / ctx->nth; r++) {
        float *x = (float *)((char *)out->data + (size_t)r * out->stride);
        const int64_t at =
            first + r < ctx->step->n_tok ? local_row(op->index, table->rows, token_at(ctx, first + r)) : -1;
        if (at < 0)
            memset(x, 0, (size_t)out->cols * sizeof(float));
        else
            tpl_unpack_row(table, at, x);
    }
}

tpl_status tpl_cpu_bind_embed(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    (void)isa;
    if (op->n_w != 1 || op->n_out != 1 || op->out[0].act != TPL_ACT_F32)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name, "embed: %d tables and %d outputs, expected one each",
                        op->n_w, op->n_out);
    if (!tpl_panel_fields(op->w[0]->dtype))
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "embed: %s is %s, which no kernel reads",
                        op->w[0]->name,
                        (unsigned)op->w[0]->dtype < TPL_N_DTYPES ? tpl_dtypes[op->w[0]->dtype].name : "?");
    if (op->w[0]->cols != op->out[0].cols || (op->index && op->index->total != op->w[0]->rows))
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name, "embed: %s is %lld x %lld, expected %lld rows of %lld",
                        op->w[0]->name, (long long)op->w[0]->rows, (long long)op->w[0]->cols,
                        (long long)(op->index ? op->index->total : op->w[0]->rows),
                        (long long)op->out[0].cols);
    op->run = embed_run;
    op->variant = "embed_portable";
    return TPL_OK;
}
