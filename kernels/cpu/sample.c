/* SPDX-License-Identifier: Apache-2.0
 *
 * The op `sample`: from the logits of each output row to the results in the step. A row belongs to one
 * thread. The row itself may be changed (it is an arena buffer that nobody reads later), so what is wanted
 * of the raw logits is taken first.
 */
#include "kernels/cpu/sample.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/simple.h"

enum { MAX_TOP = 20 };

size_t tpl_cpu_sample_scratch(int64_t vocab) { return tpl_sampler_work_bytes(vocab); }

static void clear_result(const tpl_step *s, int64_t i, int32_t tok)
{
    tpl_step_res_tok(s)[i] = tok;
    tpl_step_res_logprob(s)[i] = 0;
    for (uint32_t k = 0; k < s->cap.top; k++) {
        tpl_step_res_top_id(s)[i * s->cap.top + k] = -1;
        tpl_step_res_top_logprob(s)[i * s->cap.top + k] = 0;
    }
}

static void best_results(const tpl_step *s, int64_t i, const tpl_sampler *row, uint32_t n_best, double lse)
{
    if (n_best > s->cap.top) n_best = s->cap.top;
    if (n_best > MAX_TOP) n_best = MAX_TOP;
    int32_t *ids = tpl_step_res_top_id(s) + i * s->cap.top;
    tpl_sampler_best(row, (int)n_best, ids);
    for (uint32_t k = 0; k < n_best && ids[k] >= 0; k++)
        tpl_step_res_top_logprob(s)[i * s->cap.top + k] = (float)(row->z[ids[k]] - lse);
}

/* The position of the token to be chosen, which is part of the key: one behind the row's own token. */
static uint64_t next_position(const tpl_step *s, int64_t i)
{
    return (uint64_t)tpl_step_pos(s)[tpl_step_out(s)[i]] + 1;
}

static void sample_row(const tpl_op_ctx *ctx, const tpl_row_code *code, int64_t i, float *z, int64_t n,
                       int32_t seq)
{
    const tpl_step *s = ctx->step;
    const tpl_sampling *p = tpl_step_sampling(s) + seq;
    const bool wants_tok = tpl_step_seqs(s)[seq].flags & TPL_SEQ_SAMPLE;
    tpl_row_stats stats;
    clear_result(s, i, -1);
    if (!wants_tok && !p->n_logprobs) return;
    code->stats(z, n, &stats);
    if (stats.has_bad || stats.best < 0) {
        tpl_step_res_tok(s)[i] = -2;
        return;
    }
    const double lse = (double)stats.max + log(code->sum_exp(z, n, stats.max, tpl_keep_all().floor, 1));
    tpl_sampler row;
    tpl_sampler_init(&row, code, z, n, ctx->scratch);
    if (p->n_logprobs) best_results(s, i, &row, p->n_logprobs, lse);
    if (!wants_tok) return;
    int32_t id = tpl_sampler_choose(&row, &stats, p, tpl_step_pool(s), next_position(s, i));
    tpl_step_res_tok(s)[i] = id < 0 ? -2 : id;
    if (id >= 0) tpl_step_res_logprob(s)[i] = (float)(tpl_sampler_raw(&row, id) - lse);
}

/* Copies the row to the logits area: place is its number among the rows that want this. */
static void copy_row(const tpl_step *s, int64_t place, const float *z, int64_t n)
{
    if (place < s->cap.logit_rows)
        memcpy(tpl_step_logits(s) + (size_t)place * s->cap.vocab, z, (size_t)n * 4);
}

void tpl_sample_rows(const tpl_op_ctx *ctx, const tpl_bound *op, const tpl_row_code *code)
{
    const tpl_step *s = ctx->step;
    const int64_t n = op->in[0].cols < s->cap.vocab ? op->in[0].cols : s->cap.vocab;
    int64_t begin, end, place = 0;
    tpl_cut(ctx, s->n_out, &begin, &end);
    for (int64_t i = 0; i < end; i++) {
        const int32_t seq = tpl_step_out_seq(s)[i];
        const bool wants_copy = seq >= 0 && tpl_step_seqs(s)[seq].flags & TPL_SEQ_LOGITS;
        if (i >= begin) {
            float *z = tpl_row(&op->in[0], i);
            if (wants_copy) copy_row(s, place, z, n);
            if (seq < 0)
                clear_result(s, i, -1);
            else
                sample_row(ctx, code, i, z, n, seq);
        }
        place += wants_copy;
    }
}

tpl_status tpl_cpu_bind_sample(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(sample);
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_simple_equal(op, "the kind of rows of the logits", op->in[0].sym, TPL_SYM_OUT, err));
    TPL_TRY(tpl_simple_equal(op, "the cut of the logits", op->in[0].div, 1, err));
    size_t need = tpl_cpu_sample_scratch(op->in[0].cols), have = tpl_backend_cpu()->scratch_bytes;
    if (have < need)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "",
                        "kernels: %s: needs %zu bytes of scratch memory per thread, the backend has %zu",
                        op->name, need, have);
    return tpl_simple_pick(isa, op, codes);
}
