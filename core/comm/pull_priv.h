/* SPDX-License-Identifier: Apache-2.0
 *
 * The data movement of a collective: every member pulls what its `out` wants straight from the members'
 * buffers. One thread's share per call; the caller synchronises. Only within core/comm.
 */
#ifndef TPL_COMM_PULL_PRIV_H
#define TPL_COMM_PULL_PRIV_H

#include "comm/comm.h"

typedef struct tpl_pull {
    const tpl_coll *coll;
    int size, index;              /* of the group, of this member */
    const float *const *in;       /* [size] the members' buffers */
    int ith, nth;                 /* this thread's share */
} tpl_pull;

/* Fills this thread's share of the member's whole out. */
void tpl_pull_run(const tpl_pull *p);

/* The two phases of a large all-reduce: sum the member's own slice into its out; then, once all have, copy
 * the other slices from the members' outs. */
void tpl_pull_own_slice(const tpl_pull *p);
void tpl_pull_other_slices(const tpl_pull *p, float *const *out);

/* The ith of nth shares of [0, n), cut at multiples of 16 elements (a cache line of float32). */
typedef struct tpl_span {
    int64_t begin, end;
} tpl_span;
tpl_span tpl_span_of(int64_t n, int ith, int nth);

/* Elements of a whole row, whatever the kind. */
int64_t tpl_coll_width(const tpl_coll *c);
/* Bytes that this member brings in. */
size_t tpl_coll_in_bytes(const tpl_coll *c, int size);

#endif
