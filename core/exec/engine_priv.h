/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's inside, shared by engine.c, walk.c and watchdog.c. Private to core/exec.
 */
#ifndef TPL_EXEC_ENGINE_PRIV_H
#define TPL_EXEC_ENGINE_PRIV_H

#include "exec/rank_priv.h"

struct tpl_engine {
    tpl_engine_desc desc;
    const tpl_backend *backend;
    tpl_rank *ranks;
    int n_ranks, n_threads;
    uint32_t spin;
    tpl_abort *abort;
    tpl_comm *comm;
    tpl_channel **cuts;           /* [n_stages - 1][ranks of the next stage]: one writer, one reader each */
    int *cut_first;               /* first channel of the cut after stage i */
    int n_cuts;
    tpl_step **slots;             /* ring of n_stages + 1 */
    uint32_t pad_tok, pad_out;    /* counts are rounded up to multiples of these */
    tpl_tap_fn tap;
    void *tap_ctx;
    _Alignas(64) _Atomic uint32_t head; /* steps submitted; TPL_ENGINE_END asks the threads to end */
    _Atomic bool ending;
    uint32_t tail;                /* steps handed back */
    bool taken;                   /* a slot is being filled */
    int64_t load_us;
    uint64_t steps;
    tpl_thread *watchdog;
    _Atomic bool watchdog_end;
    tpl_err failure;
};

/* Body of the watchdog thread: finds the rank that makes no progress, names it, and raises the abort. */
void tpl_watchdog_main(void *engine);

#endif
