/* SPDX-License-Identifier: Apache-2.0
 *
 * The step descriptor: what one step computes, as plain data in one block of memory, offsets only, so that a slot of the step ring could
 * lie in shared memory or be sent to another process. A step is a ragged set of sequences: prefill chunks of any length beside
 * decodes; there is no single-sequence path. The scheduler fills a slot, every rank of every stage reads it, the last stage writes
 * the results. Written by one owner at a time; no locks.
 */
#ifndef TPL_BASE_STEP_H
#define TPL_BASE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* tpl_step_seq.flags */
    TPL_SEQ_SAMPLE = 1, /* sample a token from each output row of this sequence */
    TPL_SEQ_LOGITS = 2, /* copy its output rows to the slot's logits area, in output order */
};

/* How to choose a token. Neutral values: temperature 0 = greedy, top_k 0, top_p 1, min_p 0, repetition 1, others 0. */
typedef struct tpl_sampling {
    float temperature, top_p, min_p, repetition, frequency, presence;
    int32_t top_k;
    uint32_t n_logprobs;      /* best ids whose log probabilities are wanted, 0..20 */
    uint64_t seed, request;   /* key of the counter random numbers: (seed, request, position, token id) */
    uint32_t prior0, n_prior; /* ids so far in the pool: prompt, then output (repetition counts both) */
    uint32_t n_prompt;        /* of these the prompt (frequency and presence count only what follows) */
    uint32_t bias0, n_bias;   /* pairs in the pool: id, float bits */
} tpl_sampling;

typedef struct tpl_step_seq {
    int32_t slot;           /* the scheduler's sequence slot; -1: padding */
    int32_t q0, q_len;      /* its tokens in the step: tok[q0 .. q0 + q_len) */
    int32_t pos0;           /* position of the first of them */
    int32_t kv_len;         /* positions in the cache after this step: pos0 + q_len */
    int32_t out0, n_out;    /* its output rows: out[out0 .. out0 + n_out) */
    int32_t adapter;        /* 0: none */
    uint32_t page0, n_pages; /* its block table: pages[page0 .. page0 + n_pages) */
    uint32_t flags;
    int32_t prompt_done;     /* 0 while chunks of the prompt remain */
} tpl_step_seq;

typedef struct tpl_step_caps {
    uint32_t tok, seq, out, pages, pool, logit_rows, vocab, top;
} tpl_step_caps;

typedef struct tpl_step {
    uint64_t id;
    bool continues;                /* some token is the one that the step before chooses: tok[i] = -1 - (output row of that step) */
    uint32_t plan_epoch, program;
    int32_t n_tok, n_seq, n_out;   /* real counts */
    int32_t pad_tok, pad_out;      /* rounded up so that every axis that cuts them divides; rows beyond the real counts are padding */
    uint32_t n_pages, n_pool, n_logit_rows;
    uint64_t off_tok, off_pos, off_tok_seq, off_seqs, off_sampling, off_pages, off_pool, off_out, off_out_seq;
    uint64_t off_res_tok, off_res_logprob, off_res_top_id, off_res_top_logprob, off_logits;
    tpl_step_caps cap;
    int32_t status, bad_op;        /* result: tpl_status, and the op that failed */
} tpl_step;

#define TPL_STEP_FIELD(type, name)                                      \
    static inline type *tpl_step_##name(const tpl_step *s)              \
    {                                                                   \
        return (type *)((char *)(uintptr_t)s + s->off_##name);          \
    }
TPL_STEP_FIELD(int32_t, tok)             /* [n_tok] token ids; negative: see `continues` */
TPL_STEP_FIELD(int32_t, pos)             /* [n_tok] position of each token in its sequence */
TPL_STEP_FIELD(int32_t, tok_seq)         /* [n_tok] index into seq[]; -1: padding */
TPL_STEP_FIELD(tpl_step_seq, seqs)       /* [n_seq] */
TPL_STEP_FIELD(tpl_sampling, sampling)   /* [n_seq] */
TPL_STEP_FIELD(uint32_t, pages)          /* block tables of all sequences, one after the other */
TPL_STEP_FIELD(uint32_t, pool)           /* prior ids and biases */
TPL_STEP_FIELD(int32_t, out)             /* [n_out] token index of each output row; padding rows repeat 0 */
TPL_STEP_FIELD(int32_t, out_seq)         /* [n_out] index into seq[]; -1: padding */
TPL_STEP_FIELD(int32_t, res_tok)         /* [n_out] sampled id, -1 where none was asked for, -2: no finite logit */
TPL_STEP_FIELD(float, res_logprob)       /* [n_out] its log probability before temperature and cuts */
TPL_STEP_FIELD(int32_t, res_top_id)      /* [n_out][cap.top] best ids, -1 filled */
TPL_STEP_FIELD(float, res_top_logprob)   /* [n_out][cap.top] */
TPL_STEP_FIELD(float, logits)            /* [cap.logit_rows][cap.vocab] rows of sequences with TPL_SEQ_LOGITS */
#undef TPL_STEP_FIELD

/* Bytes of a slot with these capacities. */
size_t tpl_step_bytes(const tpl_step_caps *cap);
/* Lays the offsets out in a zeroed slot of tpl_step_bytes(cap), 64-byte aligned. */
void tpl_step_init(tpl_step *s, const tpl_step_caps *cap);

#endif
