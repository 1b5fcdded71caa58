/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog samples every rank's black box (op, ops started). A rank whose op does not end within the limit is
 * overdue. One that is overdue because it waits for others is not to blame: the wait is followed to the rank that
 * waits for nobody, and nothing is wrong while that one still makes progress. The report names rank, op, layer,
 * group, sequence number and bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "exec/engine_priv.h"

enum { SAMPLE_MS = 20 };                 /* also the longest that closing waits for this thread */
static const double SLOWEST_FLOPS = 2e8; /* an op gets the time it would take at this rate, on top of the limit */

/* Work of an op in the rank's present step, in floating point operations; only matrix products and attention can be
 * long. */
static double work(const tpl_rank *r, int i)
{
    const tpl_bound *op = &r->ops[i];
    double tok = atomic_load(&r->at_tok), sum = 0;
    for (int j = 0; j < op->n_w; j++) sum += 2.0 * (double)op->w[j]->rows * (double)op->w[j]->cols * tok;
    if (op->kind == TPL_OP_ID_ATTEND && op->kv)
        sum += 4.0 * (double)op->out[0].cols * tok * (double)op->kv->page * (double)op->kv->n_pages;
    return op->kind == TPL_OP_ID_LINEAR || op->kind == TPL_OP_ID_ATTEND ? sum : 0;
}

/* The absent members of the collective that a rank is in. */
static uint64_t absent(const tpl_rank *r, int i, size_t *bytes, uint32_t *cseq)
{
    const char *name;
    *bytes = 0;
    *cseq = 0;
    if (!(tpl_op_infos[r->prog->ops[i].kind].flags & TPL_OP_COLL)) return 0;
    return tpl_group_absent(r->groups[r->prog->ops[i].group], bytes, &name, cseq);
}

static void list_members(const tpl_rank *r, int i, char *out, size_t cap)
{
    const tpl_group *g = r->groups[r->prog->ops[i].group];
    size_t at = (size_t)snprintf(out, cap, "%.32s{", r->prog->groups[r->prog->ops[i].group].axes);
    for (int m = 0; m < tpl_group_size(g) && at + 8 < cap; m++)
        at += (size_t)snprintf(out + at, cap - at, "%s%d", m ? "," : "", tpl_group_ranks(g)[m]);
    if (at + 2 < cap) snprintf(out + at, cap - at, "}");
}

static void report(tpl_engine *e, const tpl_rank *guilty, const tpl_rank *waiter, double seconds)
{
    tpl_err err = { 0 };
    char where[32], tail[200] = "no rank waits for it";
    int g = atomic_load(&guilty->at_op);
    snprintf(where, sizeof where, "rank %d", guilty->rank);
    if (waiter) {
        size_t bytes;
        uint32_t cseq;
        char group[80];
        int w = atomic_load(&waiter->at_op);
        if (w >= 0 && waiter->prog->ops[w].kind == TPL_OP_ID_RECV)
            snprintf(tail, sizeof tail, "rank %d waits in recv for the stage before", waiter->rank);
        else if (w >= 0 && waiter->prog->ops[w].group >= 0) {
            absent(waiter, w, &bytes, &cseq);
            list_members(waiter, w, group, sizeof group);
            snprintf(tail, sizeof tail, "rank %d waits in %s %s, group %s, seq %u, %zu bytes", waiter->rank,
                     tpl_op_infos[waiter->prog->ops[w].kind].name, waiter->prog->ops[w].name, group, cseq, bytes);
        }
    }
    if (g >= 0) {
        const tpl_prog_op *d = &guilty->prog->ops[g];
        char layer[24] = "outside the layers";
        if (d->layer >= 0) snprintf(layer, sizeof layer, "layer %d", d->layer);
        tpl_fail(&err, TPL_ERR_COMM, 0, where, "stalled in op %s (%s), %s, for %.1f s; %s", d->name,
                 tpl_op_infos[d->kind].name, layer, seconds, tail);
    } else
        tpl_fail(&err, TPL_ERR_COMM, 0, where, "left the step early, for %.1f s; %s", seconds, tail);
    tpl_hint(&err, TPL_ERR_COMM, "the step was aborted on all ranks");
    tpl_abort_raise(e->abort, &err);
}

/* -- Who is to blame -------------------------------------------------------------------------------------- */

/* The rank that r waits for: one that is absent from its collective, or the one that feeds it from the stage before.
 * NULL: nobody. */
static const tpl_rank *waits_for(const tpl_engine *e, const tpl_rank *r)
{
    int i = atomic_load(&r->at_op);
    size_t bytes;
    uint32_t cseq;
    if (i < 0) return NULL;
    if (r->prog->ops[i].kind == TPL_OP_ID_RECV) {
        const tpl_program *before = e->desc.programs[r->prog->stage - 1];
        const tpl_rank *feeder = &e->ranks[before->first_rank + r->local % before->n_ranks];
        return atomic_load(&feeder->done) == atomic_load(&r->done) ? feeder : NULL; /* else it has sent */
    }
    uint64_t mask = absent(r, i, &bytes, &cseq);
    return mask ? &e->ranks[tpl_group_ranks(r->groups[r->prog->ops[i].group])[__builtin_ctzll(mask)]] : NULL;
}

/* Seconds since the rank last moved, when they are more than its op may take; else 0. Ranks between steps are overdue
 * soon, which only matters if somebody in a step waits for them. */
static double overdue(const tpl_engine *e, const tpl_rank *r, int64_t now)
{
    const tpl_sample *s = &e->seen[r->rank];
    double limit = e->desc.stall_s > 0 ? e->desc.stall_s : 3.0, age = (double)(now - s->since_us) * 1e-6;
    return age > limit + (s->op >= 0 ? work(r, s->op) / SLOWEST_FLOPS : 0) ? age : 0;
}

/* Follows waits from a rank that is overdue. Ranks that wait for each other in a circle are all to blame, and the
 * first is named. */
static void blame(tpl_engine *e, const tpl_rank *stuck, int64_t now)
{
    const tpl_rank *waiter = NULL, *guilty = stuck, *next = waits_for(e, stuck);
    for (int hops = 0; next && hops < e->n_ranks; hops++) {
        if (!overdue(e, next, now)) return; /* slow, not stuck */
        waiter = guilty;
        guilty = next;
        next = waits_for(e, guilty);
    }
    for (int r = 0; !waiter && r < e->n_ranks; r++)
        if (waits_for(e, &e->ranks[r]) == guilty) waiter = &e->ranks[r];
    report(e, guilty, waiter, overdue(e, guilty, now));
}

static void take_samples(tpl_engine *e, int64_t now)
{
    for (int r = 0; r < e->n_ranks; r++) {
        const tpl_rank *k = &e->ranks[r];
        uint32_t beats = atomic_load(&k->beats);
        int32_t op = atomic_load(&k->at_op);
        if (beats != e->seen[r].beats || op != e->seen[r].op || !e->seen[r].since_us)
            e->seen[r] = (tpl_sample){ beats, op, now };
    }
}

void tpl_watchdog_main(void *engine)
{
    tpl_engine *e = engine;
    /* Time as the watchdog lived it: a pause longer than two samples was one of the whole process (stopped, suspended
     * with its machine, or starved), in which no rank could move either. */
    int64_t now = 1, last = tpl_now_us();
    while (!atomic_load(&e->watchdog_end)) {
        nanosleep(&(struct timespec){ .tv_nsec = SAMPLE_MS * 1000000 }, NULL);
        int64_t real = tpl_now_us(), passed = real - last;
        now += passed < 2 * SAMPLE_MS * 1000 ? passed : 2 * SAMPLE_MS * 1000;
        last = real;
        take_samples(e, now);
        for (int r = 0; r < e->n_ranks && !tpl_abort_is_set(e->abort); r++)
            if (e->seen[r].op >= 0 && overdue(e, &e->ranks[r], now)) blame(e, &e->ranks[r], now);
    }
}
