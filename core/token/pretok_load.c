/* SPDX-License-Identifier: Apache-2.0 */
#include "token/part.h"
#include "token/pretok.h"

static tpl_status add(tpl_pretok *p, tpl_pretok_kind kind, tpl_pretok_step **out, const char *where,
                      tpl_err *err)
{
    *out = NULL;
    if (p->n == TPL_PRETOK_STEPS_MAX)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "pre_tokenizer has more than %d steps",
                        TPL_PRETOK_STEPS_MAX);
    if (p->byte_level) /* what follows would see the bytes' alphabet, not the text */
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where,
                        "pre_tokenizer ByteLevel is not the last step, which is not supported");
    *out = &p->steps[p->n++];
    **out = (tpl_pretok_step){ .kind = kind };
    return TPL_OK;
}

static tpl_status set_text(tpl_pretok_step *s, tpl_str text, const char *what, const char *where,
                           tpl_err *err)
{
    if (!text.len) return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s is empty", what);
    if (!tpl_buf_add(&s->text, text.s, text.len))
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for %s", what);
    return TPL_OK;
}

tpl_status tpl_pretok_add_digits(tpl_pretok *p, const char *where, tpl_err *err)
{
    tpl_pretok_step *s = NULL;
    return add(p, TPL_PRETOK_NUMBERS, &s, where, err);
}

tpl_status tpl_pretok_add_split(tpl_pretok *p, tpl_str regex, const char *where, tpl_err *err)
{
    tpl_pretok_step *s = NULL;
    tpl_scan_fn scan = tpl_scan_find(regex);
    TPL_TRY(add(p, scan ? TPL_PRETOK_SCAN : TPL_PRETOK_REGEX, &s, where, err));
    s->scan = scan;
    return scan ? TPL_OK : tpl_regex_new(&s->regex, regex, where, err);
}

void tpl_pretok_free(tpl_pretok *p)
{
    for (int i = 0; i < p->n; i++) {
        tpl_regex_free(p->steps[i].regex);
        tpl_buf_free(&p->steps[i].text);
    }
    p->n = 0;
}

/* -- tokenizer.json --------------------------------------------------------------------------- */

static tpl_status read_behavior(const json_t *json, const char *what, tpl_split_behavior *out,
                                const char *where, tpl_err *err)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                         "Contiguous" };
    tpl_str s;
    TPL_TRY(tpl_part_str(json, "behavior", what, &s, where, err));
    for (int i = 0; i < 5; i++)
        if (!strcmp(s.s, names[i])) return *out = (tpl_split_behavior)i, TPL_OK;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: behavior '%.40s' is not known", what, s.s);
}

static tpl_status add_byte_level(tpl_pretok *p, const json_t *json, const char *where, tpl_err *err)
{
    const char *what = "pre_tokenizer ByteLevel";
    bool prefix, regex;
    tpl_pretok_step *s = NULL;
    TPL_TRY(tpl_part_bool(json, "add_prefix_space", -1, what, &prefix, where, err));
    TPL_TRY(tpl_part_bool(json, "use_regex", 1, what, &regex, where, err));
    if (prefix) TPL_TRY(add(p, TPL_PRETOK_PREFIX_SPACE, &s, where, err));
    if (regex) {
        TPL_TRY(add(p, TPL_PRETOK_SCAN, &s, where, err));
        s->scan = tpl_scan_gpt2;
    }
    p->byte_level = true;
    return TPL_OK;
}

static tpl_status add_split(tpl_pretok *p, const json_t *json, const char *where, tpl_err *err)
{
    const char *what = "pre_tokenizer Split";
    tpl_str pattern;
    bool is_regex, invert;
    tpl_split_behavior behavior = TPL_SPLIT_ISOLATED;
    tpl_pretok_step *s = NULL;
    TPL_TRY(tpl_part_pattern(json, what, &pattern, &is_regex, where, err));
    TPL_TRY(read_behavior(json, what, &behavior, where, err));
    TPL_TRY(tpl_part_bool(json, "invert", 0, what, &invert, where, err));
    /* the scanners' pieces tile the text: matches only, so Removed with invert is the same as Isolated
     */
    if (is_regex &&
        ((behavior == TPL_SPLIT_ISOLATED && !invert) || (behavior == TPL_SPLIT_REMOVED && invert)) &&
        tpl_scan_find(pattern))
        return tpl_pretok_add_split(p, pattern, where, err);
    TPL_TRY(add(p, is_regex ? TPL_PRETOK_REGEX : TPL_PRETOK_STRING, &s, where, err));
    s->behavior = behavior;
    s->invert = invert;
    return is_regex ? tpl_regex_new(&s->regex, pattern, where, err)
                    : set_text(s, pattern, what, where, err);
}

static tpl_status add_digits(tpl_pretok *p, const json_t *json, const char *where, tpl_err *err)
{
    bool individual;
    tpl_pretok_step *s = NULL;
    TPL_TRY(
        tpl_part_bool(json, "individual_digits", -1, "pre_tokenizer Digits", &individual, where, err));
    TPL_TRY(add(p, TPL_PRETOK_NUMBERS, &s, where, err));
    s->behavior = individual ? TPL_SPLIT_ISOLATED : TPL_SPLIT_CONTIGUOUS;
    return TPL_OK;
}

static tpl_status add_punctuation(tpl_pretok *p, const json_t *json, const char *where, tpl_err *err)
{
    tpl_pretok_step *s = NULL;
    TPL_TRY(add(p, TPL_PRETOK_PUNCTUATION, &s, where, err));
    return json_object_get(json, "behavior")
               ? read_behavior(json, "pre_tokenizer Punctuation", &s->behavior, where, err)
               : TPL_OK;
}

tpl_status tpl_pretok_scheme(const json_t *json, const char *what, tpl_prepend_scheme *out,
                             const char *where, tpl_err *err)
{
    static const char *const names[] = { "always", "first", "never" };
    bool prefix;
    tpl_str s;
    if (!json_object_get(json, "prepend_scheme")) {
        TPL_TRY(tpl_part_bool(json, "add_prefix_space", 1, what, &prefix, where, err));
        *out = prefix ? TPL_PREPEND_ALWAYS : TPL_PREPEND_NEVER;
        return TPL_OK;
    }
    TPL_TRY(tpl_part_str(json, "prepend_scheme", what, &s, where, err));
    for (int i = 0; i < 3; i++)
        if (!strcmp(s.s, names[i])) return *out = (tpl_prepend_scheme)i, TPL_OK;
    return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: prepend_scheme '%.40s' is not known", what, s.s);
}

static tpl_status add_metaspace(tpl_pretok *p, const json_t *json, const char *where, tpl_err *err)
{
    const char *what = "pre_tokenizer Metaspace";
    tpl_str mark;
    tpl_pretok_step *s = NULL;
    TPL_TRY(tpl_part_str(json, "replacement", what, &mark, where, err));
    if (!mark.len || tpl_utf8_len(mark.s, mark.s + mark.len) != (int)mark.len)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: 'replacement' is not one character", what);
    TPL_TRY(add(p, TPL_PRETOK_METASPACE, &s, where, err));
    s->behavior = TPL_SPLIT_MERGED_WITH_NEXT;
    TPL_TRY(tpl_pretok_scheme(json, what, &s->scheme, where, err));
    TPL_TRY(tpl_part_bool(json, "split", 1, what, &s->split, where, err));
    return set_text(s, mark, what, where, err);
}

static tpl_status add_step(tpl_pretok *p, const json_t *json, int depth, const char *where,
                           tpl_err *err);

static tpl_status add_sequence(tpl_pretok *p, const json_t *json, int depth, const char *where,
                               tpl_err *err)
{
    const json_t *list = json_object_get(json, "pretokenizers");
    size_t i;
    const json_t *item;
    if (!json_is_array(list))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                        "pre_tokenizer Sequence: 'pretokenizers' is not an array");
    if (depth >= TPL_PART_NESTING_MAX) return tpl_part_too_deep("pre_tokenizer", where, err);
    json_array_foreach (list, i, item) TPL_TRY(add_step(p, item, depth + 1, where, err));
    return TPL_OK;
}

static tpl_status add_step(tpl_pretok *p, const json_t *json, int depth, const char *where, tpl_err *err)
{
    const char *type;
    TPL_TRY(tpl_part_type(json, "pre_tokenizer", &type, where, err));
    if (!strcmp(type, "ByteLevel")) return add_byte_level(p, json, where, err);
    if (!strcmp(type, "Split")) return add_split(p, json, where, err);
    if (!strcmp(type, "Digits")) return add_digits(p, json, where, err);
    if (!strcmp(type, "Punctuation")) return add_punctuation(p, json, where, err);
    if (!strcmp(type, "Metaspace")) return add_metaspace(p, json, where, err);
    if (!strcmp(type, "Sequence")) return add_sequence(p, json, depth, where, err);
    return tpl_part_unknown("pre_tokenizer", type, where, err);
}

tpl_status tpl_pretok_from_json(tpl_pretok *p, const json_t *json, const char *where, tpl_err *err)
{
    return !json || json_is_null(json) ? TPL_OK : add_step(p, json, 0, where, err);
}
