/* SPDX-License-Identifier: Apache-2.0 */
#include "token/decoder.h"

#include "token/byte_level.h"
#include "token/part.h"
#include "token/pretok.h"
#include "token/utf8.h"
#include "token/vocab.h"

/* What a decoder puts in place of something in every token: a space, mostly. Bounds what the table of shown bytes can grow to. */
#define REPLACEMENT_MAX 16

tpl_status tpl_decoder_set_replace(tpl_decoder *d, tpl_str from, tpl_str to, const char *where,
                                   tpl_err *err)
{
    if (!from.len) return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "decoder Replace: pattern is empty");
    if (to.len > REPLACEMENT_MAX)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "decoder Replace: content has %zu bytes, at most %d", to.len,
                        REPLACEMENT_MAX);
    if (d->from.len)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where,
                        "decoder replaces more than once, which is not supported");
    bool ok = tpl_buf_add(&d->from, from.s, from.len) && tpl_buf_add(&d->to, to.s, to.len);
    return ok ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for a decoder");
}

void tpl_decoder_free(tpl_decoder *d)
{
    tpl_buf_free(&d->from);
    tpl_buf_free(&d->to);
}

/* -- tokenizer.json --------------------------------------------------------------------------- */

static tpl_status add_replace(tpl_decoder *d, const json_t *json, const char *where, tpl_err *err)
{
    tpl_str from, to;
    bool is_regex;
    TPL_TRY(tpl_part_pattern(json, "decoder Replace", &from, &is_regex, where, err));
    TPL_TRY(tpl_part_str(json, "content", "decoder Replace", &to, where, err));
    if (is_regex) return tpl_part_unknown("decoder", "Replace by a regex", where, err);
    if (d->is_fused) return tpl_part_unknown("decoder", "Replace after Fuse", where, err);
    return tpl_decoder_set_replace(d, from, to, where, err);
}

static tpl_status add_strip(tpl_decoder *d, const json_t *json, const char *where, tpl_err *err)
{
    tpl_str content;
    int64_t start, stop;
    TPL_TRY(tpl_part_str(json, "content", "decoder Strip", &content, where, err));
    TPL_TRY(tpl_part_int(json, "start", "decoder Strip", &start, where, err));
    TPL_TRY(tpl_part_int(json, "stop", "decoder Strip", &stop, where, err));
    /* at the end of an output nobody knows yet that it is the end: a stream could not do it */
    if (!d->is_fused || stop != 0 || content.len != 1 || (content.s[0] & 0x80))
        return tpl_part_unknown("decoder", "Strip other than of leading ASCII characters after Fuse",
                                where, err);
    if (start < 0 || start > 1024)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "decoder Strip: start is %lld", (long long)start);
    d->strip = content.s[0];
    d->n_strip = (int)start;
    return TPL_OK;
}

static tpl_status add_metaspace(tpl_decoder *d, const json_t *json, const char *where, tpl_err *err)
{
    tpl_str mark;
    tpl_prepend_scheme scheme;
    TPL_TRY(tpl_part_str(json, "replacement", "decoder Metaspace", &mark, where, err));
    TPL_TRY(tpl_pretok_scheme(json, "decoder Metaspace", &scheme, where, err));
    d->has_metaspace = true;
    d->drop_first = scheme != TPL_PREPEND_NEVER;
    return tpl_decoder_set_replace(d, mark, (tpl_str){ " ", 1 }, where, err);
}

static tpl_status add(tpl_decoder *d, const json_t *json, int depth, const char *where, tpl_err *err);

static tpl_status add_sequence(tpl_decoder *d, const json_t *json, int depth, const char *where,
                               tpl_err *err)
{
    const json_t *list = json_object_get(json, "decoders");
    size_t i;
    const json_t *item;
    if (!json_is_array(list))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "decoder Sequence: 'decoders' is not an array");
    if (depth >= TPL_PART_NESTING_MAX) return tpl_part_too_deep("decoder", where, err);
    json_array_foreach (list, i, item) TPL_TRY(add(d, item, depth + 1, where, err));
    return TPL_OK;
}

static tpl_status add(tpl_decoder *d, const json_t *json, int depth, const char *where, tpl_err *err)
{
    const char *type;
    TPL_TRY(tpl_part_type(json, "decoder", &type, where, err));
    if (!strcmp(type, "ByteLevel")) return d->byte_level = true, TPL_OK;
    if (!strcmp(type, "ByteFallback")) return d->byte_fallback = true, TPL_OK;
    if (!strcmp(type, "Fuse")) return d->is_fused = true, TPL_OK;
    if (!strcmp(type, "Replace")) return add_replace(d, json, where, err);
    if (!strcmp(type, "Strip")) return add_strip(d, json, where, err);
    if (!strcmp(type, "Metaspace")) return add_metaspace(d, json, where, err);
    if (!strcmp(type, "Sequence")) return add_sequence(d, json, depth, where, err);
    return tpl_part_unknown("decoder", type, where, err);
}

tpl_status tpl_decoder_from_json(tpl_decoder *d, const json_t *json, const char *where, tpl_err *err)
{
    *d = (tpl_decoder){ .spaced = !json || json_is_null(json) };
    if (d->spaced) return TPL_OK;
    TPL_TRY(add(d, json, 0, where, err));
    if (d->byte_level && (d->byte_fallback || d->from.len))
        return tpl_part_unknown("decoder", "ByteLevel together with others", where, err);
    return TPL_OK;
}

/* -- Showing ---------------------------------------------------------------------------------- */

/* A spelling with any character outside the alphabet stands for itself: that is an added token. */
static bool show_byte_level(tpl_str s, tpl_buf *out)
{
    size_t len = out->len;
    if (!tpl_buf_reserve(out, s.len)) return false;
    for (size_t pos = 0; pos < s.len;) {
        int byte = tpl_byte_level_byte(tpl_utf8_next(s.s, &pos));
        if (byte < 0) {
            out->len = len;
            return tpl_buf_add(out, s.s, s.len);
        }
        out->s[out->len++] = (char)byte;
    }
    return true;
}

static bool show_replaced(tpl_str s, const tpl_buf *from, tpl_str to, tpl_buf *out)
{
    const char *p = s.s, *end = s.s + s.len, *hit;
    while ((hit = memmem(p, (size_t)(end - p), from->s, from->len))) {
        if (!tpl_buf_add(out, p, (size_t)(hit - p)) || !tpl_buf_add(out, to.s, to.len)) return false;
        p = hit + from->len;
    }
    return tpl_buf_add(out, p, (size_t)(end - p));
}

tpl_status tpl_decoder_show(const tpl_decoder *d, tpl_str s, bool is_first, tpl_buf *out, tpl_err *err)
{
    int byte = d->byte_fallback ? tpl_vocab_byte(s.s, s.len) : -1;
    char c = (char)byte;
    bool ok;
    if (byte >= 0) ok = tpl_buf_add(out, &c, 1);
    else if (d->byte_level) ok = show_byte_level(s, out);
    else if (d->from.len)
        ok = show_replaced(
            s, &d->from,
            is_first && d->drop_first ? (tpl_str){ "", 0 } : (tpl_str){ d->to.s, d->to.len }, out);
    else ok = tpl_buf_add(out, s.s, s.len);
    return ok ? TPL_OK : tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory while decoding");
}
