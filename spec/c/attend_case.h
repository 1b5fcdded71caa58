/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of attention: random sequences, what they must give by a plain softmax in double precision, and running
 * chunks of them through an op over a paged cache. Each test executable includes it once.
 */
#ifndef TPL_SPEC_ATTEND_CASE_H
#define TPL_SPEC_ATTEND_CASE_H

#include "seq_step.h"

#include "kernels/cpu/simple.h"

enum { MAX_LEN = 700 };

typedef struct att_case {
    int kvh, grp, hd, window;
    tpl_dtype dtype;
    int n_seq;
    bool is_exact;
    float *k, *v, *q; /* [n_seq][MAX_LEN][heads * hd], the whole sequences */
} att_case;

OWN att_case new_att(int kvh, int grp, int hd, int window, tpl_dtype dtype, int n_seq)
{
    att_case c = { kvh, grp, hd, window, dtype, n_seq, NULL, NULL, NULL };
    c.k = random_floats((int64_t)n_seq * MAX_LEN * kvh * hd, 1.5f);
    c.v = random_floats((int64_t)n_seq * MAX_LEN * kvh * hd, 1);
    c.q = random_floats((int64_t)n_seq * MAX_LEN * kvh * grp * hd, 1.5f);
    if (dtype == TPL_DTYPE_F16) /* the oracle sees what the cache holds */
        for (int64_t i = 0; i < (int64_t)n_seq * MAX_LEN * kvh * hd; i++) {
            c.k[i] = vec_from_half(vec_to_half(c.k[i]));
            c.v[i] = vec_from_half(vec_to_half(c.v[i]));
        }
    return c;
}

OWN void free_att(att_case *c) { free(c->k), free(c->v), free(c->q); }

OWN void want_attend(double *o, const att_case *c, int seq, int pos, int head)
{
    double p[MAX_LEN], sum = 0, top = -INFINITY;
    const int first = c->window && pos >= c->window ? pos - c->window + 1 : 0, kw = c->kvh * c->hd,
              kv_head = head / c->grp;
    const float *q = c->q + ((int64_t)(seq * MAX_LEN + pos) * c->kvh * c->grp + head) * c->hd;
    for (int j = first; j <= pos; j++) {
        p[j] = 0;
        for (int d = 0; d < c->hd; d++)
            p[j] += (double)q[d] * c->k[(int64_t)(seq * MAX_LEN + j) * kw + kv_head * c->hd + d];
        p[j] /= sqrt(c->hd);
        if (p[j] > top) top = p[j];
    }
    for (int j = first; j <= pos; j++) sum += p[j] = exp(p[j] - top);
    for (int d = 0; d < c->hd; d++) {
        o[d] = 0;
        for (int j = first; j <= pos; j++)
            o[d] += p[j] / sum * c->v[(int64_t)(seq * MAX_LEN + j) * kw + kv_head * c->hd + d];
    }
}

static tpl_run_fn *attend_by; /* runs instead of what bind chose, if set */

/* Runs the chunks; out[seq][pos][heads * hd] gets the rows. Unused positions of the cache are NaN. */
OWN void run_attend(tpl_isa isa, const att_case *c, const chunk *chunks, int page, int nth, float *out)
{
    const int per_seq = MAX_LEN / page + 1, width = c->kvh * c->grp * c->hd;
    int *order = shuffled(c->n_seq * per_seq);
    tpl_step *s = seq_step(chunks, c->n_seq, page, order, per_seq);
    tpl_kv_pool kv = new_kv(c->dtype, page, c->kvh, c->hd, c->n_seq * per_seq);
    for (int i = 0; i < c->n_seq; i++)
        for (int j = 0; j < chunks[i].pos0 + chunks[i].q_len; j++)
            for (int x = 0; x < c->kvh * c->hd; x++) {
                int64_t at =
                    ((order[i * per_seq + j / page] * (int64_t)c->kvh + x / c->hd) * page + j % page) *
                        c->hd +
                    x % c->hd;
                const int64_t from = (int64_t)(i * MAX_LEN + j) * c->kvh * c->hd + x;
                if (c->dtype == TPL_DTYPE_F32)
                    ((float *)kv.k)[at] = c->k[from], ((float *)kv.v)[at] = c->v[from];
                else
                    ((uint16_t *)kv.k)[at] = vec_to_half(c->k[from]),
                               ((uint16_t *)kv.v)[at] = vec_to_half(c->v[from]);
            }
    float *q = random_floats((int64_t)s->pad_tok * width, 1),
          *o = random_floats((int64_t)s->pad_tok * width, 1);
    for (int t = 0; t < s->n_tok - 1; t++)
        memcpy(q + (int64_t)t * width,
               c->q + (int64_t)(tpl_step_tok_seq(s)[t] * MAX_LEN + tpl_step_pos(s)[t]) * width,
               (size_t)width * 4);
    tpl_bound op = {
        .kind = TPL_OP_ID_ATTEND,
        .n_out = 1,
        .n_in = 1,
        .kv = &kv,
        .in = { toks(q, width) },
        .out = { toks(o, width) },
        .imm = { { c->kvh }, { c->grp }, { c->hd }, { .f = 1 / sqrt(c->hd) }, { c->window }, { 0 }, { c->is_exact } }
    };
    bind_op(isa, &op);
    if (attend_by) op.run = attend_by;
    run_op(&op, s, nth);
    for (int t = 0; t < s->n_tok - 1; t++)
        memcpy(out + (int64_t)(tpl_step_tok_seq(s)[t] * MAX_LEN + tpl_step_pos(s)[t]) * width,
               o + (int64_t)t * width, (size_t)width * 4);
    for (int64_t i = (int64_t)(s->n_tok - 1) * width; i < (int64_t)s->pad_tok * width; i++)
        assert_true(o[i] == 0);
    free(q), free(o), free(kv.k), free(kv.v), free(order), free(s);
}

#endif
