/* SPDX-License-Identifier: Apache-2.0 */
#include "base/step.h"

#include <string.h>

/* Walks the fields in order; with s NULL it only measures. */
static size_t lay_out(tpl_step *s, const tpl_step_caps *cap)
{
    size_t at = (sizeof(tpl_step) + 63) & ~(size_t)63;
#define FIELD(name, n, size)                                              \
    do {                                                                  \
        if (s) s->off_##name = at;                                        \
        at = (at + (size_t)(n) * (size) + 63) & ~(size_t)63;              \
    } while (0)
    FIELD(tok, cap->tok, 4);
    FIELD(pos, cap->tok, 4);
    FIELD(tok_seq, cap->tok, 4);
    FIELD(seqs, cap->seq, sizeof(tpl_step_seq));
    FIELD(sampling, cap->seq, sizeof(tpl_sampling));
    FIELD(pages, cap->pages, 4);
    FIELD(pool, cap->pool, 4);
    FIELD(out, cap->out, 4);
    FIELD(out_seq, cap->out, 4);
    FIELD(res_tok, cap->out, 4);
    FIELD(res_logprob, cap->out, 4);
    FIELD(res_top_id, (size_t)cap->out * cap->top, 4);
    FIELD(res_top_logprob, (size_t)cap->out * cap->top, 4);
    FIELD(logits, (size_t)cap->logit_rows * cap->vocab, 4);
#undef FIELD
    return at;
}

size_t tpl_step_bytes(const tpl_step_caps *cap)
{
    return lay_out(NULL, cap);
}

void tpl_step_init(tpl_step *s, const tpl_step_caps *cap)
{
    memset(s, 0, sizeof *s);
    s->cap = *cap;
    lay_out(s, cap);
}
