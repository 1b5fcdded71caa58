/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of ops that keep state: steps of several sequences, and paged caches whose pages lie in any order. Each test
 * executable includes it once.
 */
#ifndef TPL_SPEC_SEQ_STEP_H
#define TPL_SPEC_SEQ_STEP_H

#include "op_run.h"

#include "kernels/kv.h"

#define VEC_ISA test
#if TPL_CPU_ARM
#define VEC_NEON 1
#endif
#include "kernels/cpu/vec.h"

typedef struct chunk {
    int pos0, q_len;
} chunk;

/* A step of these chunks, one a sequence, in pages of `page` positions whose numbers are shuffled; two
 * padding tokens at the end. Pages of sequence i are the same whichever chunk of it is asked for: `order`
 * shuffles max_pages numbers. */
OWN tpl_step *seq_step(const chunk *chunks, int n_seq, int page, const int *order, int pages_per_seq)
{
    int n_tok = 0, t = 0;
    for (int i = 0; i < n_seq; i++) n_tok += chunks[i].q_len;
    tpl_step *s = new_step(n_tok + 2, n_seq, n_tok, 1, 1, 1, n_seq * pages_per_seq, 1);
    for (int i = 0; i < n_seq; i++) {
        tpl_step_seq *q = tpl_step_seqs(s) + i;
        *q = (tpl_step_seq){ .slot = i,
                             .q0 = t,
                             .q_len = chunks[i].q_len,
                             .pos0 = chunks[i].pos0,
                             .kv_len = chunks[i].pos0 + chunks[i].q_len,
                             .page0 = (uint32_t)(i * pages_per_seq) };
        q->n_pages = (uint32_t)((q->kv_len + page - 1) / page);
        for (int p = 0; p < pages_per_seq; p++)
            tpl_step_pages(s)[i * pages_per_seq + p] = (uint32_t)order[i * pages_per_seq + p];
        for (int k = 0; k < q->q_len; k++, t++) {
            tpl_step_tok_seq(s)[t] = i;
            tpl_step_pos(s)[t] = q->pos0 + k;
        }
    }
    tpl_step_tok_seq(s)[n_tok] = -1;
    s->n_tok = n_tok + 1; /* one padding token is counted, one is not */
    return s;
}

OWN int *shuffled(int n)
{
    int *order = calloc((size_t)n, sizeof *order);
    for (int i = 0; i < n; i++) {
        int j = below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

OWN tpl_kv_pool new_kv(tpl_dtype dtype, int page, int kvh, int hd, int n_pages)
{
    tpl_kv_pool kv = { NULL, NULL, dtype, page, kvh, hd, n_pages };
    size_t bytes = (size_t)n_pages * (size_t)(page * kvh * hd) * 4;
    kv.k = malloc(bytes);
    kv.v = malloc(bytes);
    for (int p = 0; p < n_pages; p++) tpl_kv_poison(&kv, p);
    return kv;
}

#endif
