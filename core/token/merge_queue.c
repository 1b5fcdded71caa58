/* SPDX-License-Identifier: Apache-2.0 */
#include "token/merge_queue.h"

#include <stdlib.h>
#include <string.h>

#include "token/buf.h"

/* Symbols from which on buckets pay: passing over the empty ones costs as much as some thousand heap
 * operations. */
#define BUCKETS_MIN 16384

typedef struct tpl_merge_link {
    int32_t pos, next;
} tpl_merge_link;

static bool start_buckets(tpl_merge_queue *q, size_t n_links, size_t n_ranks)
{
    size_t had = q->ranks_cap;
    if (!tpl_grow((void **)&q->links, &q->links_cap, n_links, sizeof *q->links)) return false;
    if (!tpl_grow((void **)&q->bucket, &q->bucket_cap, n_links, sizeof *q->bucket)) return false;
    if (!tpl_grow((void **)&q->heads, &q->ranks_cap, n_ranks, sizeof *q->heads)) return false;
    /* buckets that were there are empty: each was when the last piece was done */
    if (q->ranks_cap > had) memset(q->heads + had, 0xFF, (q->ranks_cap - had) * sizeof *q->heads);
    q->current = -1;
    return true;
}

bool tpl_merge_queue_start(tpl_merge_queue *q, size_t n, size_t n_ranks)
{
    uint64_t most;
    q->n_heap = q->n_links = q->n_bucket = q->i_bucket = 0;
    q->n_ranks = n_ranks;
    q->current = INT64_MAX;
    if (!ck_mul(n, 3, &most) || most > INT32_MAX ||
        !tpl_grow((void **)&q->heap, &q->heap_cap, most, sizeof *q->heap))
        return false;
    return n < BUCKETS_MIN || start_buckets(q, most, n_ranks);
}

void tpl_merge_queue_free(tpl_merge_queue *q)
{
    free(q->heap);
    free(q->links);
    free(q->heads);
    free(q->bucket);
    *q = (tpl_merge_queue){ 0 };
}

/* -- Heap: four children a node, for half the levels and siblings that share a cache line ----- */

static void heap_push(tpl_merge_queue *q, uint64_t x)
{
    size_t i = q->n_heap++;
    for (; i > 0 && q->heap[(i - 1) / 4] > x; i = (i - 1) / 4) q->heap[i] = q->heap[(i - 1) / 4];
    q->heap[i] = x;
}

static uint64_t heap_pop(tpl_merge_queue *q)
{
    uint64_t *heap = q->heap, top = heap[0], x = heap[--q->n_heap];
    size_t n = q->n_heap, i = 0;
    for (size_t child; (child = 4 * i + 1) < n; i = child) {
        size_t end = child + 4 < n ? child + 4 : n;
        for (size_t k = child + 1; k < end; k++)
            if (heap[k] < heap[child]) child = k;
        if (heap[child] >= x) break;
        heap[i] = heap[child];
    }
    if (n) heap[i] = x;
    return top;
}

/* -- Buckets ---------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Chains are filled from the front, so one that was filled from left to right comes out descending. */
static void sort_positions(int32_t *p, size_t n)
{
    bool up = true, down = true;
    for (size_t i = 1; i < n; i++) {
        up = up && p[i - 1] <= p[i];
        down = down && p[i - 1] >= p[i];
    }
    if (up) return;
    if (!down) {
        qsort(p, n, sizeof *p, ascending);
        return;
    }
    for (size_t i = 0, k = n - 1; i < k; i++, k--) {
        int32_t x = p[i];
        p[i] = p[k];
        p[k] = x;
    }
}

/* Goes on to the next bucket that holds something; false: there is none. */
static bool next_bucket(tpl_merge_queue *q)
{
    int64_t r = q->current;
    if (r == INT64_MAX) return false;
    do r++;
    while (r < (int64_t)q->n_ranks && q->heads[r] < 0);
    if (r >= (int64_t)q->n_ranks) return false;
    q->n_bucket = q->i_bucket = 0;
    for (int32_t i = q->heads[r]; i >= 0; i = q->links[i].next)
        q->bucket[q->n_bucket++] = q->links[i].pos;
    q->heads[r] = -1;
    q->current = r;
    sort_positions(q->bucket, q->n_bucket);
    return true;
}

/* --------------------------------------------------------------------------------------------- */

void tpl_merge_queue_push(tpl_merge_queue *q, uint32_t rank, uint32_t pos)
{
    if ((int64_t)rank <= q->current) {
        heap_push(q, (uint64_t)rank << 32 | pos);
        return;
    }
    q->links[q->n_links] = (tpl_merge_link){ (int32_t)pos, q->heads[rank] };
    q->heads[rank] = (int32_t)q->n_links++;
}

uint64_t tpl_merge_queue_pop(tpl_merge_queue *q)
{
    for (;;) {
        bool has = q->i_bucket < q->n_bucket;
        uint64_t first =
            has ? (uint64_t)q->current << 32 | (uint32_t)q->bucket[q->i_bucket] : TPL_MERGE_NONE;
        if (q->n_heap && q->heap[0] <= first) return heap_pop(q);
        if (has) {
            q->i_bucket++;
            return first;
        }
        if (!next_bucket(q)) return TPL_MERGE_NONE;
    }
}
