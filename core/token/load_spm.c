/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece BPE from GGUF metadata ("llama").
 *
 * SentencePiece has no merges: any two symbols whose concatenation is a token may merge, best score
 * first. That is the same as a list of all ways to cut a token into two tokens, ranked by score; tokens
 * of equal score share a rank, so that the leftmost goes first.
 */
#include <math.h>

#include "token/bpe.h"
#include "token/load_priv.h"
#include "token/utf8.h"

#define MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */
#define STR(s) ((tpl_str){ s, sizeof s - 1 })

/* Longest token whose cuts are listed; the work grows with its square. Gemma's longest, of 31 marks, has
 * 93 bytes. */
#define SPM_TOKEN_MAX 512

typedef struct cut {
    int32_t left, right, merged;
    uint32_t rank;
} cut;

typedef struct cuts {
    cut *c;
    size_t n, cap;
} cuts;

static bool is_normal(const tpl_vocab_source *s, size_t i)
{
    return tpl_load_type(s, i) == TPL_VOCAB_NORMAL && s->tokens[i].len;
}

static bool push_cut(cuts *c, cut x)
{
    if (!tpl_grow((void **)&c->c, &c->cap, c->n + 1, sizeof *c->c)) return false;
    c->c[c->n++] = x;
    return true;
}

static bool cut_token(const tpl_tokenizer *t, const tpl_vocab_source *s, int32_t id, uint32_t rank,
                      cuts *out)
{
    tpl_str w = s->tokens[id];
    for (size_t pos = 0; pos < w.len;) {
        tpl_utf8_next(w.s, &pos);
        if (pos == w.len) break;
        int32_t left = tpl_vocab_find_model(&t->vocab, w.s, pos);
        if (left < 0 || !is_normal(s, (size_t)left)) continue;
        int32_t right = tpl_vocab_find_model(&t->vocab, w.s + pos, w.len - pos);
        if (right >= 0 && is_normal(s, (size_t)right) && !push_cut(out, (cut){ left, right, id, rank }))
            return false;
    }
    return true;
}

static int by_score(const void *a, const void *b, void *ctx)
{
    const float *score = ctx;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (score[x] != score[y]) return score[x] > score[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Ids of normal tokens, best score first; NULL: no memory. */
static int32_t *sorted_ids(const tpl_vocab_source *s, size_t *n)
{
    int32_t *ids = calloc(s->n_tokens, sizeof *ids);
    *n = 0;
    if (!ids) return NULL;
    for (size_t i = 0; i < s->n_tokens; i++)
        if (is_normal(s, i)) ids[(*n)++] = (int32_t)i;
    qsort_r(ids, *n, sizeof *ids, by_score, (void *)s->scores);
    return ids;
}

static tpl_status collect_cuts(const tpl_tokenizer *t, const tpl_vocab_source *s, cuts *out,
                               tpl_err *err)
{
    size_t n;
    uint32_t rank = 0;
    tpl_status st = TPL_OK;
    int32_t *ids = sorted_ids(s, &n);
    if (!ids)
        return tpl_fail(err, TPL_ERR_MEM, 0, s->where, "out of memory for %zu tokens", s->n_tokens);
    for (size_t i = 0; i < n && !st; i++) {
        tpl_str w = s->tokens[ids[i]];
        if (i && s->scores[ids[i]] != s->scores[ids[i - 1]]) rank++;
        if (w.len > SPM_TOKEN_MAX)
            st = tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, s->where, "token %d has %zu bytes, at most %d",
                          ids[i], w.len, SPM_TOKEN_MAX);
        else if (!cut_token(t, s, ids[i], rank, out))
            st = tpl_fail(err, TPL_ERR_MEM, 0, s->where, "out of memory for %zu tokens", s->n_tokens);
    }
    free(ids);
    return st;
}

static tpl_status make_spm(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err)
{
    cuts c = { 0 };
    int32_t unk;
    tpl_bpe *bpe = NULL;
    TPL_TRY(tpl_load_id(t, s, "unknown_token_id", s->unk_id, &unk, err));
    tpl_bpe_options o = { .vocab = &t->vocab, .byte_fallback = true, .fuse_unk = true, .unk_id = unk };
    tpl_status st = collect_cuts(t, s, &c, err);
    if (!st) st = tpl_bpe_new(&bpe, &o, c.n, s->where, err);
    for (size_t i = 0; i < c.n && !st; i++)
        tpl_bpe_add_ids(bpe, c.c[i].left, c.c[i].right, c.c[i].merged, c.c[i].rank);
    free(c.c);
    if (!st) t->model = tpl_bpe_model(bpe);
    return st;
}

tpl_status tpl_load_spm(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err)
{
    bool prefix = s->add_space_prefix != 0; /* absent means yes */
    if (!s->n_scores)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "tokenizer.ggml.scores is missing");
    for (size_t i = 0; i < s->n_scores; i++)
        if (isnan(s->scores[i]))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "the score of token %zu is not a number",
                            i);
    TPL_TRY(tpl_load_tokens(t, s, err));
    if (prefix)
        TPL_TRY(tpl_normalizer_add(&t->normalizer, TPL_NORM_PREPEND, TPL_STR_NONE, STR(MARK), s->where,
                                   err));
    TPL_TRY(tpl_normalizer_add(&t->normalizer, TPL_NORM_REPLACE, STR(" "), STR(MARK), s->where, err));
    t->decoder =
        (tpl_decoder){ .byte_fallback = true, .is_fused = true, .n_strip = prefix, .strip = ' ' };
    TPL_TRY(tpl_decoder_set_replace(&t->decoder, STR(MARK), STR(" "), s->where, err));
    TPL_TRY(make_spm(t, s, err));
    return tpl_load_specials(t, s, true, err);
}
