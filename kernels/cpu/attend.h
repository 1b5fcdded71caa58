/* SPDX-License-Identifier: Apache-2.0
 *
 * How attention is cut into work, without the arithmetic: attend.inc computes, attend.c plans. Owner
 * thread: each thread of the team holds its own.
 *
 * The unit of work is an item: one sequence, one KV head, and a block of at most 64 query rows, a row being
 * one (token, head of the group) pair, so that decode reads K and V once for all heads of the group, and
 * prefill once for 64 rows. The keys of an item are walked in chunks of 256 positions and tiles of 64, both
 * counted from position 0 of the sequence. Each chunk is a softmax of its own (maximum m, sum l, weighted
 * values o), and chunks are merged in order:
 *
 *      m' = max(m, mc);  l' = l e^(m-m') + lc e^(mc-m');  o' = o e^(m-m') + oc e^(mc-m')
 *
 * A row's arithmetic is thus a function of its own query and its keys' positions alone: who shares the
 * item, how many threads there are, the page size and the page order do not change one bit. (By tiles,
 * attend_tiles.inc, only the number of rows of the item matters too: those with few go the exact way.) Threads take
 * items of about equal cost; where there are too few, they take (item, chunk) pairs, keep the chunks'
 * results in their scratch memory and merge after a barrier, with the same bits.
 */
#ifndef TPL_KERNELS_CPU_ATTEND_H
#define TPL_KERNELS_CPU_ATTEND_H

#include "kernels/cpu/simple.h"

enum { ATT_TILE = 64, ATT_CHUNK = 256, ATT_ROWS = 64, ATT_MAX_HD = 512, ATT_MAX_THREADS = 256 };

/* What the step and the op say. */
typedef struct att_shape {
    const tpl_step *step;
    const tpl_kv_pool *kv;
    int kvh, grp, hd;
    int ld;             /* hd rounded up to 16: columns of the accumulators */
    int window;
    float scale;
    int64_t tok0, rows; /* this rank's tokens of the step */
    bool is_exact;      /* products of floats only, and so the same bits whatever shares the step */
    size_t tile_bytes;  /* scratch memory of the way by tiles; 0: not taken */
} att_shape;

typedef struct att_item {
    int32_t seq, head;
    int64_t row0, n_rows; /* rows of the block, in (token, head of the group) order from token `tok` on */
    int64_t tok;          /* the sequence's first token here, counted in the step */
    int32_t first, last;  /* positions of the keys that any row sees */
} att_item;

/* Walks the items in order. */
typedef struct att_walk {
    const att_shape *shape;
    att_item item;
    int64_t left;         /* rows of the sequence from the block on */
} att_walk;

void att_shape_init(att_shape *a, const tpl_op_ctx *ctx, const tpl_bound *op);
void att_walk_init(att_walk *w, const att_shape *a);
bool att_next(att_walk *w);

/* Cost of an item in (row, key) pairs, getting the keys ready included. */
static inline int64_t att_cost(const att_item *i)
{
    return (i->n_rows + 8) * (int64_t)(i->last - i->first + 1);
}

static inline int64_t att_chunks(const att_item *i)
{
    return i->last / ATT_CHUNK - i->first / ATT_CHUNK + 1;
}

typedef struct att_plan {
    int64_t cost, n_chunks; /* of all items */
    int64_t n_rows;         /* of all items */
    int64_t slot_rows;      /* most rows of an item */
    bool is_split;          /* threads take chunks, not items */
} att_plan;

/* The same on every thread. */
void att_plan_init(att_plan *p, const att_shape *a, const tpl_op_ctx *ctx, const tpl_bound *op);

/* The thread's scratch memory. */
typedef struct att_work {
    float *kt;    /* [hd][ATT_TILE]: the tile's keys, transposed */
    float *v;     /* [ATT_TILE][ld]: its values, where the cache's rows are not floats of whole vectors */
    float *s;     /* [ATT_ROWS][ATT_TILE]: scores, then weights */
    float *oc;    /* [ATT_ROWS][ld]: the chunk's weighted values */
    float *o;     /* [ATT_ROWS][ld]: merged */
    float *zero;  /* [hd] */
    char *tiles;  /* a->tile_bytes of them */
    float *slots; /* chunk results of a split: per slot m[rows], l[rows], o[rows][ld] */
    float m[ATT_ROWS], l[ATT_ROWS], mc[ATT_ROWS], lc[ATT_ROWS];
    const float *q[ATT_ROWS];
    int32_t pos[ATT_ROWS];
    int64_t at[ATT_TILE]; /* where each position of the tile lies in the cache, in elements; -1: no such key */
    const float *vp[ATT_TILE];
    const float *peer[ATT_MAX_THREADS]; /* all threads' slots */
} att_work;

att_work *att_work_init(const att_shape *a, void *scratch);
/* Where row r of the item goes. */
float *att_out_row(const att_shape *a, const att_item *item, const tpl_view *v, int64_t r);
/* Zeroes this thread's share of the padding rows. */
void att_zero_padding(const att_shape *a, const tpl_op_ctx *ctx, const tpl_bound *op);
/* Tells all threads where each one's slots are (through the out rows, which nobody has written yet); false:
 * aborted. */
bool att_share_slots(att_work *w, const tpl_op_ctx *ctx, const tpl_bound *op);

#endif
