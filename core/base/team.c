/* SPDX-License-Identifier: Apache-2.0
 *
 * A counting barrier with a generation number in place of the sense bit: the last member to arrive resets the
 * count and opens the next generation. A member reads the generation before it arrives; it cannot change
 * until that member has arrived too.
 */
#include <stdalign.h>
#include <stdlib.h>

#include "base/gate.h"
#include "base/mem.h"

struct tpl_team {
    int nth;
    uint32_t spin;
    tpl_abort *abort;
    alignas(TPL_LINE) _Atomic uint32_t arrived;
    alignas(TPL_LINE) tpl_gate generation;
    alignas(TPL_LINE) _Atomic uint64_t passed; /* written by the last member to arrive */
};

tpl_status tpl_team_new(tpl_team **out, int nth, uint32_t spin, tpl_abort *abort, tpl_err *err)
{
    *out = NULL;
    if (nth < 1)
        return tpl_fail(err, TPL_ERR_ARG, 0, "threads", "a team needs at least 1 thread, not %d", nth);
    tpl_team *t = tpl_mem_alloc(sizeof *t);
    if (!t) return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a team of %d threads", nth);
    *t = (tpl_team){ .nth = nth, .spin = spin, .abort = abort };
    *out = t;
    return TPL_OK;
}

void tpl_team_free(tpl_team *t)
{
    tpl_mem_free(t);
}

bool tpl_team_barrier(tpl_team *t, int ith)
{
    (void)ith;
    if (t->nth == 1) return !t->abort || !tpl_abort_is_set(t->abort);
    uint32_t next = atomic_load_explicit(&t->generation.word, memory_order_relaxed) + 1;
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)t->nth)
        return tpl_gate_wait(&t->generation, next, t->spin, t->abort);
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->passed, 1, memory_order_relaxed);
    tpl_gate_set(&t->generation, next);
    return true;
}

int tpl_team_size(const tpl_team *t)
{
    return t->nth;
}

uint64_t tpl_team_count(const tpl_team *t)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&t->passed, memory_order_relaxed);
}

void tpl_team_reset(tpl_team *t)
{
    atomic_store(&t->arrived, 0);
}
