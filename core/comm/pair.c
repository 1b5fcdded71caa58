/* SPDX-License-Identifier: Apache-2.0
 *
 * Both sides have as many threads. In a batch side a writes its buffer with a new pattern, so that the lines are a's and
 * changed, as a rank's partial sums are; then side b copies them into its own memory (the clock runs), then checks its
 * copy. Reading is what the shm transport does (shm.c): a rank pulls from its peers. The buffers are bound to their nodes,
 * and where that is forbidden the first touch by pinned threads puts them there all the same.
 */
#include "comm/pair.h"

#include <stdlib.h>
#include <string.h>

#include "base/gate.h"
#include "base/mem.h"
#include "base/numa.h"
#include "base/thread.h"
#include "base/time.h"

enum { BATCHES = 7, MAX_THREADS = 64, WARM = 100 };

typedef struct pair_session pair_session;

typedef struct pair_seat {
    pair_session *session;
    int ith; /* 0..n-1 write, n..2n-1 read */
    tpl_thread *thread;
} pair_seat;

struct pair_session {
    const tpl_pair_desc *desc;
    int n;            /* threads of a side */
    size_t words;     /* of 8 bytes */
    uint32_t spin;
    uint64_t *src, *dst;
    tpl_abort *abort;
    tpl_team *team;   /* all threads of both sides */
    pair_seat *seats;
    double us[BATCHES], latency_us;
    _Atomic int wrong;
    _Alignas(TPL_LINE) tpl_gate ping;
    _Alignas(TPL_LINE) tpl_gate pong;
};

/* Other words in every batch: what was left by the one before counts as wrong. */
static uint64_t pattern(size_t i, int batch)
{
    return (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)batch;
}

static bool all(pair_seat *s)
{
    return tpl_team_barrier(s->session->team, s->ith);
}

static bool batch(pair_seat *s, int k)
{
    pair_session *x = s->session;
    bool reads = s->ith >= x->n;
    int part = s->ith % x->n;
    size_t first = x->words * (size_t)part / (size_t)x->n, last = x->words * (size_t)(part + 1) / (size_t)x->n;
    for (size_t i = first; !reads && i < last; i++) x->src[i] = pattern(i, k);
    if (!all(s)) return false;
    int64_t t0 = tpl_now_ns();
    if (reads) memcpy(x->dst + first, x->src + first, (last - first) * sizeof *x->dst);
    if (!all(s)) return false;
    if (s->ith == x->n && k > 0) x->us[k - 1] = (double)(tpl_now_ns() - t0) / 1000;
    if (s->ith == x->n && k == x->desc->spoil && k) x->dst[first] ^= 1;
    for (size_t i = first; reads && i < last; i++)
        if (x->dst[i] != pattern(i, k)) {
            x->wrong++;
            break;
        }
    return all(s);
}

/* The first thread of each side; the others wait at the barrier. */
static bool latency(pair_seat *s)
{
    pair_session *x = s->session;
    uint32_t n = (uint32_t)x->desc->iters + WARM;
    int64_t t0 = 0;
    for (uint32_t i = 1; s->ith == 0 && i <= n; i++) {
        if (i == WARM + 1) t0 = tpl_now_ns();
        tpl_gate_set(&x->ping, i);
        if (!tpl_gate_wait(&x->pong, i, x->spin, x->abort)) return false;
    }
    if (s->ith == 0) x->latency_us = (double)(tpl_now_ns() - t0) / 1000 / x->desc->iters / 2;
    for (uint32_t i = 1; s->ith == x->n && i <= n; i++) {
        if (!tpl_gate_wait(&x->ping, i, x->spin, x->abort)) return false;
        tpl_gate_set(&x->pong, i);
    }
    return all(s);
}

static void pair_main(void *arg)
{
    pair_seat *s = arg;
    for (int k = 0; k <= BATCHES; k++) /* batch 0 touches the pages */
        if (!batch(s, k)) return;
    latency(s);
}

static tpl_status map_on(uint64_t **out, size_t bytes, int numa, tpl_err *err)
{
    void *p;
    TPL_TRY(tpl_mem_map(&p, bytes, err));
    if (numa >= 0) (void)tpl_numa_bind_range(p, bytes, numa); /* forbidden: the first touch does it */
    *out = p;
    return TPL_OK;
}

static bool shares_a_core(const tpl_pair_desc *d, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (d->a.cpus[i] == d->b.cpus[j]) return true;
    return false;
}

static tpl_status set_up(pair_session *x, tpl_err *err)
{
    const tpl_pair_desc *d = x->desc;
    x->spin = shares_a_core(d, x->n) ? 0 : tpl_spin_budget(2 * x->n);
    x->abort = tpl_abort_new();
    x->seats = tpl_mem_alloc((size_t)(2 * x->n) * sizeof *x->seats);
    if (!x->abort || !x->seats) return tpl_fail(err, TPL_ERR_MEM, 0, "pair", "out of memory");
    TPL_TRY(tpl_team_new(&x->team, 2 * x->n, x->spin, x->abort, err));
    TPL_TRY(map_on(&x->src, x->words * sizeof *x->src, d->a.numa, err));
    return map_on(&x->dst, x->words * sizeof *x->dst, d->b.numa, err);
}

/* Starts all seats; if one cannot be started, those that did are sent home. */
static tpl_status run_all(pair_session *x, tpl_err *err)
{
    tpl_status st = TPL_OK;
    bool pinned = true;
    for (int i = 0; i < 2 * x->n && !st; i++) {
        const tpl_pair_side *side = i < x->n ? &x->desc->a : &x->desc->b;
        x->seats[i] = (pair_seat){ x, i, NULL };
        tpl_thread_desc d = {
            .fn = pair_main, .arg = &x->seats[i], .name = "tpl-pair", .cpus = &side->cpus[i % x->n], .n_cpus = 1
        };
        st = tpl_thread_start(&x->seats[i].thread, &d, err);
        pinned = pinned && !st && tpl_thread_is_pinned(x->seats[i].thread);
    }
    if (st) tpl_abort_raise(x->abort, err);
    for (int i = 0; i < 2 * x->n; i++) tpl_thread_join(x->seats[i].thread);
    if (!st && !pinned) return tpl_fail(err, TPL_ERR_ARG, 0, "cpus", "this process may not run on the cores that are to be measured");
    return st;
}

static void tear_down(pair_session *x)
{
    tpl_mem_unmap(x->src, x->words * sizeof *x->src);
    tpl_mem_unmap(x->dst, x->words * sizeof *x->dst);
    tpl_team_free(x->team);
    if (x->abort) tpl_abort_free(x->abort);
    tpl_mem_free(x->seats);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

tpl_status tpl_pair_time(tpl_pair_timing *out, const tpl_pair_desc *d, tpl_err *err)
{
    *out = (tpl_pair_timing){ 0 };
    if (d->a.n_cpus < 1 || d->b.n_cpus < 1) return tpl_fail(err, TPL_ERR_ARG, 0, "cpus", "each side needs a core");
    if (d->iters < 1 || d->iters > 1 << 24 || d->bytes < 4096 || d->bytes > (size_t)1 << 30)
        return tpl_fail(err, TPL_ERR_ARG, 0, "bytes", "from 4 KiB to 1 GiB, and at least one round trip");
    int least = d->a.n_cpus < d->b.n_cpus ? d->a.n_cpus : d->b.n_cpus;
    pair_session x = { .desc = d, .n = least < MAX_THREADS ? least : MAX_THREADS, .words = d->bytes / 8 };
    tpl_status st = set_up(&x, err);
    if (!st) st = run_all(&x, err);
    if (!st) {
        qsort(x.us, BATCHES, sizeof *x.us, by_value);
        *out = (tpl_pair_timing){ .gb_s = (double)(x.words * 8) / x.us[BATCHES / 2] / 1000,
                                  .us = x.latency_us,
                                  .data_ok = atomic_load(&x.wrong) == 0,
                                  .threads = x.n };
    }
    tear_down(&x);
    return st;
}
