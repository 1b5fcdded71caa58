/* SPDX-License-Identifier: Apache-2.0 */
#include "token/normalizer.h"

#include "token/part.h"
#include "token/precompiled.h"
#include "token/unicode.h"
#include "token/utf8.h"

#define NONE ((tpl_str){ "", 0 })

static tpl_status no_memory(const char *where, tpl_err *err)
{
    return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for a normalizer");
}

tpl_status tpl_normalizer_add(tpl_normalizer *n, tpl_norm_kind kind, tpl_str from, tpl_str to,
                              const char *where, tpl_err *err)
{
    if (n->n == TPL_NORM_STEPS_MAX)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "normalizer has more than %d steps",
                        TPL_NORM_STEPS_MAX);
    tpl_norm_step *s = &n->steps[n->n++];
    *s = (tpl_norm_step){ .kind = kind };
    return tpl_buf_add(&s->from, from.s, from.len) && tpl_buf_add(&s->to, to.s, to.len)
               ? TPL_OK
               : no_memory(where, err);
}

void tpl_normalizer_free(tpl_normalizer *n)
{
    for (int i = 0; i < n->n; i++) {
        tpl_regex_free(n->steps[i].regex);
        tpl_buf_free(&n->steps[i].from);
        tpl_buf_free(&n->steps[i].to);
    }
    n->n = 0;
}

/* -- tokenizer.json --------------------------------------------------------------------------- */

static tpl_status add_replace(tpl_normalizer *n, const json_t *json, const char *where, tpl_err *err)
{
    tpl_str to, pattern;
    bool is_regex;
    TPL_TRY(tpl_part_str(json, "content", "normalizer Replace", &to, where, err));
    TPL_TRY(tpl_part_pattern(json, "normalizer Replace", &pattern, &is_regex, where, err));
    if (!is_regex && !pattern.len)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "normalizer Replace: pattern is empty");
    TPL_TRY(tpl_normalizer_add(n, TPL_NORM_REPLACE, is_regex ? NONE : pattern, to, where, err));
    return is_regex ? tpl_regex_new(&n->steps[n->n - 1].regex, pattern, where, err) : TPL_OK;
}

static tpl_status add_prepend(tpl_normalizer *n, const json_t *json, const char *where, tpl_err *err)
{
    tpl_str to;
    TPL_TRY(tpl_part_str(json, "prepend", "normalizer Prepend", &to, where, err));
    return tpl_normalizer_add(n, TPL_NORM_PREPEND, NONE, to, where, err);
}

static tpl_status add_strip(tpl_normalizer *n, const json_t *json, const char *where, tpl_err *err)
{
    const char *what = "normalizer Strip";
    bool left, right;
    TPL_TRY(tpl_part_bool(json, "strip_left", -1, what, &left, where, err));
    TPL_TRY(tpl_part_bool(json, "strip_right", -1, what, &right, where, err));
    TPL_TRY(tpl_normalizer_add(n, TPL_NORM_STRIP, NONE, NONE, where, err));
    n->steps[n->n - 1].left = left;
    n->steps[n->n - 1].right = right;
    return TPL_OK;
}

/* A map that is null, as converted files of models without one have it, changes nothing. */
static tpl_status add_precompiled(tpl_normalizer *n, const json_t *json, const char *where, tpl_err *err)
{
    tpl_str map;
    const char *key = "precompiled_charsmap";
    if (json_is_null(json_object_get(json, key))) return TPL_OK;
    TPL_TRY(tpl_part_str(json, key, "normalizer Precompiled", &map, where, err));
    if (!map.len) return TPL_OK;
    TPL_TRY(tpl_normalizer_add(n, TPL_NORM_PRECOMPILED, NONE, NONE, where, err));
    return tpl_precompiled_read(map, &n->steps[n->n - 1].from, where, err);
}

static tpl_status add_step(tpl_normalizer *n, const json_t *json, int depth, const char *where,
                           tpl_err *err);

static tpl_status add_sequence(tpl_normalizer *n, const json_t *json, int depth, const char *where,
                               tpl_err *err)
{
    const json_t *list = json_object_get(json, "normalizers");
    size_t i;
    const json_t *item;
    if (!json_is_array(list))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                        "normalizer Sequence: 'normalizers' is not an array");
    if (depth >= TPL_PART_NESTING_MAX) return tpl_part_too_deep("normalizer", where, err);
    json_array_foreach (list, i, item) TPL_TRY(add_step(n, item, depth + 1, where, err));
    return TPL_OK;
}

static tpl_status add_step(tpl_normalizer *n, const json_t *json, int depth, const char *where,
                           tpl_err *err)
{
    static const struct {
        const char *name;
        tpl_norm_kind kind;
    } plain[] = { { "NFC", TPL_NORM_NFC },
                  { "NFD", TPL_NORM_NFD },
                  { "NFKC", TPL_NORM_NFKC },
                  { "NFKD", TPL_NORM_NFKD },
                  { "Lowercase", TPL_NORM_LOWERCASE } };
    const char *type;
    TPL_TRY(tpl_part_type(json, "normalizer", &type, where, err));
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(type, plain[i].name))
            return tpl_normalizer_add(n, plain[i].kind, NONE, NONE, where, err);
    if (!strcmp(type, "Prepend")) return add_prepend(n, json, where, err);
    if (!strcmp(type, "Replace")) return add_replace(n, json, where, err);
    if (!strcmp(type, "Strip")) return add_strip(n, json, where, err);
    if (!strcmp(type, "Precompiled")) return add_precompiled(n, json, where, err);
    if (!strcmp(type, "Sequence")) return add_sequence(n, json, depth, where, err);
    return tpl_part_unknown("normalizer", type, where, err);
}

tpl_status tpl_normalizer_from_json(tpl_normalizer *n, const json_t *json, const char *where,
                                    tpl_err *err)
{
    return !json || json_is_null(json) ? TPL_OK : add_step(n, json, 0, where, err);
}

/* -- Running ---------------------------------------------------------------------------------- */

/* A step may make so many bytes of each byte of the text. The most that Unicode normalisation makes is 11 (NFKC of U+FDFA), and a file may
 * hold up to TPL_NORM_STEPS_MAX steps that each make a text longer, over and over. */
#define GROWTH_MAX 32
#define GROWTH_FREE 65536

static tpl_status too_long(size_t most, tpl_err *err)
{
    return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "normalizer", "a normalizer of the tokenizer makes the text longer than %zu bytes", most);
}

/* What is put in place of a match, and the text before it. */
static tpl_status put(tpl_buf *out, const char *before, size_t n_before, tpl_str to, size_t most, tpl_err *err)
{
    if (!tpl_buf_add(out, before, n_before) || !tpl_buf_add(out, to.s, to.len)) return TPL_ERR_MEM;
    return out->len > most ? too_long(most, err) : TPL_OK;
}

static tpl_status replace_string(const tpl_norm_step *s, tpl_str text, size_t most, tpl_buf *out, tpl_err *err)
{
    const char *p = text.s, *end = text.s + text.len, *hit;
    while ((hit = memmem(p, (size_t)(end - p), s->from.s, s->from.len))) {
        TPL_TRY(put(out, p, (size_t)(hit - p), (tpl_str){ s->to.s, s->to.len }, most, err));
        p = hit + s->from.len;
    }
    return tpl_buf_add(out, p, (size_t)(end - p)) ? TPL_OK : TPL_ERR_MEM;
}

static tpl_status replace_regex(const tpl_norm_step *s, tpl_str text, size_t most, tpl_buf *out, tpl_regex_work **work, tpl_err *err)
{
    size_t done = 0, from = 0, a, b;
    while (from <= text.len) {
        TPL_TRY(tpl_regex_find(s->regex, work, text, from, &a, &b, err));
        if (a == SIZE_MAX) break;
        TPL_TRY(put(out, text.s + done, a - done, (tpl_str){ s->to.s, s->to.len }, most, err));
        done = from = b;
        if (a == b && from++ < text.len) { /* an empty match: go on behind the next character */
            from = a;
            tpl_utf8_next(text.s, &from);
        }
    }
    return tpl_buf_add(out, text.s + done, text.len - done) ? TPL_OK : TPL_ERR_MEM;
}

static tpl_str strip(const tpl_norm_step *s, tpl_str text)
{
    while (s->left && text.len) {
        size_t next = 0;
        if (!(tpl_unicode_get(tpl_utf8_next(text.s, &next)) & TPL_UC_IS_SPACE)) break;
        text.s += next;
        text.len -= next;
    }
    while (s->right && text.len) {
        size_t last = tpl_utf8_prev(text.s, text.len), at = last;
        if (!(tpl_unicode_get(tpl_utf8_next(text.s, &at)) & TPL_UC_IS_SPACE)) break;
        text.len = last;
    }
    return text;
}

static tpl_status run_step(const tpl_norm_step *s, tpl_str text, size_t most, tpl_buf *out, tpl_regex_work **work,
                           tpl_err *err)
{
    switch (s->kind) {
    case TPL_NORM_PREPEND:
        TPL_TRY(put(out, "", 0, (tpl_str){ s->to.s, s->to.len }, most, err));
        return tpl_buf_add(out, text.s, text.len) ? TPL_OK : TPL_ERR_MEM;
    case TPL_NORM_LOWERCASE: return tpl_normalize_lower(text, out) ? TPL_OK : TPL_ERR_MEM;
    case TPL_NORM_PRECOMPILED:
        if (!tpl_precompiled_run(&s->from, text, most, out)) return TPL_ERR_MEM;
        return out->len > most ? too_long(most, err) : TPL_OK;
    case TPL_NORM_REPLACE:
        return s->regex ? replace_regex(s, text, most, out, work, err) : replace_string(s, text, most, out, err);
    default: return tpl_normalize_unicode(s->kind, text, out, err);
    }
}

/* True when the step certainly leaves the text as it is. */
static bool is_idle(const tpl_norm_step *s, tpl_str text)
{
    if (s->kind == TPL_NORM_PREPEND) return !text.len;
    if (s->kind == TPL_NORM_REPLACE)
        return !s->regex && !memmem(text.s, text.len, s->from.s, s->from.len);
    if (s->kind == TPL_NORM_PRECOMPILED) return !text.len;
    return tpl_normalize_is_plain(s->kind, text);
}

/* True when text lies in the buffer: it may be a part of it. */
static bool lies_in(tpl_str text, const tpl_buf *b)
{
    return b->s && text.s >= b->s && text.s <= b->s + b->cap;
}

tpl_status tpl_normalizer_run(const tpl_normalizer *n, tpl_str *text, tpl_buf *a, tpl_buf *b,
                              tpl_regex_work **work, tpl_err *err)
{
    uint64_t most;
    if (!ck_mul(text->len, GROWTH_MAX, &most) || !ck_add(most, GROWTH_FREE, &most)) most = UINT64_MAX;
    for (int i = 0; i < n->n; i++) {
        const tpl_norm_step *s = &n->steps[i];
        tpl_buf *out = lies_in(*text, a) ? b : a;
        if (s->kind == TPL_NORM_STRIP) *text = strip(s, *text);
        if (s->kind == TPL_NORM_STRIP || is_idle(s, *text)) continue;
        out->len = 0;
        tpl_status st = run_step(s, *text, most, out, work, err);
        if (st) return tpl_fail(err, st, 0, "", "out of memory while normalising %zu bytes", text->len);
        *text = (tpl_str){ out->s ? out->s : "", out->len };
    }
    return TPL_OK;
}
