/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/timing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"
#include "comm/comm.h"

enum { BATCHES = 7, MAX_RANKS = 64, MAX_THREADS = 256 };

typedef struct session session;

typedef struct seat {
    session *session;
    int rank, ith;
    tpl_thread *thread;
} seat;

struct session {
    const tpl_timing_desc *desc;
    int64_t n; /* elements */
    tpl_abort *abort;
    tpl_comm *comm;
    tpl_team *teams[MAX_RANKS];
    seat *seats;
    float *in, *out; /* [ranks][n] */
    double us[BATCHES];
};

static bool one_call(seat *s, tpl_group *g)
{
    session *x = s->session;
    tpl_coll c = {
        .kind = TPL_COLL_ALL_REDUCE, .name = "timing", .rows = 1, .in_cols = x->n, .out_cols = x->n
    };
    if (!x->n) c.kind = TPL_COLL_BARRIER;
    c.in = x->in + s->rank * x->n;
    c.out = x->out + s->rank * x->n;
    return tpl_coll_run(g, &c, x->teams[s->rank], s->ith);
}

static void seat_main(void *arg)
{
    seat *s = arg;
    session *x = s->session;
    tpl_group *g = tpl_comm_group(x->comm, 0, s->rank);
    for (int i = 0; i < 10; i++)
        if (!one_call(s, g)) return;
    for (int b = 0; b < BATCHES; b++) {
        int64_t t0 = tpl_now_ns();
        for (int i = 0; i < x->desc->iters; i++)
            if (!one_call(s, g)) return;
        if (s->rank == 0 && s->ith == 0) x->us[b] = (double)(tpl_now_ns() - t0) / 1000 / x->desc->iters;
    }
}

static tpl_status set_up(session *x, tpl_err *err)
{
    const tpl_timing_desc *d = x->desc;
    int ranks[MAX_RANKS];
    const int *list = ranks;
    uint32_t spin = tpl_spin_budget(d->ranks * d->threads);
    for (int r = 0; r < d->ranks; r++) ranks[r] = r;
    size_t bytes = (size_t)d->ranks * (size_t)x->n * sizeof(float);
    x->abort = tpl_abort_new();
    x->in = tpl_mem_alloc(bytes);
    x->out = tpl_mem_alloc(bytes);
    x->seats = tpl_mem_alloc((size_t)(d->ranks * d->threads) * sizeof *x->seats);
    if (!x->abort || !x->in || !x->out || !x->seats)
        return tpl_fail(err, TPL_ERR_MEM, 0, "bytes", "out of memory for 2 x %zu bytes", bytes);
    for (int64_t i = 0; i < d->ranks * x->n; i++) x->in[i] = (float)(i / x->n + i % x->n % 1000);
    for (int r = 0; r < d->ranks; r++) TPL_TRY(tpl_team_new(&x->teams[r], d->threads, spin, x->abort, err));
    tpl_comm_desc desc = { d->ranks, 1, &d->ranks, &list, spin, x->abort };
    return tpl_comm_open(&x->comm, "shm", &desc, err);
}

/* Starts all seats; if one cannot be started, those that did are sent home. */
static tpl_status run_all(session *x, tpl_err *err)
{
    int n = x->desc->ranks * x->desc->threads, cpus[MAX_THREADS], n_cpus = tpl_cpu_list(cpus, MAX_THREADS);
    bool pin = n <= n_cpus && n <= MAX_THREADS;
    tpl_status st = TPL_OK;
    for (int i = 0; i < n && !st; i++) {
        x->seats[i] = (seat){ x, i / x->desc->threads, i % x->desc->threads, NULL };
        tpl_thread_desc d = { .fn = seat_main,
                              .arg = &x->seats[i],
                              .name = "tpl-timing",
                              .cpus = &cpus[pin ? i : 0],
                              .n_cpus = pin };
        st = tpl_thread_start(&x->seats[i].thread, &d, err);
    }
    if (st) tpl_abort_raise(x->abort, err);
    for (int i = 0; i < n; i++) tpl_thread_join(x->seats[i].thread);
    return st;
}

static void tear_down(session *x)
{
    tpl_comm_close(x->comm);
    for (int r = 0; r < x->desc->ranks; r++) tpl_team_free(x->teams[r]);
    if (x->abort) tpl_abort_free(x->abort);
    tpl_mem_free(x->in);
    tpl_mem_free(x->out);
    tpl_mem_free(x->seats);
}

/* The inputs are small integers: their sums are exact up to 2^24. */
static bool sums_are_right(const session *x)
{
    int64_t ranks = x->desc->ranks;
    for (int64_t i = 0; i < ranks * x->n; i++)
        if (x->out[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % x->n % 1000))) return false;
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

tpl_status tpl_comm_time(tpl_timing *out, const tpl_timing_desc *desc, tpl_err *err)
{
    *out = (tpl_timing){ 0 };
    if (desc->ranks < 1 || desc->ranks > MAX_RANKS || desc->threads < 1 || desc->threads > MAX_THREADS)
        return tpl_fail(err, TPL_ERR_ARG, 0, "ranks", "%d ranks of %d threads, at most %d of %d", desc->ranks,
                        desc->threads, MAX_RANKS, MAX_THREADS);
    if (desc->iters < 1 || desc->bytes > (size_t)1 << 30)
        return tpl_fail(err, TPL_ERR_ARG, 0, "iters", "at least 1 call of at most 1 GiB");
    session x = { .desc = desc, .n = (int64_t)((desc->bytes + 3) / 4) };
    tpl_status st = set_up(&x, err);
    if (!st) st = run_all(&x, err);
    if (!st) {
        qsort(x.us, BATCHES, sizeof *x.us, by_value);
        *out = (tpl_timing){ x.us[BATCHES / 2], x.us[0], x.us[BATCHES - 1], sums_are_right(&x) };
    }
    tear_down(&x);
    return st;
}
