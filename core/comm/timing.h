/* SPDX-License-Identifier: Apache-2.0
 *
 * Times what ranks cost each other on this machine: an all-reduce, and a team's barrier. Starts and ends its
 * own threads, unpinned unless they are as many as the cores at most. Any thread; takes ranks * threads *
 * iters calls.
 */
#ifndef TPL_COMM_TIMING_H
#define TPL_COMM_TIMING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct tpl_timing_desc {
    int ranks, threads; /* threads of each rank */
    int iters;          /* calls per batch; the figures are over 7 batches */
    size_t bytes;       /* float32 data of the all-reduce, rounded up to 4; 0: a barrier of all instead */
} tpl_timing_desc;

typedef struct tpl_timing {
    double us, us_min, us_max; /* one call: median, least and most of the batches */
    bool checked;              /* the sums were right on every rank */
} tpl_timing;

TPL_NODISCARD tpl_status tpl_comm_time(tpl_timing *out, const tpl_timing_desc *desc, tpl_err *err);

#endif
