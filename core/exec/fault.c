/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted on purpose (TPL_FAULT), so that verify and the watchdog can be seen to find them. Nothing here runs
 * without one. A fault acts at one of four times: while a weight is loaded (weights.c), when an op is bound (other
 * immediates, no kernel), before it runs (another step), or after (another result).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/engine_priv.h"

/* -- Where -------------------------------------------------------------------------------------------------- */

static int64_t imm_of(const tpl_rank *r, const tpl_prog_op *d, const char *name)
{
    int at = tpl_op_imm(d->kind, name);
    return at < 0 ? 0 : tpl_num_get(r->prog, d->imm[at], r->local);
}

/* Whether the op takes a part of the rows or columns that another rank could have taken. */
static bool takes_a_piece(const tpl_rank *r, const tpl_prog_op *d)
{
    if (d->kind == TPL_OP_ID_ROWS) return imm_of(r, d, "cut") && r->prog->values[d->in[0]].div > 1;
    return d->kind == TPL_OP_ID_SLICE || d->kind == TPL_OP_ID_SLICE_TOK;
}

static bool acts_on(const tpl_rank *r, const tpl_prog_op *d, tpl_fault_kind fault)
{
    tpl_op_kind op = d->kind;
    switch (fault) {
    case TPL_FAULT_STALL: return true;
    case TPL_FAULT_DROP_ALL_REDUCE:
    case TPL_FAULT_DOUBLE_ALL_REDUCE: return op == TPL_OP_ID_ALL_REDUCE;
    case TPL_FAULT_WRONG_GATHER_ORDER: return op == TPL_OP_ID_ALL_GATHER;
    case TPL_FAULT_WRONG_PIECE: return takes_a_piece(r, d);
    case TPL_FAULT_BIAS_ON_ALL_RANKS: return op == TPL_OP_ID_BIAS && !imm_of(r, d, "on");
    case TPL_FAULT_WRONG_HEAD_MAP:
    case TPL_FAULT_MASK_OFF_BY_ONE:
    case TPL_FAULT_STALE_PAGE: return op == TPL_OP_ID_ATTEND;
    case TPL_FAULT_STALE_POSITION:
    case TPL_FAULT_UNPERMUTED_ROPE: return op == TPL_OP_ID_ROPE || op == TPL_OP_ID_ROPE_KV;
    case TPL_FAULT_SHIFT_VOCAB: return op == TPL_OP_ID_EMBED;
    case TPL_FAULT_SKIP_OP: return (tpl_op_infos[op].flags & TPL_OP_KERNEL) && d->n_out > 0;
    default: return false; /* the others act while loading */
    }
}

/* A collective is named after its mark and kind; the op that fed it names it too, as users see both in `plan --text`.
 */
static bool named(const tpl_rank *r, int i, tpl_fault_kind kind)
{
    const tpl_fault *f = &r->engine->desc.fault;
    const tpl_prog_op *d = &r->prog->ops[i];
    if (tpl_fault_hits(f, kind, r->rank, d->name, -1)) return true;
    if (!(tpl_op_infos[d->kind].flags & TPL_OP_COLL) || kind == TPL_FAULT_STALL || d->n_in != 1) return false;
    for (int j = i - 1; j >= 0; j--)
        for (int k = 0; k < r->prog->ops[j].n_out; k++)
            if (r->prog->ops[j].out[k] == d->in[0]) return tpl_fault_hits(f, kind, r->rank, r->prog->ops[j].name, -1);
    return false;
}

static bool needs_step(tpl_fault_kind kind)
{
    return kind == TPL_FAULT_STALE_POSITION || kind == TPL_FAULT_MASK_OFF_BY_ONE || kind == TPL_FAULT_STALE_PAGE ||
           kind == TPL_FAULT_SHIFT_VOCAB;
}

tpl_status tpl_rank_plant(tpl_rank *r, tpl_err *err)
{
    const tpl_fault *f = &r->engine->desc.fault;
    const tpl_program *p = r->prog;
    for (int i = 0; f->kind != TPL_FAULT_NONE && i < p->n_ops; i++) {
        if (!acts_on(r, &p->ops[i], f->kind) || !named(r, i, f->kind)) continue;
        r->faults[i] = (uint8_t)f->kind;
        r->n_planted++;
    }
    for (int i = 0; i < p->n_weights; i++) r->n_planted += tpl_weights_is_misplaced(p, r->local, &p->weights[i], f);
    if (!needs_step(f->kind) || !r->n_planted) return TPL_OK;
    r->stale = calloc(1, tpl_step_bytes(&r->engine->desc.caps));
    return r->stale ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "TPL_FAULT", "out of memory");
}

/* -- At binding --------------------------------------------------------------------------------------------- */

/* The list of another rank's columns, where it is as long; else the own. */
static const tpl_index *other_index(const tpl_rank *r, const tpl_prog_op *d, const tpl_index *own)
{
    int at = tpl_op_imm(d->kind, "index");
    for (int k = 1; k < r->prog->n_ranks; k++) {
        const tpl_index *x = &r->prog->indices[tpl_num_get(r->prog, d->imm[at], (r->local + k) % r->prog->n_ranks)];
        if (x != own && x->total == own->total) return x;
    }
    return own;
}

void tpl_fault_bind(const tpl_rank *r, int i, tpl_bound *op)
{
    const tpl_prog_op *d = &r->prog->ops[i];
    if (r->faults[i] == TPL_FAULT_UNPERMUTED_ROPE) op->imm[tpl_op_imm(d->kind, "mode")].i ^= 1;
    if (r->faults[i] == TPL_FAULT_BIAS_ON_ALL_RANKS) op->imm[tpl_op_imm(d->kind, "on")].i = 1;
    if (r->faults[i] != TPL_FAULT_WRONG_PIECE) return;
    if (d->kind == TPL_OP_ID_SLICE) {
        op->index = other_index(r, d, op->index);
        return;
    }
    int64_t n = d->kind == TPL_OP_ID_ROWS ? op->in[0].div : op->out[0].div / op->in[0].div;
    int at = tpl_op_imm(d->kind, "part");
    op->imm[at].i = (op->imm[at].i + 1) % n;
}

static void run_nothing(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    (void)ctx;
    (void)op;
}

void tpl_fault_bound(const tpl_rank *r, int i, tpl_bound *op)
{
    if (r->faults[i] == TPL_FAULT_SKIP_OP) op->run = run_nothing;
}

/* -- Before an op ------------------------------------------------------------------------------------------- */

static void stall(const tpl_rank *r)
{
    while (!tpl_abort_is_set(r->engine->abort) && !atomic_load(&r->engine->ending))
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

/* The block table as it was before the sequence grew: its last page is not known, the one before stands in. */
static void forget_page(tpl_step *s, int32_t page)
{
    for (int i = 0; i < s->n_seq; i++) {
        const tpl_step_seq *q = tpl_step_seqs(s) + i;
        uint32_t last = q->kv_len > 0 ? (uint32_t)((q->kv_len - 1) / page) : 0;
        if (last > 0 && last < q->n_pages)
            tpl_step_pages(s)[q->page0 + last] = tpl_step_pages(s)[q->page0 + last - 1];
    }
}

static void spoil(const tpl_rank *r, tpl_fault_kind kind, tpl_step *s)
{
    int32_t *pos = tpl_step_pos(s), *tok = tpl_step_tok(s);
    if (kind == TPL_FAULT_STALE_PAGE) forget_page(s, r->engine->desc.kv_page);
    for (int i = 0; i < s->n_tok; i++) {
        if (kind == TPL_FAULT_STALE_POSITION || kind == TPL_FAULT_MASK_OFF_BY_ONE) pos[i] -= pos[i] > 0;
        if (kind == TPL_FAULT_SHIFT_VOCAB && tok[i] >= 0) tok[i] = (tok[i] + 1) % (int32_t)s->cap.vocab;
    }
}

const tpl_step *tpl_fault_before(tpl_rank *r, int op, int ith, const tpl_step *step)
{
    const tpl_fault *f = &r->engine->desc.fault;
    if (f->step >= 0 && (uint64_t)f->step != step->id) return step;
    if (r->faults[op] == TPL_FAULT_STALL) {
        stall(r);
        return NULL;
    }
    if (!needs_step((tpl_fault_kind)r->faults[op])) return step;
    if (!tpl_team_barrier(r->team, ith)) return NULL;
    if (!ith) { /* as if the step had not advanced, or were another one */
        memcpy(r->stale, step, tpl_step_bytes(&step->cap));
        spoil(r, (tpl_fault_kind)r->faults[op], r->stale);
    }
    return tpl_team_barrier(r->team, ith) ? r->stale : NULL;
}

/* -- After an op -------------------------------------------------------------------------------------------- */

static void reverse(float *x, size_t n)
{
    for (size_t i = 0, j = n; i + 1 < j; i++) {
        float y = x[--j];
        x[j] = x[i], x[i] = y;
    }
}

/* Moves the first n of len floats behind the others. */
static void turn(float *x, size_t n, size_t len)
{
    if (n >= len) return;
    reverse(x, n);
    reverse(x + n, len - n);
    reverse(x, len);
}

static float *row_of(const tpl_view *v, int64_t i)
{
    return (float *)((char *)v->data + (size_t)i * v->stride);
}

/* Heads move by one place: each query head gets the result of its neighbour's keys. */
static void turn_heads(const tpl_bound *op, const tpl_step *step)
{
    const tpl_view *v = &op->out[0];
    for (int64_t i = 0; i < tpl_view_rows(v, step); i++) turn(row_of(v, i), (size_t)op->imm[2].i, (size_t)v->cols);
}

/* The first member's piece comes last. */
static void turn_pieces(const tpl_rank *r, int i, const tpl_step *step)
{
    const tpl_view *in = &r->ops[i].in[0], *out = &r->ops[i].out[0];
    int64_t rows = tpl_view_rows(out, step);
    if (!r->colls[i].from.index)
        turn(out->data, (size_t)(tpl_view_rows(in, step) * in->cols), (size_t)(rows * out->cols));
    else
        for (int64_t k = 0; k < rows; k++) turn(row_of(out, k), (size_t)in->cols, (size_t)out->cols);
}

static void multiply(const tpl_view *v, const tpl_step *step, float by)
{
    for (int64_t i = 0; i < tpl_view_rows(v, step); i++)
        for (int64_t c = 0; c < v->cols; c++) row_of(v, i)[c] *= by;
}

bool tpl_fault_after(tpl_rank *r, int op, int ith, const tpl_step *step)
{
    const tpl_fault *f = &r->engine->desc.fault;
    const tpl_bound *b = &r->ops[op];
    tpl_fault_kind kind = (tpl_fault_kind)r->faults[op];
    bool mine = kind == TPL_FAULT_DROP_ALL_REDUCE || kind == TPL_FAULT_DOUBLE_ALL_REDUCE ||
                kind == TPL_FAULT_WRONG_GATHER_ORDER || kind == TPL_FAULT_WRONG_HEAD_MAP;
    if (!mine || (f->step >= 0 && (uint64_t)f->step != step->id)) return true;
    if (!tpl_team_barrier(r->team, ith)) return false;
    if (!ith && kind == TPL_FAULT_DROP_ALL_REDUCE)
        memcpy(b->out[0].data, b->in[0].data, (size_t)tpl_view_rows(&b->in[0], step) * b->in[0].stride);
    if (!ith && kind == TPL_FAULT_DOUBLE_ALL_REDUCE)
        multiply(&b->out[0], step, (float)tpl_group_size(r->groups[r->prog->ops[op].group]));
    if (!ith && kind == TPL_FAULT_WRONG_GATHER_ORDER) turn_pieces(r, op, step);
    if (!ith && kind == TPL_FAULT_WRONG_HEAD_MAP) turn_heads(b, step);
    return tpl_team_barrier(r->team, ith);
}
