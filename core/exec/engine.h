/* SPDX-License-Identifier: Apache-2.0
 *
 * A running deployment in one process: the ranks of all stages, their teams of threads, the step ring, and the
 * watchdog. A step is filled in a free slot, submitted, walked by every rank of every stage, and handed back in
 * order. As many steps are in flight as there are stages. One owner thread calls open, slot, submit, wait and close;
 * no Lua is touched by any other thread.
 */
#ifndef TPL_EXEC_ENGINE_H
#define TPL_EXEC_ENGINE_H

#include "base/env.h"
#include "base/err.h"
#include "base/step.h"
#include "exec/program.h"
#include "model/checkpoint.h"

typedef struct tpl_engine tpl_engine;

/* Where a rank's threads run and where its memory lies. */
typedef struct tpl_place {
    const int *cpus; /* the threads part them; borrowed until open returns; NULL: anywhere */
    int n_cpus;
    int numa; /* node, -1: anywhere */
} tpl_place;

typedef struct tpl_engine_desc {
    tpl_program **programs; /* [n_stages], borrowed until close */
    int n_stages;
    const tpl_checkpoint *checkpoint; /* borrowed until open returns */
    int threads;                      /* per rank */
    const tpl_place *places;          /* [ranks of all stages], borrowed until open returns; NULL: a core for each thread
                                         where there are enough, in order */
    int n_places;
    tpl_isa isa;
    tpl_dtype kv_dtype; /* F32 or F16 */
    int32_t kv_page;    /* positions per page */
    int64_t kv_pages;
    tpl_step_caps caps; /* of a slot; tok, seq, out as in the programs */
    tpl_fault fault;
    double stall_s; /* a rank that makes no progress for this long is reported; 0: 3 s */
    void (*progress)(void *ctx, int rank, uint64_t bytes, uint64_t total); /* while loading, on the calling thread */
    void *progress_ctx;
} tpl_engine_desc;

/* Allocates, loads every rank's shards in parallel, binds the ops, starts the threads. */
tpl_status tpl_engine_open(tpl_engine **out, const tpl_engine_desc *desc, tpl_err *err);
/* Ends all threads (also after a failure) and frees everything; NULL allowed. */
void tpl_engine_close(tpl_engine *e);

/* A free slot to fill, with its counts reset; NULL while as many steps are in flight as there are stages. */
tpl_step *tpl_engine_slot(tpl_engine *e);
/* Sends the slot last taken to all ranks. Fills padding rows and pad counts. */
tpl_status tpl_engine_submit(tpl_engine *e, tpl_err *err);
/* Waits for the oldest step in flight. Its results are valid until tpl_engine_slot is called. After a failure every
 * call fails the same way. */
tpl_status tpl_engine_wait(tpl_engine *e, tpl_step **out, tpl_err *err);
int tpl_engine_in_flight(const tpl_engine *e);
/* Most steps in flight: one per stage, and with one stage a second, which may continue the first (base/step.h). */
int tpl_engine_depth(const tpl_engine *e);

/* Called by each rank's leader after each op of steps submitted while a tap is set; all threads of the rank wait
 * meanwhile. After a failure ranks may still call it until the engine is closed. */
typedef void (*tpl_tap_fn)(void *ctx, int rank, const tpl_program *p, int op, int i_out, const tpl_view *view,
                           const tpl_step *step);
void tpl_engine_set_tap(tpl_engine *e, tpl_tap_fn fn, void *ctx);

typedef struct tpl_engine_stats {
    uint64_t steps, read_bytes, weight_bytes, allocs, barriers;
    int64_t load_us;
    int n_ranks, n_threads;
} tpl_engine_stats;
void tpl_engine_get_stats(const tpl_engine *e, tpl_engine_stats *out);
/* What a rank allocated (packed weights, activations, KV cache), and the file bytes it read. */
typedef struct tpl_rank_stats {
    uint64_t weight_bytes, arena_bytes, kv_bytes, read_bytes;
} tpl_rank_stats;
tpl_rank_stats tpl_engine_rank_stats(const tpl_engine *e, int rank);
/* Whether all threads of a rank run on the cores that its place names. */
bool tpl_engine_is_pinned(const tpl_engine *e, int rank);
/* errno of the first refusal to bind memory to a rank's node, 0 when all is bound or nothing was to be: the engine then
 * runs with memory where the system puts it. */
int tpl_engine_numa_error(const tpl_engine *e);
/* How many places (ops and weights, over all ranks) the planted fault acts on: 0 when its text matches nothing of
 * this plan. */
int tpl_engine_fault_hits(const tpl_engine *e);
/* The variant bound for an op of a rank, e.g. "linear_q4_1_avx512"; static storage. */
const char *tpl_engine_variant(const tpl_engine *e, int rank, int op);

#endif
