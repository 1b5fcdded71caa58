/* SPDX-License-Identifier: Apache-2.0
 *
 * Transport "shm": ranks of one process. Nothing is copied in: a member publishes where its `in` lies, and
 * the others read it there.
 *
 *   arrive    the last thread of a member publishes {in, out}; the last member opens the group's gate
 *   pull      each thread fills its share of its member's out from the published buffers
 *   leave     the same meeting once more: after it every in may be overwritten, every out is complete
 *
 * So a collective costs two meetings of the group and is its team's barrier before and after; DeepSpeed's shm
 * all-reduce saves the second by copying into double buffers first (facts/perf.md), which pays only for the
 * smallest messages. A meeting is one counter for the members, one per member for its threads, and one gate
 * on which everyone sleeps if it takes long: one wake-up ends them all.
 */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/gate.h"
#include "base/mem.h"
#include "comm/pull_priv.h"
#include "comm/transport.h"

enum { MAX_MEMBERS = 64 };

typedef struct shared shared;

/* One member's end. `in` and `out` are written by the last thread of the member to arrive and read by
 * others until the next meeting; what the watchdog reads at any time is atomic. */
typedef struct member {
    tpl_group base;
    shared *group;
    alignas(TPL_LINE) _Atomic uint32_t arrived; /* threads of this member's team */
    alignas(TPL_LINE) const float *in;
    float *out;
    _Atomic uint32_t meeting; /* the last meeting this member came to */
    _Atomic uint32_t cseq;
    _Atomic size_t bytes;
    _Atomic(const char *) name;
} member;

struct shared {
    int size;
    uint32_t spin;
    tpl_abort *abort;
    int *ranks;
    member *members;
    alignas(TPL_LINE) _Atomic uint32_t arrived; /* members */
    alignas(TPL_LINE) tpl_gate gate;            /* meetings so far */
};

typedef struct shm_comm {
    tpl_comm base;
    int n_groups;
    shared *groups;
} shm_comm;

/* -- Meetings -------------------------------------------------------------------------------------------- */

/* c not NULL: publishes it. The number of the next meeting cannot change before this thread's member has
 * come. */
static bool meet(member *me, const tpl_coll *c, int nth)
{
    shared *g = me->group;
    uint32_t next = atomic_load_explicit(&g->gate.word, memory_order_relaxed) + 1;
    if (nth > 1 && atomic_fetch_add_explicit(&me->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)nth)
        return tpl_gate_wait(&g->gate, next, g->spin, g->abort);
    atomic_store_explicit(&me->arrived, 0, memory_order_relaxed);
    if (c) {
        me->in = c->in;
        me->out = c->out;
        atomic_store_explicit(&me->cseq, c->cseq, memory_order_relaxed);
        atomic_store_explicit(&me->bytes, tpl_coll_in_bytes(c, g->size), memory_order_relaxed);
        atomic_store_explicit(&me->name, c->name, memory_order_relaxed);
    }
    atomic_store_explicit(&me->meeting, next, memory_order_release);
    if (atomic_fetch_add_explicit(&g->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)g->size)
        return tpl_gate_wait(&g->gate, next, g->spin, g->abort);
    atomic_store_explicit(&g->arrived, 0, memory_order_relaxed);
    tpl_gate_set(&g->gate, next);
    return true;
}

/* -- Collectives ----------------------------------------------------------------------------------------- */

/* One shot reads size * N elements per member, two phases read N and copy N * (size - 1) / size, but meet
 * once more. Two members gain a quarter of the reads at best, so the third meeting must be cheap beside
 * them. Both give the same bits. Bytes, from tpl_comm_time on two cores, 2026-11-30: pair 64 KB 10 us
 * against 20, 256 KB 39 against 33; four ranks on two cores 64 KB 80 against 43. */
enum { TWO_PHASE_MANY = 64 << 10, TWO_PHASE_PAIR = 256 << 10 };

static bool in_two_phases(const tpl_coll *c, int size)
{
    size_t bytes = (size_t)(c->rows * c->in_cols) * sizeof(float);
    return c->kind == TPL_COLL_ALL_REDUCE && size > 1 &&
           bytes >= (size_t)(size > 2 ? TWO_PHASE_MANY : TWO_PHASE_PAIR);
}

static bool run(tpl_group *base, const tpl_coll *c, tpl_team *team, int ith)
{
    member *me = (member *)base;
    shared *g = me->group;
    int nth = team ? tpl_team_size(team) : 1;
    const float *in[MAX_MEMBERS];
    float *out[MAX_MEMBERS];
    if (!meet(me, c, nth)) return false;
    if (c->kind == TPL_COLL_BARRIER) return true;
    for (int m = 0; m < g->size; m++) {
        in[m] = g->members[m].in;
        out[m] = g->members[m].out;
    }
    tpl_pull p = { .coll = c, .size = g->size, .index = base->index, .in = in, .ith = ith, .nth = nth };
    if (in_two_phases(c, g->size)) {
        tpl_pull_own_slice(&p);
        if (!meet(me, NULL, nth)) return false;
        tpl_pull_other_slices(&p, out);
    } else {
        tpl_pull_run(&p);
    }
    return meet(me, NULL, nth);
}

/* A member waits when it has come to a meeting that is not over. The gate is read again at the end: if it
 * moved, nobody waits any more. */
static uint64_t absent(const tpl_group *base, size_t *bytes, const char **name, uint32_t *cseq)
{
    member *me = (member *)(uintptr_t)base;
    shared *g = me->group;
    uint64_t mask = 0;
    uint32_t next = tpl_gate_get(&g->gate) + 1;
    if (atomic_load_explicit(&me->meeting, memory_order_acquire) != next) return 0;
    for (int m = 0; m < g->size; m++)
        if (atomic_load_explicit(&g->members[m].meeting, memory_order_acquire) != next)
            mask |= (uint64_t)1 << m;
    size_t n = atomic_load_explicit(&me->bytes, memory_order_relaxed);
    uint32_t seq = atomic_load_explicit(&me->cseq, memory_order_relaxed);
    const char *what = atomic_load_explicit(&me->name, memory_order_acquire);
    if (tpl_gate_get(&g->gate) + 1 != next) return 0;
    if (bytes) *bytes = n;
    if (cseq) *cseq = seq;
    if (name) *name = what;
    return mask;
}

/* -- Opening --------------------------------------------------------------------------------------------- */

static void close_comm(tpl_comm *base)
{
    shm_comm *c = (shm_comm *)base;
    for (int i = 0; c->groups && i < c->n_groups; i++) {
        tpl_mem_free(c->groups[i].ranks);
        tpl_mem_free(c->groups[i].members);
    }
    tpl_mem_free(c->groups);
    tpl_mem_free(c);
}

static bool open_group(shared *g, const tpl_comm_desc *desc, int i)
{
    g->size = desc->group_sizes[i];
    g->spin = desc->spin;
    g->abort = desc->abort;
    g->ranks = tpl_mem_alloc((size_t)g->size * sizeof *g->ranks);
    g->members = tpl_mem_alloc((size_t)g->size * sizeof *g->members);
    if (!g->ranks || !g->members) return false;
    memcpy(g->ranks, desc->group_ranks[i], (size_t)g->size * sizeof *g->ranks);
    for (int m = 0; m < g->size; m++) {
        g->members[m].base =
            (tpl_group){ .transport = &tpl_transport_shm, .size = g->size, .index = m, .ranks = g->ranks };
        g->members[m].group = g;
    }
    return true;
}

static tpl_status open_comm(tpl_comm **out, const tpl_comm_desc *desc, tpl_err *err)
{
    shm_comm *c = tpl_mem_alloc(sizeof *c);
    if (!c) return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for %d groups", desc->n_groups);
    c->base.transport = &tpl_transport_shm;
    c->n_groups = desc->n_groups;
    c->groups = tpl_mem_alloc((size_t)desc->n_groups * sizeof *c->groups);
    for (int i = 0; i < desc->n_groups; i++)
        if (!c->groups || !open_group(&c->groups[i], desc, i)) {
            close_comm(&c->base);
            return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for %d groups", desc->n_groups);
        }
    *out = &c->base;
    return TPL_OK;
}

static tpl_group *group(tpl_comm *base, int g, int rank)
{
    shm_comm *c = (shm_comm *)base;
    if (g < 0 || g >= c->n_groups) return NULL;
    for (int m = 0; m < c->groups[g].size; m++)
        if (c->groups[g].ranks[m] == rank) return &c->groups[g].members[m].base;
    return NULL;
}

/* The gate keeps its count; members that came to an unfinished meeting did not. */
static void reset(tpl_comm *base)
{
    shm_comm *c = (shm_comm *)base;
    for (int i = 0; i < c->n_groups; i++) {
        shared *g = &c->groups[i];
        atomic_store(&g->arrived, 0);
        for (int m = 0; m < g->size; m++) {
            atomic_store(&g->members[m].arrived, 0);
            atomic_store(&g->members[m].meeting, tpl_gate_get(&g->gate));
        }
    }
}

const tpl_transport tpl_transport_shm = {
    .name = "shm",
    .open = open_comm,
    .close = close_comm,
    .group = group,
    .run = run,
    .absent = absent,
    .reset = reset,
};
