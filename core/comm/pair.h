/* SPDX-License-Identifier: Apache-2.0
 *
 * Times what two groups of cores cost each other through shared memory, as ranks on them would pay it: how fast one side
 * copies what the other wrote into memory of its own node, and how long a word takes across. Where the cores lie is the
 * caller's business: comm knows no topology. Starts and ends its own threads. Any thread; blocks for some tenths of a second.
 */
#ifndef TPL_COMM_PAIR_H
#define TPL_COMM_PAIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct tpl_pair_side {
    const int *cpus;
    int n_cpus; /* at least 1 */
    int numa;   /* its memory's node, -1: where its threads touch it first */
} tpl_pair_side;

typedef struct tpl_pair_desc {
    tpl_pair_side a, b;
    size_t bytes; /* copied from a to b in a batch, at most 1 GiB */
    int iters;    /* words sent to and fro for the latency */
    int spoil;    /* for tests: the batch, from 1, whose data is damaged on its way; 0 none */
} tpl_pair_desc;

typedef struct tpl_pair_timing {
    double gb_s;  /* a to b, 1e9 bytes/s: median of 7 batches, by all of b's threads together */
    double us;    /* one word one way: half of a round trip, mean */
    bool data_ok; /* every batch arrived as it was written */
    int threads;  /* of each side */
} tpl_pair_timing;

TPL_NODISCARD tpl_status tpl_pair_time(tpl_pair_timing *out, const tpl_pair_desc *desc, tpl_err *err);

#endif
