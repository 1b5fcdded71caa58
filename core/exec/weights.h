/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading one rank's shards: every weight of the program, read from the checkpoint in exactly the byte ranges of the
 * rank's index lists, and packed on the way in. Several threads share the work of one rank, weight by weight. Memory
 * beyond the packed weights is one read buffer per thread.
 */
#ifndef TPL_EXEC_WEIGHTS_H
#define TPL_EXEC_WEIGHTS_H

#include <stdatomic.h>

#include "base/env.h"
#include "exec/program.h"
#include "model/checkpoint.h"

typedef struct tpl_load_job {
    const tpl_program *prog;
    const tpl_checkpoint *cp;
    const tpl_fault *fault;      /* NULL or a planted fault */
    int local;                   /* rank within the stage */
    tpl_weight *weights;         /* [n_weights], data pointing into the rank's weight memory */
    _Atomic int next;            /* next weight to load */
    _Atomic uint64_t done_bytes; /* packed bytes finished */
    _Atomic uint64_t read_bytes; /* file bytes read */
    _Atomic bool *stop;          /* set by whoever fails first */
} tpl_load_job;

/* Shapes of this rank's shards, data NULL, and the bytes they take together (each 64-byte aligned). */
tpl_status tpl_weights_measure(const tpl_program *p, int local, tpl_weight *weights, size_t *total, tpl_err *err);
/* Points every weight into mem, a block of the measured size. */
void tpl_weights_place(const tpl_program *p, tpl_weight *weights, void *mem);
/* Whether a planted swap_shard or shift_partition gives this rank other rows or columns of the weight than its own. */
bool tpl_weights_is_misplaced(const tpl_program *p, int local, const tpl_prog_weight *d, const tpl_fault *fault);
/* Loads weights until none is left or *stop is set. Called by any number of threads on one job. */
tpl_status tpl_weights_load(tpl_load_job *job, tpl_err *err);

#endif
