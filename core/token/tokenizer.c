/* SPDX-License-Identifier: Apache-2.0 */
#include "token/tokenizer_priv.h"

#include "token/utf8.h"

/* -- Loading, the common end ------------------------------------------------------------------ */

static tpl_status fill_shown(tpl_tokenizer *t, const char *where, tpl_err *err)
{
    tpl_buf b = { 0 };
    const tpl_vocab *v = &t->vocab;
    t->shown_end = calloc((size_t)v->n, sizeof *t->shown_end);
    if (!t->shown_end || !tpl_buf_reserve(&b, v->text_len + 1)) {
        tpl_buf_free(&b);
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for %d tokens", v->n);
    }
    for (int32_t i = 0; i < v->n; i++) {
        tpl_status st =
            v->tokens[i].flags
                ? tpl_decoder_show(&t->decoder, (tpl_str){ v->tokens[i].s, v->tokens[i].len }, false, &b,
                                   err)
                : TPL_OK;
        if (st) {
            tpl_buf_free(&b);
            return st;
        }
        t->shown_end[i] = b.len;
    }
    t->shown = b.s;
    return TPL_OK;
}

/* Spellings of control tokens that end a turn or a text, in the model families that have them. */
static const char *const eog_names[] = {
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<|eot|>",
    "<|eom|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_utterance>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    "<EOT>",
    "[EOS]",
    "[EOT]",
};

static void mark_eog(tpl_tokenizer *t)
{
    tpl_vocab *v = &t->vocab;
    /* gpt-oss: <|end|> closes a message, and more of the same turn may follow; <|return|> and <|call|>
     * end it */
    bool has_return = tpl_vocab_find(v, "<|return|>", 10) >= 0;
    for (size_t i = 0; i < sizeof eog_names / sizeof *eog_names; i++) {
        int32_t id = tpl_vocab_find(v, eog_names[i], strlen(eog_names[i]));
        if (id < 0 || !(v->tokens[id].flags & TPL_TOKEN_ADDED)) continue;
        if (!(has_return && !strcmp(eog_names[i], "<|end|>"))) v->tokens[id].flags |= TPL_TOKEN_EOG;
    }
    if (t->eos >= 0) v->tokens[t->eos].flags |= TPL_TOKEN_EOG;
}

tpl_status tpl_tokenizer_finish(tpl_tokenizer *t, const char *where, tpl_err *err)
{
    TPL_TRY(fill_shown(t, where, err));
    for (int i = 0; i < t->post.n_front + t->post.n_back; i++) {
        int32_t id = i < t->post.n_front ? t->post.front[i] : t->post.back[i - t->post.n_front];
        if (!tpl_tokenizer_token(t, id).s)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                            "post_processor adds id %d, which has no token", id);
    }
    mark_eog(t);
    return TPL_OK;
}

void tpl_tokenizer_free(tpl_tokenizer *t)
{
    if (!t) return;
    if (t->model) t->model->ops->free(t->model);
    tpl_vocab_free(&t->vocab);
    tpl_added_free(&t->raw);
    tpl_added_free(&t->normalized);
    tpl_normalizer_free(&t->normalizer);
    tpl_pretok_free(&t->pretok);
    tpl_decoder_free(&t->decoder);
    free(t->shown);
    free(t->shown_end);
    free(t);
}

/* -- Configuration ---------------------------------------------------------------------------- */

static tpl_status find_token(const tpl_tokenizer *t, const char *key, tpl_str s, int32_t *id,
                             tpl_err *err)
{
    if (!s.s) return TPL_OK;
    *id = tpl_vocab_find(&t->vocab, s.s, s.len);
    if (*id >= 0) return TPL_OK;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, "tokenizer_config.json", "%s %s is not in the vocabulary",
                    key, tpl_show(s.s, s.len).s);
}

tpl_status tpl_tokenizer_configure(tpl_tokenizer *t, const tpl_tokenizer_config *c, tpl_err *err)
{
    tpl_post *p = &t->post;
    TPL_TRY(find_token(t, "bos_token", c->bos_token, &t->bos, err));
    TPL_TRY(find_token(t, "eos_token", c->eos_token, &t->eos, err));
    if (t->eos >= 0) t->vocab.tokens[t->eos].flags |= TPL_TOKEN_EOG;
    if (c->add_bos == 1 && t->bos >= 0 && !(p->n_front && p->front[0] == t->bos))
        TPL_TRY(tpl_post_add_front(p, t->bos, "add_bos_token", err));
    if (c->add_bos == 0 && p->n_front && p->front[0] == t->bos)
        memmove(p->front, p->front + 1, (size_t)--p->n_front * sizeof *p->front);
    if (c->add_eos == 1 && t->eos >= 0 && !(p->n_back && p->back[p->n_back - 1] == t->eos))
        TPL_TRY(tpl_post_add_back(p, t->eos, "add_eos_token", err));
    if (c->add_eos == 0 && p->n_back && p->back[p->n_back - 1] == t->eos) p->n_back--;
    return TPL_OK;
}

tpl_status tpl_tokenizer_add_eog(tpl_tokenizer *t, int64_t id, tpl_err *err)
{
    if (id < 0 || id >= t->vocab.n || !t->vocab.tokens[id].flags)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, "eos_token_id", "id %lld has no token", (long long)id);
    t->vocab.tokens[id].flags |= TPL_TOKEN_EOG;
    return TPL_OK;
}

/* -- Facts ------------------------------------------------------------------------------------ */

static bool has(const tpl_tokenizer *t, int32_t id, uint32_t flag)
{
    return id >= 0 && id < t->vocab.n && t->vocab.tokens[id].flags & flag;
}

int32_t tpl_tokenizer_n_vocab(const tpl_tokenizer *t) { return t->vocab.n; }
int32_t tpl_tokenizer_bos(const tpl_tokenizer *t) { return t->bos; }
int32_t tpl_tokenizer_eos(const tpl_tokenizer *t) { return t->eos; }
bool tpl_tokenizer_is_eog(const tpl_tokenizer *t, int32_t id) { return has(t, id, TPL_TOKEN_EOG); }
bool tpl_tokenizer_is_special(const tpl_tokenizer *t, int32_t id)
{
    return has(t, id, TPL_TOKEN_SPECIAL);
}

tpl_str tpl_tokenizer_token(const tpl_tokenizer *t, int32_t id)
{
    return has(t, id, TPL_TOKEN_USED) ? (tpl_str){ t->vocab.tokens[id].s, t->vocab.tokens[id].len }
                                      : (tpl_str){ NULL, 0 };
}

int32_t tpl_tokenizer_find(const tpl_tokenizer *t, const char *s, size_t len)
{
    return tpl_vocab_find(&t->vocab, s, len);
}

bool tpl_tokenizer_adds_bos(const tpl_tokenizer *t)
{
    return t->bos >= 0 && t->post.n_front && t->post.front[0] == t->bos;
}

/* -- Encoding --------------------------------------------------------------------------------- */

typedef struct encoding {
    const tpl_tokenizer *t;
    tpl_ids out;
    void *model_work;
    tpl_regex_work *regex_work;
    tpl_buf clean, norm_a, norm_b;
    tpl_pretok_run cut;
    bool special;
} encoding;

static tpl_status put_piece(void *ctx, tpl_str piece, tpl_err *err)
{
    encoding *e = ctx;
    return e->t->model->ops->encode(e->t->model, piece, &e->model_work, &e->out, err);
}

static tpl_status put_plain(encoding *e, tpl_str text, bool at_start, tpl_err *err)
{
    return tpl_pretok_cut(&e->cut, text, at_start, err);
}

typedef tpl_status (*put_fn)(encoding *e, tpl_str text, bool at_start, tpl_err *err);

/* Cuts the tokens of a set out of the text; `put` gets what lies between them. */
static tpl_status cut_added(encoding *e, const tpl_added *set, tpl_str text, bool at_start, put_fn put,
                            tpl_err *err)
{
    size_t scan = 0, done = 0;
    tpl_added_match m;
    while (tpl_added_next(set, text, e->special, &scan, done, &m)) {
        if (m.start > done)
            TPL_TRY(put(e, (tpl_str){ text.s + done, m.start - done }, at_start && !done, err));
        tpl_ids_put(&e->out, m.token->id);
        done = m.end;
    }
    if (done < text.len)
        TPL_TRY(put(e, (tpl_str){ text.s + done, text.len - done }, at_start && !done, err));
    return TPL_OK;
}

static tpl_status put_raw(encoding *e, tpl_str text, bool at_start, tpl_err *err)
{
    TPL_TRY(tpl_normalizer_run(&e->t->normalizer, &text, &e->norm_a, &e->norm_b, &e->regex_work, err));
    return cut_added(e, &e->t->normalized, text, at_start, put_plain, err);
}

static tpl_status make_valid(encoding *e, tpl_str *text, tpl_err *err)
{
    tpl_utf8_stream st = { 0 };
    size_t good = tpl_utf8_valid(text->s, text->len);
    if (good == text->len) return TPL_OK;
    if (!tpl_buf_add(&e->clean, text->s, good) ||
        !tpl_utf8_push(&st, text->s + good, text->len - good, &e->clean) ||
        !tpl_utf8_flush(&st, &e->clean))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a text of %zu bytes", text->len);
    *text = (tpl_str){ e->clean.s, e->clean.len };
    return TPL_OK;
}

static void encoding_free(encoding *e)
{
    e->t->model->ops->work_free(e->model_work);
    tpl_regex_work_free(e->regex_work);
    tpl_pretok_run_free(&e->cut);
    tpl_buf_free(&e->clean);
    tpl_buf_free(&e->norm_a);
    tpl_buf_free(&e->norm_b);
}

static tpl_status encode(encoding *e, tpl_str text, bool bos, tpl_err *err)
{
    const tpl_post *p = &e->t->post;
    TPL_TRY(make_valid(e, &text, err));
    for (int i = 0; bos && i < p->n_front; i++) tpl_ids_put(&e->out, p->front[i]);
    TPL_TRY(cut_added(e, &e->t->raw, text, true, put_raw, err));
    for (int i = 0; bos && i < p->n_back; i++) tpl_ids_put(&e->out, p->back[i]);
    return TPL_OK;
}

tpl_status tpl_tokenizer_encode(const tpl_tokenizer *t, const char *text, size_t len, unsigned flags,
                                int32_t *ids, size_t cap, size_t *n, tpl_err *err)
{
    encoding e = { .t = t, .out = { .ids = ids, .cap = cap }, .special = flags & TPL_ENCODE_SPECIAL };
    e.cut = (tpl_pretok_run){ .p = &t->pretok, .work = &e.regex_work, .piece = put_piece, .ctx = &e };
    *n = 0;
    if (len > TPL_TOKENIZE_MAX_BYTES)
        return tpl_fail(err, TPL_ERR_ARG, 0, "text", "text has %zu bytes, at most %zu", len,
                        TPL_TOKENIZE_MAX_BYTES);
    tpl_status st = encode(&e, (tpl_str){ text, len }, flags & TPL_ENCODE_BOS, err);
    encoding_free(&e);
    if (!st) *n = e.out.n;
    return st;
}
