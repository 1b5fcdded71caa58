/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's inside, shared by engine.c, walk.c and watchdog.c. Private to core/exec.
 */
#ifndef TPL_EXEC_ENGINE_PRIV_H
#define TPL_EXEC_ENGINE_PRIV_H

#include "exec/rank_priv.h"

typedef struct tpl_tap {
    tpl_tap_fn fn; /* NULL: no tap */
    void *ctx;
} tpl_tap;

/* What the watchdog saw of a rank, and since when it has not moved. */
typedef struct tpl_sample {
    uint32_t beats;
    int32_t op;
    int64_t since_us;
} tpl_sample;

struct tpl_engine {
    tpl_engine_desc desc;
    const tpl_backend *backend;
    tpl_rank *ranks;
    int n_ranks, n_threads;
    _Atomic int numa_error; /* errno of the first refusal to bind memory */
    uint32_t spin;
    tpl_abort *abort;
    tpl_comm *comm;
    tpl_channel **cuts; /* [n_stages - 1][ranks of the next stage]: one writer, one reader each */
    int *cut_first;     /* first channel of the cut after stage i */
    int n_cuts;
    tpl_step **slots;                   /* ring of n_stages + 1 */
    uint32_t pad_tok, pad_out;          /* counts are rounded up to multiples of these */
    tpl_tap *taps;                      /* [n_stages + 1]: of the step in the slot of that number */
    tpl_tap tap;                        /* of the next step; owner thread only */
    _Alignas(64) _Atomic uint32_t head; /* steps submitted, modulo 2^32; one more at the end, to wake the threads */
    _Atomic bool ending;
    uint64_t steps, tail; /* steps submitted, and handed back */
    bool taken;           /* a slot is being filled */
    int64_t load_us;
    tpl_thread *watchdog;
    tpl_sample *seen; /* [n_ranks], the watchdog's */
    _Atomic bool watchdog_end;
};

/* Slots are numbered by 64 bits of the step's number: 32 would wrap to another place of a ring of three. */
static inline size_t tpl_engine_ring(const tpl_engine *e, uint64_t step)
{
    return step % ((uint64_t)e->desc.n_stages + 1);
}

/* Body of the watchdog thread: finds the rank that makes no progress, names it, and raises the abort. */
void tpl_watchdog_main(void *engine);

#endif
