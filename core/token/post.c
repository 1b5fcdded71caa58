/* SPDX-License-Identifier: Apache-2.0 */
#include "token/post.h"

#include <string.h>

#include "token/part.h"
#include "token/vocab.h"

static tpl_status check(int n, int64_t id, const char *where, tpl_err *err)
{
    if (n >= TPL_POST_MAX)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "post_processor adds more than %d tokens",
                        TPL_POST_MAX);
    if (id < 0 || id >= TPL_VOCAB_MAX)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "post_processor names token id %lld",
                        (long long)id);
    return TPL_OK;
}

tpl_status tpl_post_add_front(tpl_post *p, int64_t id, const char *where, tpl_err *err)
{
    TPL_TRY(check(p->n_front, id, where, err));
    memmove(p->front + 1, p->front, (size_t)p->n_front * sizeof *p->front);
    p->front[0] = (int32_t)id;
    p->n_front++;
    return TPL_OK;
}

tpl_status tpl_post_add_back(tpl_post *p, int64_t id, const char *where, tpl_err *err)
{
    TPL_TRY(check(p->n_back, id, where, err));
    p->back[p->n_back++] = (int32_t)id;
    return TPL_OK;
}

/* -- TemplateProcessing ----------------------------------------------------------------------- */

/* Appends to `out` the ids that special_tokens lists for a SpecialToken item. */
static tpl_status read_special(const json_t *item, const json_t *tokens, int32_t *out, int *n,
                               const char *where, tpl_err *err)
{
    const char *what = "post_processor TemplateProcessing";
    tpl_str name;
    size_t i;
    const json_t *id;
    TPL_TRY(tpl_part_str(item, "id", what, &name, where, err));
    const json_t *ids = json_object_get(json_object_getn(tokens, name.s, name.len), "ids");
    if (!json_is_array(ids))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: no ids for '%.60s'", what, name.s);
    json_array_foreach (ids, i, id) {
        if (!json_is_integer(id))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "%s: an id is not an integer", what);
        TPL_TRY(check(*n, json_integer_value(id), where, err));
        out[(*n)++] = (int32_t)json_integer_value(id);
    }
    return TPL_OK;
}

static tpl_status add_template(tpl_post *p, const json_t *json, const char *where, tpl_err *err)
{
    const json_t *single = json_object_get(json, "single"),
                 *tokens = json_object_get(json, "special_tokens"), *item;
    int32_t ids[2][TPL_POST_MAX]; /* before and after the text */
    int n[2] = { 0 }, side = 0;
    size_t i;
    if (!json_is_array(single))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                        "post_processor TemplateProcessing: 'single' is not an array");
    json_array_foreach (single, i, item) {
        const json_t *special = json_object_get(item, "SpecialToken"),
                     *sequence = json_object_get(item, "Sequence");
        if (special) TPL_TRY(read_special(special, tokens, ids[side], &n[side], where, err));
        else if (!sequence || side++)
            return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where,
                            "post_processor TemplateProcessing: 'single' does not have the text once");
    }
    if (!side)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where,
                        "post_processor TemplateProcessing: 'single' is without the text");
    while (n[0]) TPL_TRY(tpl_post_add_front(p, ids[0][--n[0]], where, err));
    for (int k = 0; k < n[1]; k++) TPL_TRY(tpl_post_add_back(p, ids[1][k], where, err));
    return TPL_OK;
}

/* -- The others ------------------------------------------------------------------------------- */

/* "cls": ["<s>", 0], "sep": ["</s>", 2] */
static tpl_status add_cls_sep(tpl_post *p, const json_t *json, const char *where, tpl_err *err)
{
    const json_t *cls = json_array_get(json_object_get(json, "cls"), 1),
                 *sep = json_array_get(json_object_get(json, "sep"), 1);
    if (!json_is_integer(cls) || !json_is_integer(sep))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                        "post_processor: 'cls' and 'sep' are not [text, id]");
    TPL_TRY(tpl_post_add_front(p, json_integer_value(cls), where, err));
    return tpl_post_add_back(p, json_integer_value(sep), where, err);
}

static tpl_status add(tpl_post *p, const json_t *json, int depth, const char *where, tpl_err *err);

static tpl_status add_sequence(tpl_post *p, const json_t *json, int depth, const char *where,
                               tpl_err *err)
{
    const json_t *list = json_object_get(json, "processors");
    size_t i;
    const json_t *item;
    if (!json_is_array(list))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where,
                        "post_processor Sequence: 'processors' is not an array");
    if (depth >= TPL_PART_NESTING_MAX) return tpl_part_too_deep("post_processor", where, err);
    json_array_foreach (list, i, item) TPL_TRY(add(p, item, depth + 1, where, err));
    return TPL_OK;
}

static tpl_status add(tpl_post *p, const json_t *json, int depth, const char *where, tpl_err *err)
{
    const char *type;
    TPL_TRY(tpl_part_type(json, "post_processor", &type, where, err));
    if (!strcmp(type, "ByteLevel")) return TPL_OK;
    if (!strcmp(type, "TemplateProcessing")) return add_template(p, json, where, err);
    if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
        return add_cls_sep(p, json, where, err);
    if (!strcmp(type, "Sequence")) return add_sequence(p, json, depth, where, err);
    return tpl_part_unknown("post_processor", type, where, err);
}

tpl_status tpl_post_from_json(tpl_post *p, const json_t *json, const char *where, tpl_err *err)
{
    return !json || json_is_null(json) ? TPL_OK : add(p, json, 0, where, err);
}
