/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over groups of ranks, and channels between pipeline stages. Transports register themselves (shm
 * here: ranks of one process, each a team of threads; NCCL and MPI come from their own plugins). Every member
 * of a group calls the same collectives in the same order, with all threads of its team (SPMD). Sums are
 * taken in rank order 0..n-1 on every rank, so that R is bitwise equal on all of them. Every wait polls the
 * abort word. comm never looks at topology or at programs.
 */
#ifndef TPL_COMM_COMM_H
#define TPL_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/index.h"
#include "base/team.h"

typedef enum tpl_coll_kind {
    TPL_COLL_ALL_REDUCE,
    TPL_COLL_REDUCE_SCATTER,
    TPL_COLL_ALL_GATHER,
    TPL_COLL_ALL_TO_ALL,
    TPL_COLL_GATHER,
    TPL_COLL_BARRIER,
} tpl_coll_kind;

/* How one member holds a value whose rows are cut in pieces along a middle dim: a row is
 * [outer][index.total][inner] floats, the whole row [outer][n][inner], or (tok) the rows themselves are cut
 * in equal pieces. */
typedef struct tpl_coll_part {
    int64_t outer, n, inner;
    const tpl_index *const *index; /* [n_members]: what each member holds; NULL: the rows are cut (dim tok) */
} tpl_coll_part;

/* One collective on float32 data. rows = rows of the whole value (all_reduce, gather, all_gather over a
 * column dim: equal on all members; where rows are cut, a member holds rows / n_members of them). */
typedef struct tpl_coll {
    tpl_coll_kind kind;
    const float *in;
    float *out;       /* never overlaps in; only the root's is written by GATHER */
    int64_t rows;
    int64_t in_cols, out_cols;
    tpl_coll_part from, to; /* ALL_GATHER and GATHER: from; REDUCE_SCATTER: to; ALL_TO_ALL: from -> to */
    uint32_t cseq;    /* number of this collective within its group and program, for messages */
    const char *name; /* the op's name, for messages */
} tpl_coll;

typedef struct tpl_comm tpl_comm;   /* all groups of one process */
typedef struct tpl_group tpl_group; /* one member's end of one group */

typedef struct tpl_comm_desc {
    int n_ranks;
    int n_groups;
    const int *group_sizes;        /* [n_groups] */
    const int *const *group_ranks; /* [n_groups][size], in group order */
    uint32_t spin;
    tpl_abort *abort;
} tpl_comm_desc;

/* By transport name ("shm"). Setup only. */
tpl_status tpl_comm_open(tpl_comm **out, const char *transport, const tpl_comm_desc *desc, tpl_err *err);
void tpl_comm_close(tpl_comm *c);
/* Names of the registered transports, NULL-terminated; static storage. */
const char *const *tpl_comm_transports(void);

/* rank's end of group g. Borrowed until tpl_comm_close. */
tpl_group *tpl_comm_group(tpl_comm *c, int g, int rank);
int tpl_group_size(const tpl_group *g);
int tpl_group_index(const tpl_group *g);
const int *tpl_group_ranks(const tpl_group *g);

/* Forgets half-finished collectives. Only while no rank is inside one, that is after all have unwound from
 * an abort. */
void tpl_comm_reset(tpl_comm *c);

/* Checks shapes and index lists of a collective as member `index` of `size` will run it: sizes agree, lists
 * stay in range, and every entry wanted is held by somebody. For load time (allocates); in and out may be
 * NULL. rows that are cut must divide by size. */
tpl_status tpl_coll_check(const tpl_coll *c, int size, int index, tpl_err *err);
const char *tpl_coll_kind_name(tpl_coll_kind kind);

/* Runs one collective; every thread of the member's team calls it, with the same arguments. It is also a
 * barrier of the team, at its start (what the threads wrote to `in` is complete) and at its end: on return
 * the out of this member is complete and visible to its whole team, and `in` may be overwritten. team NULL:
 * a team of one. False when aborted. BARRIER looks at nothing but name and cseq. No allocation. */
bool tpl_coll_run(tpl_group *g, const tpl_coll *c, tpl_team *team, int ith);
/* Which members have not arrived at the collective this member waits in: bit i of the mask = group index i
 * (for the watchdog; any thread). *bytes gets the payload, *name and *cseq what is waited for. Returns 0
 * when it is not waiting. */
uint64_t tpl_group_absent(const tpl_group *g, size_t *bytes, const char **name, uint32_t *cseq);

/* -- Stage channels: one writer rank, n reader ranks, a ring of buffers for steps in flight -------------- */
typedef struct tpl_channel tpl_channel;
tpl_status tpl_channel_new(tpl_channel **out, int n_readers, int n_slots, size_t slot_bytes, uint32_t spin,
                           tpl_abort *abort, tpl_err *err);
void tpl_channel_free(tpl_channel *c);
/* Forgets all messages; only while nobody is inside send or recv. */
void tpl_channel_reset(tpl_channel *c);
/* Copies bytes into the next free slot (waiting for the slowest reader of that slot) and publishes it. All
 * threads of the writer's team call it; on return src may be overwritten. A message larger than a slot
 * raises the abort. */
bool tpl_channel_send(tpl_channel *c, const void *src, size_t bytes, tpl_team *team, int ith);
/* Waits for the next message and copies it out. All threads of that reader's team call it; on return dst is
 * complete for all of them. Raises the abort when the message has another size: then both ends do not run
 * the same program. */
bool tpl_channel_recv(tpl_channel *c, int reader, void *dst, size_t bytes, tpl_team *team, int ith);

#endif
