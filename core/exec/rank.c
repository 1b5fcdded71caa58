/* SPDX-License-Identifier: Apache-2.0
 *
 * From program to bound ops: views into the arena, packed weights, caches, collectives.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "base/mem.h"
#include "base/numa.h"
#include "exec/engine_priv.h"

/* -- Memory ----------------------------------------------------------------------------------------------- */

static tpl_status kv_layout(tpl_rank *r, size_t *total, tpl_err *err)
{
    const tpl_engine_desc *d = &r->engine->desc;
    uint64_t at = 0, esize = d->kv_dtype == TPL_DTYPE_F16 ? 2 : 4;
    for (int i = 0; i < r->prog->n_states; i++) {
        tpl_kv_pool *kv = &r->kvs[i];
        *kv = (tpl_kv_pool){ .dtype = d->kv_dtype,
                             .page = d->kv_page,
                             .n_pages = d->kv_pages,
                             .kvh = (int32_t)tpl_num_get(r->prog, r->prog->states[i].kvh, r->local),
                             .hd = (int32_t)tpl_num_get(r->prog, r->prog->states[i].hd, r->local) };
        uint64_t bytes = esize;
        bool ok = ck_mul(bytes, (uint64_t)kv->page, &bytes) && ck_mul(bytes, (uint64_t)kv->kvh, &bytes) &&
                  ck_mul(bytes, (uint64_t)kv->hd, &bytes) && ck_mul(bytes, (uint64_t)kv->n_pages, &bytes) &&
                  ck_align(bytes, 4096, &bytes);
        for (int j = 0; ok && j < 2; j++) {
            void **part = j ? &kv->v : &kv->k;
            *part = r->kv_mem ? r->kv_mem + at : NULL;
            ok = ck_add(at, bytes, &at);
        }
        if (!ok) return tpl_fail(err, TPL_ERR_MEM, 0, "kv.tokens", "the size of the KV cache overflows");
    }
    *total = at;
    return TPL_OK;
}

static tpl_status make_tables(tpl_rank *r, tpl_err *err)
{
    for (int i = 0; i < r->prog->n_tables; i++) {
        const tpl_prog_table *t = &r->prog->tables[i];
        r->tables[i] = tpl_mem_alloc((size_t)t->n * sizeof(float));
        if (!r->tables[i]) return tpl_fail(err, TPL_ERR_MEM, 0, t->name, "out of memory");
        for (int j = 0; j < t->n; j++) r->tables[i][j] = (float)t->v[j];
    }
    return TPL_OK;
}

static void note_refusal(tpl_rank *r, int sys)
{
    int none = 0;
    if (sys) atomic_compare_exchange_strong(&r->engine->numa_error, &none, sys);
}

void tpl_rank_bind_self(tpl_rank *r)
{
    if (r->place.numa >= 0) note_refusal(r, tpl_numa_bind_self(r->place.numa));
}

/* Nothing is touched before it is bound, so it does not matter which thread asks. */
static tpl_status map(tpl_rank *r, char **out, size_t bytes, const char *what, tpl_err *err)
{
    void *p = NULL;
    tpl_err e = { 0 };
    if (bytes && tpl_mem_map(&p, bytes, &e))
        return tpl_fail(err, TPL_ERR_MEM, e.sys, "memory", "rank %d: no room for %zu bytes of %s", r->rank, bytes, what);
    if (p && r->place.numa >= 0) note_refusal(r, tpl_numa_bind_range(p, bytes, r->place.numa));
    *out = p;
    return TPL_OK;
}

tpl_status tpl_rank_init(tpl_rank *r, tpl_err *err)
{
    const tpl_program *p = r->prog;
    size_t ops = (size_t)p->n_ops;
    atomic_store(&r->at_op, TPL_RANK_IDLE);
    r->weights = calloc((size_t)p->n_weights + 1, sizeof *r->weights);
    r->kvs = calloc((size_t)p->n_states + 1, sizeof *r->kvs);
    r->tables = calloc((size_t)p->n_tables + 1, sizeof *r->tables);
    r->ops = calloc(ops, sizeof *r->ops);
    r->colls = calloc(ops, sizeof *r->colls);
    r->lists = calloc(ops, sizeof *r->lists);
    r->faults = calloc(ops, 1);
    r->groups = calloc((size_t)p->n_groups + 1, sizeof *r->groups);
    r->threads = calloc((size_t)r->nth, sizeof *r->threads);
    r->args = calloc((size_t)r->nth, sizeof *r->args);
    if (!r->weights || !r->kvs || !r->tables || !r->ops || !r->colls || !r->lists || !r->faults || !r->groups ||
        !r->threads || !r->args)
        return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    TPL_TRY(tpl_team_new(&r->team, r->nth, r->engine->spin, r->engine->abort, err));
    TPL_TRY(make_tables(r, err));
    TPL_TRY(tpl_weights_measure(p, r->local, r->weights, &r->weight_bytes, err));
    TPL_TRY(map(r, &r->weight_mem, r->weight_bytes, "weights", err));
    tpl_weights_place(p, r->weights, r->weight_mem);
    TPL_TRY(map(r, &r->arena, (size_t)p->arena_bytes, "activations", err));
    TPL_TRY(kv_layout(r, &r->kv_bytes, err));
    TPL_TRY(map(r, &r->kv_mem, r->kv_bytes, "KV cache", err));
    TPL_TRY(kv_layout(r, &r->kv_bytes, err));
    r->scratch_bytes = (r->engine->backend->scratch_bytes + 4095) & ~(size_t)4095;
    TPL_TRY(map(r, &r->scratch, r->scratch_bytes * (size_t)r->nth, "scratch", err));
    return tpl_rank_plant(r, err);
}

void tpl_rank_free(tpl_rank *r)
{
    for (int i = 0; r->tables && i < r->prog->n_tables; i++) tpl_mem_free(r->tables[i]);
    for (int i = 0; r->lists && i < r->prog->n_ops; i++) free(r->lists[i]);
    if (r->prog) tpl_mem_unmap(r->arena, (size_t)r->prog->arena_bytes);
    tpl_mem_unmap(r->weight_mem, r->weight_bytes);
    tpl_mem_unmap(r->kv_mem, r->kv_bytes);
    tpl_mem_unmap(r->scratch, r->scratch_bytes * (size_t)r->nth);
    tpl_team_free(r->team);
    free(r->stale);
    free(r->weights);
    free(r->kvs);
    free(r->tables);
    free(r->ops);
    free(r->colls);
    free(r->lists);
    free(r->faults);
    free(r->groups);
    free(r->threads);
    free(r->args);
}

/* -- Binding ---------------------------------------------------------------------------------------------- */

static tpl_view view_of(const tpl_rank *r, int id)
{
    const tpl_prog_value *v = &r->prog->values[id];
    int64_t cols = tpl_num_get(r->prog, v->cols, r->local);
    return (tpl_view){ .data = r->arena + v->offset,
                       .act = v->act,
                       .sym = v->sym,
                       .div = v->div,
                       .cols = cols,
                       .stride = tpl_row_bytes(v->act, cols) };
}

static tpl_status resolve_imms(tpl_rank *r, const tpl_prog_op *d, tpl_bound *op, tpl_err *err)
{
    const char *s = tpl_op_infos[d->kind].imm;
    for (int i = 0; i < d->n_imm; i++) {
        while (*s != ':') s++;
        bool is_float = s[1] == 'f';
        s++;
        if (is_float)
            op->imm[i].f = d->imm[i].k >= 0 ? (double)tpl_num_get(r->prog, d->imm[i], r->local) : d->imm[i].f;
        else
            op->imm[i].i = tpl_num_get(r->prog, d->imm[i], r->local);
    }
    int at = tpl_op_imm(d->kind, "index");
    if (at >= 0 && op->imm[at].i >= 0) {
        if (op->imm[at].i >= r->prog->n_indices)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name, "index list %" PRId64 " is not defined", op->imm[at].i);
        op->index = &r->prog->indices[op->imm[at].i];
    }
    at = tpl_op_imm(d->kind, "freqs");
    if (at >= 0) {
        int64_t t = op->imm[at].i, rot = op->imm[tpl_op_imm(d->kind, "rot")].i;
        if (t < 0 || t >= r->prog->n_tables || r->prog->tables[t].n * 2 < rot)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name,
                            "table %" PRId64 " does not hold the frequencies of %" PRId64 " dims", t, rot);
        op->freqs = r->tables[t];
    }
    return TPL_OK;
}

/* The index lists of every member of this rank's group, by the value of a rank constant on that member. */
static tpl_status member_lists(tpl_rank *r, int i, tpl_num n, int at, const tpl_index *const **out, tpl_err *err)
{
    const tpl_prog_op *d = &r->prog->ops[i];
    const tpl_group *g = r->groups[d->group];
    int size = tpl_group_size(g);
    if (!r->lists[i]) r->lists[i] = calloc((size_t)size * 2, sizeof **r->lists);
    if (!r->lists[i]) return tpl_fail(err, TPL_ERR_MEM, 0, d->name, "out of memory");
    for (int m = 0; m < size; m++) {
        int64_t x = tpl_num_get(r->prog, n, tpl_group_ranks(g)[m] - r->prog->first_rank);
        if (x < 0) return TPL_OK; /* the rows are cut */
        if (x >= r->prog->n_indices)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name, "index list %" PRId64 " is not defined", x);
        r->lists[i][at * size + m] = &r->prog->indices[x];
    }
    *out = r->lists[i] + at * size;
    return TPL_OK;
}

/* With the fewest rows a step can have: what divides these divides all. */
static tpl_status check_coll(tpl_rank *r, int i, tpl_err *err)
{
    const tpl_bound *op = &r->ops[i];
    const tpl_group *g = r->groups[r->prog->ops[i].group];
    const tpl_step least = { .pad_tok = (int32_t)r->engine->pad_tok, .pad_out = (int32_t)r->engine->pad_out };
    tpl_coll c = r->colls[i];
    int64_t in = tpl_view_rows(&op->in[0], &least), out = tpl_view_rows(&op->out[0], &least);
    c.rows = in > out ? in : out;
    return tpl_coll_check(&c, tpl_group_size(g), tpl_group_index(g), err);
}

static tpl_status bind_coll(tpl_rank *r, int i, tpl_err *err)
{
    static const tpl_coll_kind kinds[] = { TPL_COLL_ALL_REDUCE, TPL_COLL_REDUCE_SCATTER, TPL_COLL_ALL_GATHER,
                                           TPL_COLL_ALL_TO_ALL, TPL_COLL_GATHER };
    const tpl_prog_op *d = &r->prog->ops[i];
    const tpl_bound *op = &r->ops[i];
    tpl_coll *c = &r->colls[i];
    if (d->n_in != 1 || d->n_out != 1 || op->in[0].act != TPL_ACT_F32 || op->out[0].act != TPL_ACT_F32)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name, "a collective takes one float32 value and gives one");
    if (!r->groups[d->group])
        return tpl_fail(err, TPL_ERR_FORMAT, 0, d->name, "rank %d is in no group over %s", r->rank,
                        r->prog->groups[d->group].axes);
    *c = (tpl_coll){ .kind = kinds[d->kind - TPL_OP_ID_ALL_REDUCE],
                     .in = op->in[0].data,
                     .out = op->out[0].data,
                     .in_cols = op->in[0].cols,
                     .out_cols = op->out[0].cols,
                     .cseq = (uint32_t)d->cseq,
                     .name = d->name };
    if (d->n_imm >= 4) {
        tpl_coll_part *part = c->kind == TPL_COLL_REDUCE_SCATTER ? &c->to : &c->from;
        part->outer = op->imm[0].i, part->n = op->imm[1].i, part->inner = op->imm[2].i;
        TPL_TRY(member_lists(r, i, d->imm[3], 0, &part->index, err));
    }
    if (d->n_imm >= 8) {
        c->to.outer = op->imm[4].i, c->to.n = op->imm[5].i, c->to.inner = op->imm[6].i;
        TPL_TRY(member_lists(r, i, d->imm[7], 1, &c->to.index, err));
    }
    return check_coll(r, i, err);
}

static tpl_status bind_op(tpl_rank *r, int i, tpl_err *err)
{
    const tpl_prog_op *d = &r->prog->ops[i];
    tpl_bound *op = &r->ops[i];
    *op = (tpl_bound){
        .name = d->name, .kind = d->kind, .layer = d->layer, .n_out = d->n_out, .n_in = d->n_in, .n_w = d->n_w
    };
    for (int j = 0; j < d->n_out; j++) op->out[j] = view_of(r, d->out[j]);
    for (int j = 0; j < d->n_in; j++) op->in[j] = view_of(r, d->in[j]);
    for (int j = 0; j < d->n_w; j++) op->w[j] = &r->weights[d->w[j]];
    if (d->state >= 0) op->kv = &r->kvs[d->state];
    TPL_TRY(resolve_imms(r, d, op, err));
    tpl_fault_bind(r, i, op);
    uint32_t flags = tpl_op_infos[d->kind].flags;
    if (flags & TPL_OP_COLL) return bind_coll(r, i, err);
    if (flags & TPL_OP_XFER) return TPL_OK;
    TPL_TRY(r->engine->backend->bind(r->engine->desc.isa, op, err));
    tpl_fault_bound(r, i, op);
    return TPL_OK;
}

tpl_status tpl_rank_bind(tpl_rank *r, tpl_err *err)
{
    for (int i = 0; i < r->prog->n_ops; i++) TPL_TRY(bind_op(r, i, err));
    return TPL_OK;
}
