/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted on purpose (TPL_FAULT), so that verify and the watchdog can be seen to find them. Nothing here runs
 * without one.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/engine_priv.h"

static bool acts_on(tpl_fault_kind kind, tpl_op_kind op)
{
    switch (kind) {
    case TPL_FAULT_STALL: return true;
    case TPL_FAULT_DROP_ALL_REDUCE: return op == TPL_OP_ID_ALL_REDUCE;
    case TPL_FAULT_WRONG_HEAD_MAP: return op == TPL_OP_ID_ATTEND;
    case TPL_FAULT_STALE_POSITION: return op == TPL_OP_ID_ROPE || op == TPL_OP_ID_ROPE_KV;
    default: return false; /* swap_shard acts while loading */
    }
}

/* A collective is named after its mark and kind; the op that fed it names it too, as users see both in `plan --text`.
 */
static bool named(const tpl_rank *r, int i, tpl_fault_kind kind)
{
    const tpl_fault *f = &r->engine->desc.fault;
    const tpl_prog_op *d = &r->prog->ops[i];
    if (tpl_fault_hits(f, kind, r->rank, d->name, -1)) return true;
    if (kind != TPL_FAULT_DROP_ALL_REDUCE || d->n_in != 1) return false;
    for (int j = i - 1; j >= 0; j--)
        for (int k = 0; k < r->prog->ops[j].n_out; k++)
            if (r->prog->ops[j].out[k] == d->in[0]) return tpl_fault_hits(f, kind, r->rank, r->prog->ops[j].name, -1);
    return false;
}

tpl_status tpl_rank_plant(tpl_rank *r, tpl_err *err)
{
    const tpl_fault *f = &r->engine->desc.fault;
    const tpl_program *p = r->prog;
    for (int i = 0; f->kind != TPL_FAULT_NONE && i < p->n_ops; i++) {
        if (!acts_on(f->kind, p->ops[i].kind) || !named(r, i, f->kind)) continue;
        r->faults[i] = (uint8_t)f->kind;
        r->n_planted++;
    }
    for (int i = 0; i < p->n_weights; i++) r->n_planted += tpl_weights_is_swapped(p, r->local, &p->weights[i], f);
    if (f->kind != TPL_FAULT_STALE_POSITION || !r->n_planted) return TPL_OK;
    r->stale = calloc(1, tpl_step_bytes(&r->engine->desc.caps));
    return r->stale ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "TPL_FAULT", "out of memory");
}

static void stall(const tpl_rank *r)
{
    while (!tpl_abort_is_set(r->engine->abort) && !atomic_load(&r->engine->ending))
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

const tpl_step *tpl_fault_before(tpl_rank *r, int op, int ith, const tpl_step *step)
{
    const tpl_fault *f = &r->engine->desc.fault;
    if (f->step >= 0 && (uint64_t)f->step != step->id) return step;
    if (r->faults[op] == TPL_FAULT_STALL) {
        stall(r);
        return NULL;
    }
    if (r->faults[op] != TPL_FAULT_STALE_POSITION) return step;
    if (!tpl_team_barrier(r->team, ith)) return NULL;
    if (!ith) { /* every position but 0 is one behind, as if the step had not advanced */
        memcpy(r->stale, step, tpl_step_bytes(&step->cap));
        int32_t *pos = tpl_step_pos(r->stale);
        for (int i = 0; i < step->n_tok; i++) pos[i] -= pos[i] > 0;
    }
    return tpl_team_barrier(r->team, ith) ? r->stale : NULL;
}

/* Heads move by one place: each query head gets the result of its neighbour's keys. */
static void turn_heads(const tpl_bound *op, const tpl_step *step)
{
    size_t hd = (size_t)op->imm[2].i;
    const tpl_view *v = &op->out[0];
    for (int64_t i = 0; i < tpl_view_rows(v, step); i++) {
        float *row = (float *)((char *)v->data + (size_t)i * v->stride), first[512];
        size_t n = (size_t)v->cols;
        if (hd > 512 || n < 2 * hd) return;
        memcpy(first, row, hd * sizeof *row);
        memmove(row, row + hd, (n - hd) * sizeof *row);
        memcpy(row + n - hd, first, hd * sizeof *row);
    }
}

bool tpl_fault_after(tpl_rank *r, int op, int ith, const tpl_step *step)
{
    const tpl_fault *f = &r->engine->desc.fault;
    const tpl_bound *b = &r->ops[op];
    bool mine = r->faults[op] == TPL_FAULT_DROP_ALL_REDUCE || r->faults[op] == TPL_FAULT_WRONG_HEAD_MAP;
    if (!mine || (f->step >= 0 && (uint64_t)f->step != step->id)) return true;
    if (!tpl_team_barrier(r->team, ith)) return false;
    if (!ith && r->faults[op] == TPL_FAULT_DROP_ALL_REDUCE)
        memcpy(b->out[0].data, b->in[0].data, (size_t)tpl_view_rows(&b->in[0], step) * b->in[0].stride);
    if (!ith && r->faults[op] == TPL_FAULT_WRONG_HEAD_MAP) turn_heads(b, step);
    return tpl_team_barrier(r->team, ith);
}
