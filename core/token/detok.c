/* SPDX-License-Identifier: Apache-2.0 */
#include "token/tokenizer_priv.h"
#include "token/utf8.h"

struct tpl_detok {
    const tpl_tokenizer *t;
    bool skip_special;
    bool started;    /* a token was shown */
    int n_strip;     /* leading characters still to drop */
    size_t n_prompt; /* tokens of the prompt still to come */
    tpl_utf8_stream utf8;
    tpl_buf out;   /* what the last call gave */
    tpl_buf first; /* bytes of a first token that differ from the table's */
};

tpl_status tpl_detok_new(tpl_detok **out, const tpl_tokenizer *t, bool skip_special, size_t n_prompt,
                         tpl_err *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a decoder");
    **out = (tpl_detok){
        .t = t, .skip_special = skip_special, .n_strip = t->decoder.n_strip, .n_prompt = n_prompt
    };
    return TPL_OK;
}

void tpl_detok_free(tpl_detok *d)
{
    if (!d) return;
    tpl_buf_free(&d->out);
    tpl_buf_free(&d->first);
    free(d);
}

/* The bytes that a token shows at this place. */
static tpl_status bytes_of(tpl_detok *d, int32_t id, tpl_str *s, tpl_err *err)
{
    const tpl_tokenizer *t = d->t;
    size_t from = id ? t->shown_end[id - 1] : 0;
    *s = (tpl_str){ t->shown + from, t->shown_end[id] - from };
    if (!d->started && t->decoder.drop_first) {
        d->first.len = 0;
        TPL_TRY(tpl_decoder_show(&t->decoder, tpl_tokenizer_token(t, id), true, &d->first, err));
        *s = (tpl_str){ d->first.s, d->first.len };
    }
    while (d->n_strip > 0 && s->len) {
        if (s->s[0] != t->decoder.strip) d->n_strip = 1; /* something else: no more to drop */
        else s->s++, s->len--;
        d->n_strip--;
    }
    return TPL_OK;
}

static tpl_status show(tpl_detok *d, int32_t id, tpl_err *err)
{
    tpl_str s;
    TPL_TRY(bytes_of(d, id, &s, err));
    bool ok = !d->started || !d->t->decoder.spaced || tpl_utf8_push(&d->utf8, " ", 1, &d->out);
    if (!ok || !tpl_utf8_push(&d->utf8, s.s, s.len, &d->out))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory while decoding");
    d->started = true;
    return TPL_OK;
}

tpl_status tpl_detok_push(tpl_detok *d, int32_t id, tpl_str *text, tpl_err *err)
{
    d->out.len = 0;
    *text = (tpl_str){ "", 0 };
    bool shows =
        tpl_tokenizer_token(d->t, id).s && !(d->skip_special && tpl_tokenizer_is_special(d->t, id));
    if (shows) TPL_TRY(show(d, id, err));
    if (d->n_prompt) d->n_prompt--;
    else if (d->out.len) *text = (tpl_str){ d->out.s, d->out.len };
    return TPL_OK;
}

tpl_status tpl_detok_flush(tpl_detok *d, tpl_str *text, tpl_err *err)
{
    d->out.len = 0;
    d->started = false;
    d->n_strip = d->t->decoder.n_strip;
    d->n_prompt = 0;
    *text = (tpl_str){ "", 0 };
    if (!tpl_utf8_flush(&d->utf8, &d->out))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory while decoding");
    if (d->out.len) *text = (tpl_str){ d->out.s, d->out.len };
    return TPL_OK;
}
