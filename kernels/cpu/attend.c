/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attend.h"

#include <string.h>

#include "kernels/kv.h"

/* -- Items ---- */

void att_shape_init(att_shape *a, const tpl_op_ctx *ctx, const tpl_bound *op)
{
    const int hd = (int)op->imm[2].i;
    const int64_t rows = tpl_view_rows(&op->in[0], ctx->step);
    *a = (att_shape){ .step = ctx->step,
                      .kv = op->kv,
                      .kvh = (int)op->imm[0].i,
                      .grp = (int)op->imm[1].i,
                      .hd = hd,
                      .ld = (hd + 15) & ~15,
                      .scale = (float)op->imm[3].f,
                      .window = (int)op->imm[4].i,
                      .tok0 = op->imm[5].i * rows,
                      .is_exact = op->imm[6].i != 0,
                      .rows = rows };
}

/* Sets w to the first rows of the next sequence that has tokens here. */
static bool next_seq(att_walk *w)
{
    const att_shape *a = w->shape;
    while (++w->item.seq < a->step->n_seq) {
        const tpl_step_seq *q = tpl_step_seqs(a->step) + w->item.seq;
        int64_t first = q->q0 > a->tok0 ? q->q0 : a->tok0, end = (int64_t)q->q0 + q->q_len;
        if (end > a->tok0 + a->rows) end = a->tok0 + a->rows;
        if (q->slot < 0 || first >= end) continue;
        w->item.tok = first;
        w->left = (end - first) * a->grp;
        w->item.row0 = 0;
        w->item.head = 0;
        return true;
    }
    return false;
}

/* Sets the rows and keys of the block at row0. */
static bool set_block(att_walk *w)
{
    const att_shape *a = w->shape;
    att_item *i = &w->item;
    i->n_rows = w->left < ATT_ROWS ? w->left : ATT_ROWS;
    const int32_t *pos = tpl_step_pos(a->step);
    i->last = pos[i->tok + (i->row0 + i->n_rows - 1) / a->grp];
    int32_t first = pos[i->tok + i->row0 / a->grp] - a->window + 1;
    i->first = a->window > 0 && first > 0 ? first : 0;
    return true;
}

void att_walk_init(att_walk *w, const att_shape *a) { *w = (att_walk){ .shape = a, .item = { .seq = -1 } }; }

/* Sequences, in each the heads, in each the blocks. */
bool att_next(att_walk *w)
{
    att_item *i = &w->item;
    w->left -= i->n_rows;
    i->row0 += i->n_rows;
    if (w->left > 0) return set_block(w);
    w->left = i->row0;
    i->row0 = 0;
    if (i->seq >= 0 && ++i->head < w->shape->kvh) return set_block(w);
    return next_seq(w) && set_block(w);
}

/* -- Sharing the work ---- */

static size_t work_bytes(int64_t hd)
{
    int64_t ld = (hd + 15) & ~15;
    int64_t floats = hd * ATT_TILE + ATT_TILE * ld + ATT_ROWS * ATT_TILE + 2 * ATT_ROWS * ld + ld;
    return ((sizeof(att_work) + 63) & ~(size_t)63) + (size_t)floats * 4;
}

size_t tpl_cpu_attend_scratch(int64_t hd) { return work_bytes(hd); }

att_work *att_work_init(const att_shape *a, void *scratch)
{
    att_work *w = scratch;
    w->kt = (float *)((char *)scratch + ((sizeof *w + 63) & ~(size_t)63));
    w->v = w->kt + (size_t)a->hd * ATT_TILE;
    w->s = w->v + (size_t)a->ld * ATT_TILE;
    w->oc = w->s + ATT_ROWS * ATT_TILE;
    w->o = w->oc + (size_t)a->ld * ATT_ROWS;
    w->zero = w->o + (size_t)a->ld * ATT_ROWS;
    w->tiles = (char *)(w->zero + a->ld);
    w->slots = (float *)(void *)(w->tiles + a->tile_bytes);
    memset(w->zero, 0, (size_t)a->ld * 4);
    return w;
}

/* Most cost that one thread gets when items stay whole. */
static int64_t worst_load(const att_shape *a, int64_t cost, int nth)
{
    int64_t sum = 0, worst = 0, load = 0, ith = 0;
    att_walk w;
    for (att_walk_init(&w, a); att_next(&w); sum += att_cost(&w.item)) {
        int64_t owner = (sum + att_cost(&w.item) / 2) * nth / cost;
        load = owner == ith ? load + att_cost(&w.item) : att_cost(&w.item);
        ith = owner;
        if (load > worst) worst = load;
    }
    return worst;
}

/* Whether three barriers are cheaper than the imbalance of whole items: a (row, key) pair costs about hd /
 * 50 ns, a barrier 0.1 to 0.3 us (facts/perf.md section 0). A wrong guess costs time only. */
static bool wants_split(const att_plan *p, const att_shape *a, int64_t n_items, int nth)
{
    if (n_items == 0 || n_items >= 8 * (int64_t)nth || p->n_chunks <= n_items) return false;
    return (worst_load(a, p->cost, nth) - p->cost / nth) * a->hd > 50000;
}

void att_plan_init(att_plan *p, const att_shape *a, const tpl_op_ctx *ctx, const tpl_bound *op)
{
    int64_t n_items = 0;
    att_walk w;
    *p = (att_plan){ 0 };
    for (att_walk_init(&w, a); att_next(&w); n_items++) {
        p->cost += att_cost(&w.item);
        p->n_chunks += att_chunks(&w.item);
        p->n_rows += w.item.n_rows;
        if (w.item.n_rows > p->slot_rows) p->slot_rows = w.item.n_rows;
    }
    if (ctx->nth == 1 || ctx->nth > ATT_MAX_THREADS || op->out[0].data == op->in[0].data) return;
    int64_t slots = (p->n_chunks + ctx->nth - 1) / ctx->nth;
    size_t bytes = work_bytes(a->hd) + a->tile_bytes + (size_t)(slots * p->slot_rows * (a->ld + 2)) * 4;
    bool fits = bytes <= tpl_backend_cpu()->scratch_bytes &&
                (size_t)ctx->nth * sizeof(float *) <= (size_t)a->rows * op->out[0].stride;
    p->is_split = fits && wants_split(p, a, n_items, ctx->nth);
}

bool att_share_slots(att_work *w, const tpl_op_ctx *ctx, const tpl_bound *op)
{
    memcpy((char *)op->out[0].data + (size_t)ctx->ith * sizeof w->slots, &w->slots, sizeof w->slots);
    if (!tpl_team_barrier(ctx->team, ctx->ith)) return false;
    memcpy(w->peer, op->out[0].data, (size_t)ctx->nth * sizeof w->slots);
    return true;
}

float *att_out_row(const att_shape *a, const att_item *item, const tpl_view *v, int64_t r)
{
    int64_t row = item->row0 + r, head = (int64_t)item->head * a->grp + row % a->grp;
    return tpl_row(v, item->tok + row / a->grp - a->tok0) + head * a->hd;
}

void att_zero_padding(const att_shape *a, const tpl_op_ctx *ctx, const tpl_bound *op)
{
    for (int64_t r = ctx->ith; r < a->rows; r += ctx->nth)
        if (tpl_tok_seq_of(a->step, a->tok0 + r) < 0) memset(tpl_row(&op->out[0], r), 0, op->out[0].stride);
}

/* -- Bind ---- */

static tpl_status check_shape(const tpl_bound *op, tpl_err *err)
{
    const int64_t kvh = op->imm[0].i, grp = op->imm[1].i, hd = op->imm[2].i;
    TPL_TRY(tpl_kv_check(op, kvh, hd, err));
    if (hd > ATT_MAX_HD)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "", "kernels: %s: heads of %lld columns, at most %d",
                        op->name, (long long)hd, ATT_MAX_HD);
    TPL_TRY(tpl_simple_equal(op, "the width of q", op->in[0].cols, kvh * grp * hd, err));
    TPL_TRY(tpl_simple_equal(op, "the width of o", op->out[0].cols, kvh * grp * hd, err));
    return tpl_simple_equal(op, "the cut of o", op->out[0].div, op->in[0].div, err);
}

tpl_status tpl_cpu_bind_attend(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(attend);
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(check_shape(op, err));
    size_t need = tpl_cpu_attend_scratch(op->imm[2].i), have = tpl_backend_cpu()->scratch_bytes;
    if (have < need)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "",
                        "kernels: %s: needs %zu bytes of scratch memory per thread, the backend has %zu",
                        op->name, need, have);
#if TPL_CPU_X86
    if (isa == TPL_ISA_AMX) {
        op->run = tpl_attend_amx;
        op->variant = "attend_amx";
        return TPL_OK;
    }
#endif
    return tpl_simple_pick(isa, op, codes);
}
