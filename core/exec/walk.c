/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking a step: every thread of a rank's team goes through the whole op list and does its part of each op (SPMD).
 * Threads meet only at barriers the planner asked for and in collectives. Nothing is allocated here.
 */
#include "base/alloc.h"
#include "exec/engine_priv.h"

static bool run_coll(tpl_rank *r, int i, const tpl_step *step, int ith)
{
    const tpl_bound *op = &r->ops[i];
    tpl_coll c = r->colls[i];
    int64_t in = tpl_view_rows(&op->in[0], step), out = tpl_view_rows(&op->out[0], step);
    c.rows = in > out ? in : out;
    return tpl_coll_run(r->groups[r->prog->ops[i].group], &c, r->team, ith);
}

/* Every reader of the next stage has a channel of its own; rank j is fed by rank j mod n of this stage. */
static bool run_send(tpl_rank *r, int i, const tpl_step *step, int ith)
{
    const tpl_engine *e = r->engine;
    const tpl_view *v = &r->ops[i].in[0];
    size_t bytes = (size_t)tpl_view_rows(v, step) * v->stride;
    int next = e->desc.programs[r->prog->stage + 1]->n_ranks;
    for (int j = r->local; j < next; j += r->prog->n_ranks)
        if (!tpl_channel_send(e->cuts[e->cut_first[r->prog->stage] + j], v->data, bytes, r->team, ith)) return false;
    return true;
}

static bool run_recv(tpl_rank *r, int i, const tpl_step *step, int ith)
{
    const tpl_engine *e = r->engine;
    const tpl_view *v = &r->ops[i].out[0];
    size_t bytes = (size_t)tpl_view_rows(v, step) * v->stride;
    return tpl_channel_recv(e->cuts[e->cut_first[r->prog->stage - 1] + r->local], 0, v->data, bytes, r->team, ith);
}

static bool run_op(tpl_rank *r, int i, const tpl_op_ctx *ctx)
{
    const tpl_prog_op *d = &r->prog->ops[i];
    if (tpl_op_idles(&r->ops[i], ctx->step)) return true;
    if ((d->flags & TPL_OPF_BARRIER) && r->ops[i].ahead) r->ops[i].ahead(ctx, &r->ops[i]);
    if ((d->flags & TPL_OPF_BARRIER) && !tpl_team_barrier(r->team, ctx->ith)) return false;
    if ((d->flags & TPL_OPF_ROOT) && r->local) return true;
    switch (d->kind) {
    case TPL_OP_ID_SEND: return run_send(r, i, ctx->step, ctx->ith);
    case TPL_OP_ID_RECV: return run_recv(r, i, ctx->step, ctx->ith);
    case TPL_OP_ID_ALL_REDUCE:
    case TPL_OP_ID_REDUCE_SCATTER:
    case TPL_OP_ID_ALL_GATHER:
    case TPL_OP_ID_ALL_TO_ALL:
    case TPL_OP_ID_GATHER: return run_coll(r, i, ctx->step, ctx->ith);
    default: r->ops[i].run(ctx, &r->ops[i]); return true;
    }
}

static bool tap_op(tpl_rank *r, int i, const tpl_tap *tap, const tpl_step *step, int ith)
{
    const tpl_prog_op *d = &r->prog->ops[i];
    if (!tpl_team_barrier(r->team, ith)) return false;
    tpl_alloc_watch(false); /* taps may allocate */
    if (!ith && !((d->flags & TPL_OPF_ROOT) && r->local))
        for (int j = 0; j < d->n_out; j++) tap->fn(tap->ctx, r->rank, r->prog, i, j, &r->ops[i].out[j], step);
    tpl_alloc_watch(true);
    return tpl_team_barrier(r->team, ith);
}

static bool walk(tpl_rank *r, int ith, const tpl_step *step, const tpl_step *before, const tpl_tap *tap)
{
    if (!ith) atomic_store_explicit(&r->at_tok, step->pad_tok, memory_order_relaxed);
    tpl_op_ctx ctx = { .ith = ith,
                       .nth = r->nth,
                       .step = step,
                       .team = r->team,
                       .scratch = r->scratch + (size_t)ith * r->scratch_bytes,
                       .before = before };
    for (int i = 0; i < r->prog->n_ops; i++) {
        if (!ith) {
            atomic_store_explicit(&r->at_op, i, memory_order_relaxed);
            atomic_fetch_add_explicit(&r->beats, 1, memory_order_relaxed);
        }
        if (r->faults[i]) ctx.step = tpl_fault_before(r, i, ith, step);
        if (!ctx.step || !run_op(r, i, &ctx)) return false;
        if (r->faults[i] && !tpl_fault_after(r, i, ith, step)) return false;
        ctx.step = step;
        if (tap->fn && !tap_op(r, i, tap, step, ith)) return false;
    }
    return tpl_team_barrier(r->team, ith);
}

void tpl_rank_main(void *arg)
{
    tpl_rank_thread *t = arg;
    tpl_rank *r = t->rank;
    tpl_engine *e = r->engine;
    tpl_rank_bind_self(r);
    for (uint64_t n = 0;; n++) {
        size_t slot = tpl_engine_ring(e, n);
        if (!tpl_wait_u32(&e->head, (uint32_t)(n + 1), e->spin, e->abort) || atomic_load(&e->ending)) return;
        const tpl_step *step = e->slots[slot], *before = NULL;
        if (step->continues) { /* the tokens come from the first rank */
            if (!tpl_wait_u32(&e->ranks[0].done, (uint32_t)n, e->spin, e->abort)) return;
            before = e->slots[tpl_engine_ring(e, n - 1)];
        }
        tpl_alloc_watch(true);
        bool ok = walk(r, t->ith, step, before, &e->taps[slot]);
        tpl_alloc_watch(false);
        if (!ok) return;
        if (!t->ith) {
            atomic_store_explicit(&r->at_op, TPL_RANK_IDLE, memory_order_relaxed);
            atomic_store_explicit(&r->done, (uint32_t)(n + 1), memory_order_release);
            tpl_wake_u32(&r->done);
        }
    }
}
