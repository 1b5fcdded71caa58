/* SPDX-License-Identifier: Apache-2.0
 *
 * A priority queue of merge candidates: lowest rank first, then lowest position. For few candidates it
 * is a heap. For many (one piece of a megabyte) each rank has a bucket: ranks are small integers, and a
 * candidate that a merge creates nearly always ranks behind that merge, so buckets are passed once, in
 * order, each sorted by position when its turn comes; a candidate that ranks before the present bucket
 * goes to the heap, which is asked first. That keeps the order exact and the memory accesses local: a
 * heap of a million entries costs twice as much, and more than twice for twice the text. Owner thread;
 * reused from piece to piece.
 */
#ifndef TPL_TOKEN_MERGE_QUEUE_H
#define TPL_TOKEN_MERGE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TPL_MERGE_NONE UINT64_MAX

typedef struct tpl_merge_queue {
    uint64_t *heap; /* rank << 32 | position */
    size_t n_heap, heap_cap;
    struct tpl_merge_link *links; /* candidates in buckets, as chains */
    size_t n_links, links_cap;
    int32_t *heads; /* [n_ranks] first link of a bucket or -1 */
    size_t n_ranks, ranks_cap;
    int64_t current; /* rank of the present bucket; -1: before the first; INT64_MAX: no buckets, all goes
                        to the heap */
    int32_t *bucket; /* its positions, ascending */
    size_t n_bucket, i_bucket, bucket_cap;
} tpl_merge_queue;

/* Empties the queue for a piece of n symbols whose merges rank below n_ranks; false: no memory. Up to 3
 * n candidates may be pushed. */
bool tpl_merge_queue_start(tpl_merge_queue *q, size_t n, size_t n_ranks);
void tpl_merge_queue_free(tpl_merge_queue *q);

void tpl_merge_queue_push(tpl_merge_queue *q, uint32_t rank, uint32_t pos);
/* rank << 32 | position of the first candidate, or TPL_MERGE_NONE. A queue must be emptied before it is
 * started again. */
uint64_t tpl_merge_queue_pop(tpl_merge_queue *q);

#endif
