/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank: one stage's program bound to memory and kernels, and the team that walks it. Private to core/exec.
 */
#ifndef TPL_EXEC_RANK_PRIV_H
#define TPL_EXEC_RANK_PRIV_H

#include <stdatomic.h>

#include "base/team.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "exec/engine.h"
#include "exec/weights.h"

enum { TPL_RANK_IDLE = -1 };

typedef struct tpl_rank {
    struct tpl_engine *engine;
    const tpl_program *prog;
    int rank, local, nth; /* global number, number in the stage, threads */
    tpl_place place;      /* cpus are the desc's, NULL once opened */
    bool is_pinned;
    tpl_team *team;
    tpl_thread **threads;         /* [nth] */
    struct tpl_rank_thread *args; /* [nth] */
    char *arena, *weight_mem, *kv_mem, *scratch;
    size_t weight_bytes, kv_bytes, scratch_bytes;
    tpl_weight *weights;
    tpl_kv_pool *kvs;
    float **tables;
    tpl_bound *ops;
    tpl_coll *colls;          /* [n_ops], filled for collectives */
    tpl_group **groups;       /* [n_groups]: this rank's end */
    const tpl_index ***lists; /* [n_ops]: members' index lists of collectives */
    uint8_t *faults;          /* [n_ops] tpl_fault_kind planted here */
    int n_planted;            /* ops and weights with a fault */
    tpl_step *stale;          /* room for a changed step */
    tpl_load_job job;
    /* the black box, written by the leader, read by the watchdog */
    _Alignas(64) _Atomic int32_t at_op; /* index, or TPL_RANK_IDLE */
    _Atomic int32_t at_tok;             /* tokens of the step, padding included */
    _Atomic uint32_t beats;             /* ops started */
    _Alignas(64) _Atomic uint32_t done; /* steps finished, modulo 2^32 */
} tpl_rank;

typedef struct tpl_rank_thread {
    tpl_rank *rank;
    int ith;
} tpl_rank_thread;

/* Measures and allocates everything but the weights' contents. */
tpl_status tpl_rank_init(tpl_rank *r, tpl_err *err);
/* Resolves every op to pointers and kernels; after the weights are placed and the groups exist. */
tpl_status tpl_rank_bind(tpl_rank *r, tpl_err *err);
void tpl_rank_free(tpl_rank *r);
/* Binds what the calling thread allocates to the rank's node; a refusal is noted, once, and no failure. */
void tpl_rank_bind_self(tpl_rank *r);
/* One thread's life: wait for a step, walk it, until the engine ends. */
void tpl_rank_main(void *arg);

/* -- Planted faults (fault.c) ---- */
tpl_status tpl_rank_plant(tpl_rank *r, tpl_err *err);
/* Acts when an op is bound: other immediates before the kernel sees them, and after that another kernel. */
void tpl_fault_bind(const tpl_rank *r, int i, tpl_bound *op);
void tpl_fault_bound(const tpl_rank *r, int i, tpl_bound *op);
/* Acts before an op: waits for the abort (stall), or swaps in a step with other positions, pages or tokens. */
const tpl_step *tpl_fault_before(tpl_rank *r, int op, int ith, const tpl_step *step);
/* Acts after an op: spoils a reduction or a gather, or turns the heads. False when aborted. */
bool tpl_fault_after(tpl_rank *r, int op, int ith, const tpl_step *step);

#endif
