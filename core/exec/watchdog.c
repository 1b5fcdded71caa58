/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog samples every rank's black box (op, ops started). A rank whose op does not end within the limit is stuck; if it waits in a
 * collective, the members that have not arrived are to blame, else it is itself. The report names rank, op, layer, group, sequence number and bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "exec/engine_priv.h"

enum { SAMPLE_MS = 100 };
static const double SLOWEST_FLOPS = 2e8; /* an op gets the time it would take at this rate, on top of the limit */

typedef struct sample {
    uint32_t beats;
    int64_t since_us;
} sample;

/* Work of an op at its largest bucket, in floating point operations; only matrix products and attention can be long. */
static double work(const tpl_rank *r, int i)
{
    const tpl_bound *op = &r->ops[i];
    double tok = r->prog->caps.tok, sum = 0;
    for (int j = 0; j < op->n_w; j++) sum += 2.0 * (double)op->w[j]->rows * (double)op->w[j]->cols * tok;
    if (op->kind == TPL_OP_ID_ATTEND && op->kv) sum += 4.0 * (double)op->out[0].cols * tok * (double)op->kv->page * (double)op->kv->n_pages;
    return op->kind == TPL_OP_ID_LINEAR || op->kind == TPL_OP_ID_ATTEND ? sum : 0;
}

static const tpl_prog_group *group_of(const tpl_rank *r, int i)
{
    int g = r->prog->ops[i].group;
    return g >= 0 ? &r->prog->groups[g] : NULL;
}

/* What a stuck rank waits for: the absent members of its collective. */
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
    size_t at = (size_t)snprintf(out, cap, "%s{", group_of(r, i)->axes);
    for (int m = 0; m < tpl_group_size(g) && at + 8 < cap; m++)
        at += (size_t)snprintf(out + at, cap - at, "%s%d", m ? "," : "", tpl_group_ranks(g)[m]);
    if (at + 2 < cap) snprintf(out + at, cap - at, "}");
}

static void report(tpl_engine *e, const tpl_rank *guilty, const tpl_rank *waiter, double seconds)
{
    tpl_err err = { 0 };
    char where[32], tail[200] = "no rank waits for it in a collective";
    int g = atomic_load(&guilty->at_op);
    snprintf(where, sizeof where, "rank %d", guilty->rank);
    if (waiter) {
        size_t bytes;
        uint32_t cseq;
        char group[80];
        int w = atomic_load(&waiter->at_op);
        if (w >= 0) {
            absent(waiter, w, &bytes, &cseq);
            list_members(waiter, w, group, sizeof group);
            snprintf(tail, sizeof tail, "rank %d waits in %s %s, group %s, seq %u, %zu bytes", waiter->rank,
                     tpl_op_infos[waiter->prog->ops[w].kind].name, waiter->prog->ops[w].name, group, cseq, bytes);
        }
    }
    if (g >= 0)
        tpl_fail(&err, TPL_ERR_COMM, 0, where, "stalled in op %s (%s), layer %d, for %.1f s; %s", guilty->prog->ops[g].name,
                 tpl_op_infos[guilty->prog->ops[g].kind].name, guilty->prog->ops[g].layer, seconds, tail);
    else tpl_fail(&err, TPL_ERR_COMM, 0, where, "left the step early, for %.1f s; %s", seconds, tail);
    tpl_hint(&err, TPL_ERR_COMM, "the step was aborted on all ranks");
    tpl_abort_raise(e->abort, &err);
}

/* Follows waits from a stuck rank to one that is not waiting for somebody else. */
static void blame(tpl_engine *e, const tpl_rank *stuck, double seconds)
{
    const tpl_rank *waiter = NULL, *guilty = stuck;
    for (int hops = 0; hops <= e->n_ranks; hops++) {
        int i = atomic_load(&guilty->at_op);
        size_t bytes;
        uint32_t cseq;
        uint64_t mask = i >= 0 ? absent(guilty, i, &bytes, &cseq) : 0;
        if (!mask) break;
        waiter = guilty;
        const tpl_group *g = guilty->groups[guilty->prog->ops[i].group];
        guilty = &e->ranks[tpl_group_ranks(g)[__builtin_ctzll(mask)]];
    }
    for (int r = 0; !waiter && r < e->n_ranks; r++) { /* somebody may wait for the guilty one */
        int i = atomic_load(&e->ranks[r].at_op);
        size_t bytes;
        uint32_t cseq;
        uint64_t mask = i >= 0 ? absent(&e->ranks[r], i, &bytes, &cseq) : 0;
        const tpl_group *g = mask ? e->ranks[r].groups[e->ranks[r].prog->ops[i].group] : NULL;
        for (int m = 0; g && m < tpl_group_size(g); m++)
            if ((mask >> m & 1) && tpl_group_ranks(g)[m] == guilty->rank) waiter = &e->ranks[r];
    }
    report(e, guilty, waiter, seconds);
}

void tpl_watchdog_main(void *engine)
{
    tpl_engine *e = engine;
    double limit = e->desc.stall_s > 0 ? e->desc.stall_s : 4.0;
    sample *seen = calloc((size_t)e->n_ranks, sizeof *seen);
    while (seen && !atomic_load(&e->watchdog_end)) {
        nanosleep(&(struct timespec){ .tv_nsec = SAMPLE_MS * 1000000 }, NULL);
        int64_t now = tpl_now_us();
        for (int r = 0; r < e->n_ranks && !tpl_abort_is_set(e->abort); r++) {
            const tpl_rank *k = &e->ranks[r];
            uint32_t beats = atomic_load(&k->beats);
            int op = atomic_load(&k->at_op);
            if (beats != seen[r].beats || op < 0 || !seen[r].since_us) seen[r] = (sample){ beats, now };
            double age = (double)(now - seen[r].since_us) * 1e-6;
            if (op >= 0 && age > limit + work(k, op) / SLOWEST_FLOPS) blame(e, k, age);
        }
    }
    free(seen);
}
