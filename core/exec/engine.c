/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/mem.h"
#include "base/time.h"
#include "exec/engine_priv.h"

/* -- Opening ---------------------------------------------------------------------------------------------- */

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Row counts must divide by every divisor that a value of the symbol has; the largest step must, too. */
static tpl_status padding(const tpl_engine_desc *d, tpl_sym sym, uint32_t cap, uint32_t *out, tpl_err *err)
{
    uint64_t n = 1;
    for (int s = 0; s < d->n_stages; s++)
        for (int i = 0; n <= cap && i < d->programs[s]->n_values; i++) {
            const tpl_prog_value *v = &d->programs[s]->values[i];
            if (v->sym == sym) n = n / gcd((uint32_t)n, v->div) * v->div;
        }
    *out = (uint32_t)n;
    if (n <= cap && cap % n == 0) return TPL_OK;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, "program",
                    "the largest step has %u rows, which do not divide by the cuts of its values", cap);
}

/* What the ranks take for granted about programs that were read one by one. */
static tpl_status check_programs(const tpl_engine_desc *d, tpl_err *err)
{
    for (int s = 0, first = 0; s < d->n_stages; first += d->programs[s++]->n_ranks) {
        const tpl_program *p = d->programs[s];
        if (p->stage != s || p->first_rank != first)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, "program",
                            "stage %d from rank %d stands where stage %d from rank %d belongs", p->stage,
                            p->first_rank, s, first);
        if (p->caps.tok != d->caps.tok || p->caps.seq != d->caps.seq || p->caps.out != d->caps.out ||
            p->caps.vocab != d->caps.vocab)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, "program", "stage %d is planned for steps of another size", s);
        for (int i = 0; i < p->n_ops; i++)
            if ((p->ops[i].kind == TPL_OP_ID_SEND && s + 1 == d->n_stages) ||
                (p->ops[i].kind == TPL_OP_ID_RECV && !s))
                return tpl_fail(err, TPL_ERR_FORMAT, 0, p->ops[i].name, "no stage is at the other end");
    }
    return TPL_OK;
}

static tpl_status open_slots(tpl_engine *e, tpl_err *err)
{
    int n = e->desc.n_stages + 1;
    e->slots = calloc((size_t)n, sizeof *e->slots);
    e->taps = calloc((size_t)n, sizeof *e->taps);
    for (int i = 0; e->slots && i < n; i++) {
        void *p;
        TPL_TRY(tpl_mem_map(&p, tpl_step_bytes(&e->desc.caps), err));
        e->slots[i] = p;
        tpl_step_init(e->slots[i], &e->desc.caps);
    }
    return e->slots && e->taps ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
}

/* All groups of all stages become groups of one communicator; every rank gets its end of each. */
static tpl_status open_comm(tpl_engine *e, tpl_err *err)
{
    int n = 0, at = 0;
    for (int s = 0; s < e->desc.n_stages; s++)
        for (int g = 0; g < e->desc.programs[s]->n_groups; g++) n += e->desc.programs[s]->groups[g].n;
    int *sizes = calloc((size_t)n + 1, sizeof *sizes);
    const int **ranks = calloc((size_t)n + 1, sizeof *ranks);
    tpl_status st = sizes && ranks ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    for (int s = 0; !st && s < e->desc.n_stages; s++)
        for (int g = 0; g < e->desc.programs[s]->n_groups; g++)
            for (int i = 0; i < e->desc.programs[s]->groups[g].n; i++, at++) {
                sizes[at] = e->desc.programs[s]->groups[g].sizes[i];
                ranks[at] = e->desc.programs[s]->groups[g].ranks[i];
            }
    tpl_comm_desc d = { .n_ranks = e->n_ranks,
                        .n_groups = n,
                        .group_sizes = sizes,
                        .group_ranks = ranks,
                        .spin = e->spin,
                        .abort = e->abort };
    if (!st) st = tpl_comm_open(&e->comm, "shm", &d, err);
    at = 0;
    for (int s = 0; !st && s < e->desc.n_stages; s++)
        for (int g = 0; g < e->desc.programs[s]->n_groups; g++)
            for (int i = 0; i < e->desc.programs[s]->groups[g].n; i++, at++)
                for (int k = 0; k < sizes[at]; k++)
                    e->ranks[ranks[at][k]].groups[g] = tpl_comm_group(e->comm, at, ranks[at][k]);
    free(sizes);
    free(ranks);
    return st;
}

static size_t cut_bytes(const tpl_program *p)
{
    size_t most = 0;
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind != TPL_OP_ID_SEND) continue;
        const tpl_prog_value *v = &p->values[p->ops[i].in[0]];
        for (int r = 0; r < p->n_ranks; r++) {
            size_t b = (size_t)tpl_num_get(p, v->cols, r) * 4 * p->caps.tok;
            if (b > most) most = b;
        }
    }
    return most;
}

static tpl_status open_cuts(tpl_engine *e, tpl_err *err)
{
    int n = e->desc.n_stages;
    e->cut_first = calloc((size_t)n, sizeof *e->cut_first);
    for (int s = 0; s + 1 < n; s++) {
        if (e->cut_first) e->cut_first[s] = e->n_cuts;
        e->n_cuts += e->desc.programs[s + 1]->n_ranks;
    }
    e->cuts = calloc((size_t)e->n_cuts + 1, sizeof *e->cuts);
    if (!e->cut_first || !e->cuts) return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    for (int s = 0; s + 1 < n; s++)
        for (int j = 0; j < e->desc.programs[s + 1]->n_ranks; j++)
            TPL_TRY(tpl_channel_new(&e->cuts[e->cut_first[s] + j], 1, n + 1, cut_bytes(e->desc.programs[s]), e->spin,
                                    e->abort, err));
    return TPL_OK;
}

static bool holds(const tpl_place *p, int cpu)
{
    for (int i = 0; i < p->n_cpus; i++)
        if (p->cpus[i] == cpu) return true;
    return false;
}

/* Whether the places have fewer cores than threads run on them: then nobody may spin. */
static bool are_places_crowded(const tpl_engine_desc *d)
{
    int wanted = 0, cores = 0;
    for (int k = 0; k < d->n_places; k++) {
        const tpl_place *p = &d->places[k];
        if (!p->n_cpus) continue;
        if (p->n_cpus < d->threads) return true;
        wanted += d->threads;
        for (int i = 0; i < p->n_cpus; i++) {
            bool seen = false;
            for (int j = 0; j < k && !seen; j++) seen = holds(&d->places[j], p->cpus[i]);
            cores += !seen;
        }
    }
    return wanted > cores;
}

static tpl_status open_ranks(tpl_engine *e, tpl_err *err)
{
    for (int s = 0; s < e->desc.n_stages; s++) e->n_ranks += e->desc.programs[s]->n_ranks;
    e->n_threads = e->n_ranks * e->desc.threads;
    if (e->desc.places && e->desc.n_places != e->n_ranks)
        return tpl_fail(err, TPL_ERR_ARG, 0, "ranks", "places for %d ranks are given, there are %d", e->desc.n_places,
                        e->n_ranks);
    e->spin = are_places_crowded(&e->desc) ? 0 : tpl_spin_budget(e->n_threads);
    e->ranks = tpl_mem_alloc((size_t)e->n_ranks * sizeof *e->ranks);
    if (!e->ranks) return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    for (int s = 0, k = 0; s < e->desc.n_stages; s++)
        for (int r = 0; r < e->desc.programs[s]->n_ranks; r++, k++) {
            e->ranks[k].engine = e;
            e->ranks[k].prog = e->desc.programs[s];
            e->ranks[k].rank = k;
            e->ranks[k].local = r;
            e->ranks[k].nth = e->desc.threads;
            e->ranks[k].place = e->desc.places ? e->desc.places[k] : (tpl_place){ .numa = -1 };
        }
    for (int k = 0; k < e->n_ranks; k++) TPL_TRY(tpl_rank_init(&e->ranks[k], err));
    return TPL_OK;
}

/* -- Loading ---------------------------------------------------------------------------------------------- */

typedef struct loader {
    tpl_rank *rank;
    tpl_err err;
    _Atomic int *running;
} loader;

static void load_main(void *arg)
{
    loader *l = arg;
    tpl_rank_bind_self(l->rank);
    (void)!tpl_weights_load(&l->rank->job, &l->err);
    atomic_fetch_sub(l->running, 1);
}

static void report(const tpl_engine *e)
{
    if (!e->desc.progress) return;
    for (int k = 0; k < e->n_ranks; k++)
        e->desc.progress(e->desc.progress_ctx, k, atomic_load(&e->ranks[k].job.done_bytes), e->ranks[k].weight_bytes);
}

static tpl_status load(tpl_engine *e, tpl_err *err)
{
    _Atomic bool stop = false;
    _Atomic int running = e->n_threads;
    loader *l = calloc((size_t)e->n_threads, sizeof *l);
    tpl_thread **threads = calloc((size_t)e->n_threads, sizeof *threads);
    tpl_status st = l && threads ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    for (int k = 0; k < e->n_ranks; k++) {
        tpl_rank *r = &e->ranks[k];
        r->job.prog = r->prog, r->job.cp = e->desc.checkpoint, r->job.local = r->local, r->job.weights = r->weights,
        r->job.stop = &stop;
        r->job.fault = e->desc.fault.kind != TPL_FAULT_NONE ? &e->desc.fault : NULL;
    }
    int n = 0;
    for (; !st && n < e->n_threads; n++) {
        const tpl_place *p = &e->ranks[n % e->n_ranks].place;
        l[n] = (loader){ .rank = &e->ranks[n % e->n_ranks], .running = &running };
        tpl_thread_desc d = {
            .fn = load_main, .arg = &l[n], .name = "tpl-load", .cpus = p->cpus, .n_cpus = p->n_cpus
        };
        st = tpl_thread_start(&threads[n], &d, err);
        if (st) break;
    }
    atomic_fetch_sub(&running, e->n_threads - n);
    if (st) atomic_store(&stop, true);
    while (atomic_load(&running) > 0) {
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        report(e);
    }
    for (int i = 0; i < n; i++) {
        tpl_thread_join(threads[i]);
        if (!st && l[i].err.code) {
            if (err) *err = l[i].err;
            st = l[i].err.code;
        }
    }
    report(e);
    free(l);
    free(threads);
    return st;
}

/* -- Threads ---------------------------------------------------------------------------------------------- */

enum { MAX_PINNED = 1024 }; /* beyond, the system places the threads */

/* Thread i's part of its rank's cores: a core each, or more where there are more; with fewer cores than threads they
 * share all. On a busy machine a team that shares its set is put on one core again and again: decoding took twice as long
 * (2 threads on 2 cores, load 9). */
static void share_cores(tpl_thread_desc *d, const tpl_place *p, int i, int nth)
{
    int n = p->n_cpus;
    d->cpus = p->cpus;
    d->n_cpus = n;
    if (n < nth) {
        d->start = n ? i % n + 1 : 0;
        return;
    }
    int first = (int)((int64_t)n * i / nth);
    d->cpus = p->cpus + first;
    d->n_cpus = (int)((int64_t)n * (i + 1) / nth) - first;
}

static tpl_status start(tpl_engine *e, tpl_err *err)
{
    int cpus[MAX_PINNED], n = tpl_cpu_list(cpus, MAX_PINNED), at = 0;
    bool pin = e->n_threads <= tpl_cpu_usable() && e->n_threads <= n && e->n_threads <= MAX_PINNED;
    e->seen = calloc((size_t)e->n_ranks, sizeof *e->seen);
    if (!e->seen) return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    for (int k = 0; k < e->n_ranks; k++) {
        tpl_rank *r = &e->ranks[k];
        r->is_pinned = e->desc.places ? r->place.n_cpus > 0 : pin;
        for (int i = 0; i < r->nth; i++, at++) {
            char name[32];
            r->args[i] = (tpl_rank_thread){ r, i };
            snprintf(name, sizeof name, "tpl-r%d.%d", k, i);
            tpl_thread_desc d = { .fn = tpl_rank_main,
                                  .arg = &r->args[i],
                                  .name = name,
                                  .cpus = &cpus[pin ? at : 0],
                                  .n_cpus = pin ? 1 : 0 };
            if (e->desc.places) share_cores(&d, &r->place, i, r->nth);
            TPL_TRY(tpl_thread_start(&r->threads[i], &d, err));
            if (!tpl_thread_is_pinned(r->threads[i])) r->is_pinned = false;
        }
        r->place.cpus = NULL; /* the caller's */
    }
    return tpl_thread_start(&e->watchdog,
                            &(tpl_thread_desc){ .fn = tpl_watchdog_main, .arg = e, .name = "tpl-watchdog" }, err);
}

tpl_status tpl_engine_open(tpl_engine **out, const tpl_engine_desc *desc, tpl_err *err)
{
    *out = NULL;
    tpl_engine *e = tpl_mem_alloc(sizeof *e);
    if (!e) return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    e->desc = *desc;
    e->backend = tpl_backend_cpu();
    int64_t t0 = tpl_now_us();
    tpl_status st = (e->abort = tpl_abort_new()) ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    if (!st) st = check_programs(desc, err);
    if (!st) st = padding(desc, TPL_SYM_TOK, desc->caps.tok, &e->pad_tok, err);
    if (!st) st = padding(desc, TPL_SYM_OUT, desc->caps.out, &e->pad_out, err);
    if (!st) st = open_slots(e, err);
    if (!st) st = open_ranks(e, err);
    if (!st) st = open_comm(e, err);
    if (!st) st = open_cuts(e, err);
    if (!st) st = load(e, err);
    for (int k = 0; !st && k < e->n_ranks; k++) st = tpl_rank_bind(&e->ranks[k], err);
    if (!st) st = start(e, err);
    e->load_us = tpl_now_us() - t0;
    if (st) {
        tpl_engine_close(e);
        return st;
    }
    *out = e;
    return TPL_OK;
}

void tpl_engine_close(tpl_engine *e)
{
    if (!e) return;
    if (tpl_engine_in_flight(e) && e->abort) {
        tpl_err why = { 0 };
        tpl_fail(&why, TPL_ERR_CANCELED, 0, "engine", "closed with steps in flight");
        tpl_abort_raise(e->abort, &why);
    }
    atomic_store(&e->ending, true);
    atomic_fetch_add(&e->head, 1);
    tpl_wake_u32(&e->head);
    atomic_store(&e->watchdog_end, true);
    tpl_thread_join(e->watchdog);
    for (int k = 0; e->ranks && k < e->n_ranks; k++) {
        for (int i = 0; e->ranks[k].threads && i < e->ranks[k].nth; i++) tpl_thread_join(e->ranks[k].threads[i]);
        tpl_rank_free(&e->ranks[k]);
    }
    tpl_mem_free(e->ranks);
    for (int i = 0; e->cuts && i < e->n_cuts; i++) tpl_channel_free(e->cuts[i]);
    free(e->cuts);
    free(e->cut_first);
    tpl_comm_close(e->comm);
    for (int i = 0; e->slots && i <= e->desc.n_stages; i++)
        if (e->slots[i]) tpl_mem_unmap(e->slots[i], tpl_step_bytes(&e->desc.caps));
    free(e->slots);
    free(e->taps);
    free(e->seen);
    tpl_abort_free(e->abort);
    tpl_mem_free(e);
}

/* -- Steps ------------------------------------------------------------------------------------------------ */

int tpl_engine_in_flight(const tpl_engine *e)
{
    return (int)(e->steps - e->tail);
}

int tpl_engine_depth(const tpl_engine *e)
{
    return e->desc.n_stages > 1 ? e->desc.n_stages : 2;
}

tpl_step *tpl_engine_slot(tpl_engine *e)
{
    if (tpl_engine_in_flight(e) >= tpl_engine_depth(e)) return NULL;
    tpl_step *s = e->slots[tpl_engine_ring(e, e->steps)];
    s->n_tok = s->n_seq = s->n_out = 0;
    s->n_pages = s->n_pool = s->n_logit_rows = 0;
    s->continues = false;
    s->status = 0;
    s->bad_op = -1;
    e->taken = true;
    return s;
}

static int32_t round_up(int32_t n, uint32_t unit)
{
    return (int32_t)(((uint32_t)n + unit - 1) / unit * unit);
}

tpl_status tpl_engine_submit(tpl_engine *e, tpl_err *err)
{
    if (!e->taken) return tpl_fail(err, TPL_ERR_ARG, 0, "step", "no slot was taken");
    tpl_step *s = e->slots[tpl_engine_ring(e, e->steps)];
    s->id = e->steps;
    s->pad_tok = round_up(s->n_tok, e->pad_tok);
    s->pad_out = round_up(s->n_out, e->pad_out);
    if ((uint32_t)s->pad_tok > s->cap.tok || (uint32_t)s->pad_out > s->cap.out || (uint32_t)s->n_seq > s->cap.seq)
        return tpl_fail(err, TPL_ERR_ARG, 0, "step", "a step of %d tokens, %d sequences and %d rows exceeds the slot",
                        s->n_tok, s->n_seq, s->n_out);
    for (int i = s->n_tok; i < s->pad_tok; i++) {
        tpl_step_tok(s)[i] = 0;
        tpl_step_pos(s)[i] = 0;
        tpl_step_tok_seq(s)[i] = -1;
    }
    for (int i = s->n_out; i < s->pad_out; i++) {
        tpl_step_out(s)[i] = 0;
        tpl_step_out_seq(s)[i] = -1;
    }
    e->taken = false;
    e->taps[tpl_engine_ring(e, e->steps)] = e->tap;
    e->steps++;
    atomic_store_explicit(&e->head, (uint32_t)e->steps, memory_order_release);
    tpl_wake_u32(&e->head);
    return TPL_OK;
}

tpl_status tpl_engine_wait(tpl_engine *e, tpl_step **out, tpl_err *err)
{
    *out = NULL;
    if (!tpl_engine_in_flight(e)) return tpl_fail(err, TPL_ERR_ARG, 0, "step", "no step is in flight");
    for (int k = 0; k < e->n_ranks; k++)
        if (!tpl_wait_u32(&e->ranks[k].done, (uint32_t)(e->tail + 1), 0, e->abort)) {
            tpl_err why = { 0 };
            tpl_abort_get(e->abort, &why);
            if (err && !err->code) *err = why;
            return why.code ? why.code : TPL_ERR_COMM;
        }
    *out = e->slots[tpl_engine_ring(e, e->tail++)];
    return TPL_OK;
}

void tpl_engine_set_tap(tpl_engine *e, tpl_tap_fn fn, void *ctx)
{
    e->tap = (tpl_tap){ fn, ctx };
}

/* -- What it did ------------------------------------------------------------------------------------------ */

void tpl_engine_get_stats(const tpl_engine *e, tpl_engine_stats *out)
{
    *out = (tpl_engine_stats){ .steps = e->steps,
                               .allocs = tpl_alloc_count(),
                               .load_us = e->load_us,
                               .n_ranks = e->n_ranks,
                               .n_threads = e->n_threads };
    for (int k = 0; k < e->n_ranks; k++) {
        out->read_bytes += atomic_load(&e->ranks[k].job.read_bytes);
        out->weight_bytes += e->ranks[k].weight_bytes;
    }
    out->barriers = tpl_team_count(e->ranks[0].team);
}

tpl_rank_stats tpl_engine_rank_stats(const tpl_engine *e, int rank)
{
    const tpl_rank *r = &e->ranks[rank];
    return (tpl_rank_stats){ .weight_bytes = r->weight_bytes,
                             .arena_bytes = (size_t)r->prog->arena_bytes,
                             .kv_bytes = r->kv_bytes,
                             .read_bytes = atomic_load(&r->job.read_bytes) };
}

bool tpl_engine_is_pinned(const tpl_engine *e, int rank)
{
    return e->ranks[rank].is_pinned;
}

int tpl_engine_numa_error(const tpl_engine *e)
{
    return atomic_load(&e->numa_error);
}

int tpl_engine_fault_hits(const tpl_engine *e)
{
    int n = 0;
    for (int k = 0; k < e->n_ranks; k++) n += e->ranks[k].n_planted;
    return n;
}

const char *tpl_engine_variant(const tpl_engine *e, int rank, int op)
{
    return e->ranks[rank].ops[op].variant;
}
