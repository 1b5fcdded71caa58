/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of Hugging Face tokenizers, format version "1.0", and the added tokens that a
 * tokenizer_config.json beside it has more of. Truncation and padding are the business of training and
 * ignored.
 */
#include "base/json.h"
#include "token/load_json_priv.h"

/* Bytes of a file; DeepSeek's is 8 MB, Gemma's 33 MB. */
#define JSON_MAX_BYTES ((size_t)128 << 20)

static tpl_status bad(tpl_json_loader *l, const char *what)
{
    return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where, "%s", what);
}

/* -- Added tokens ----------------------------------------------------------------------------- */

static tpl_status name_added(tpl_json_loader *l, tpl_str s, int64_t id, uint32_t flags)
{
    tpl_vocab *v = &l->t->vocab;
    int32_t there = tpl_vocab_find(v, s.s, s.len);
    if (there < 0) return tpl_vocab_add(v, id, s, flags, l->where, l->err);
    if (there != id)
        return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                        "added token %s has id %lld, but %d in the vocabulary", tpl_show(s.s, s.len).s,
                        (long long)id, there);
    v->tokens[there].flags |= flags;
    return TPL_OK;
}

/* A token with `normalized` is looked for in normalised text, so its own spelling is normalised too. */
static tpl_status match_added(tpl_json_loader *l, tpl_str s, tpl_added_token token, bool normalized)
{
    tpl_buf a = { 0 }, b = { 0 };
    tpl_regex_work *work = NULL;
    tpl_status st = TPL_OK;
    tpl_err inner = { 0 };
    tpl_shown shown = tpl_show(s.s, s.len);
    if (normalized) st = tpl_normalizer_run(&l->t->normalizer, &s, &a, &b, &work, &inner);
    if (st) tpl_fail(l->err, st, 0, l->where, "added token %s: %.200s", shown.s, inner.msg);
    /* one that normalises to nothing can never be found */
    if (!st && (s.len || !normalized))
        st = tpl_added_add(normalized ? &l->t->normalized : &l->t->raw, s, token, l->where, l->err);
    tpl_regex_work_free(work);
    tpl_buf_free(&a);
    tpl_buf_free(&b);
    return st;
}

static tpl_status add_token(tpl_json_loader *l, const json_t *json, tpl_str s, int64_t id)
{
    const char *what = "added token", *w = l->where;
    bool normalized;
    tpl_added_token token = { 0 };
    TPL_TRY(tpl_part_bool(json, "special", 0, what, &token.special, w, l->err));
    TPL_TRY(tpl_part_bool(json, "single_word", 0, what, &token.single_word, w, l->err));
    TPL_TRY(tpl_part_bool(json, "lstrip", 0, what, &token.lstrip, w, l->err));
    TPL_TRY(tpl_part_bool(json, "rstrip", 0, what, &token.rstrip, w, l->err));
    TPL_TRY(tpl_part_bool(json, "normalized", !token.special, what, &normalized, w, l->err));
    TPL_TRY(name_added(l, s, id, TPL_TOKEN_ADDED | (token.special ? TPL_TOKEN_SPECIAL : 0)));
    token.id = (int32_t)id;
    return match_added(l, s, token, normalized);
}

static tpl_status add_added(tpl_json_loader *l, const json_t *json)
{
    const char *what = "added token";
    tpl_str s;
    int64_t id;
    TPL_TRY(tpl_part_str(json, "content", what, &s, l->where, l->err));
    TPL_TRY(tpl_part_int(json, "id", what, &id, l->where, l->err));
    return add_token(l, json, s, id);
}

/* "ID": {"content": .., flags}: one that tokenizer.json has as well stays as it is there. */
static tpl_status add_more(tpl_json_loader *l, const char *key, const json_t *json)
{
    const tpl_vocab *v = &l->t->vocab;
    char *end;
    tpl_str s;
    TPL_TRY(tpl_part_str(json, "content", "added_tokens_decoder", &s, l->where, l->err));
    long id = strtol(key, &end, 10);
    if (*key < '0' || *key > '9' || *end)
        return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                        "added_tokens_decoder: '%.40s' is not an id", key);
    if (tpl_vocab_find(v, s.s, s.len) == id && v->tokens[id].flags & TPL_TOKEN_ADDED) return TPL_OK;
    return add_token(l, json, s, id);
}

/* -- The document ----------------------------------------------------------------------------- */

static tpl_status load(tpl_json_loader *l)
{
    tpl_tokenizer *t = l->t;
    const json_t *item;
    const char *key;
    json_t *more;
    size_t i;
    l->model = json_object_get(l->root, "model");
    l->added = json_object_get(l->root, "added_tokens");
    if (l->added && !json_is_array(l->added)) return bad(l, "'added_tokens' is not an array");
    TPL_TRY(tpl_normalizer_from_json(&t->normalizer, json_object_get(l->root, "normalizer"), l->where,
                                     l->err));
    TPL_TRY(
        tpl_pretok_from_json(&t->pretok, json_object_get(l->root, "pre_tokenizer"), l->where, l->err));
    TPL_TRY(tpl_post_from_json(&t->post, json_object_get(l->root, "post_processor"), l->where, l->err));
    TPL_TRY(tpl_decoder_from_json(&t->decoder, json_object_get(l->root, "decoder"), l->where, l->err));
    TPL_TRY(tpl_json_load_model(l));
    json_array_foreach (l->added, i, item) TPL_TRY(add_added(l, item));
    l->where = l->where_more;
    json_object_foreach ((json_t *)l->more, key, more) TPL_TRY(add_more(l, key, more));
    return tpl_tokenizer_finish(t, l->where, l->err);
}

static tpl_status load_new(tpl_tokenizer **out, const json_t *root, const char *where,
                           const json_t *config, const char *where_config, tpl_err *err)
{
    tpl_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory");
    tpl_json_loader l = { .t = t,
                          .root = root,
                          .more = json_object_get(config, "added_tokens_decoder"),
                          .where = where,
                          .where_more = where_config,
                          .err = err };
    t->bos = t->eos = -1;
    tpl_status st = load(&l);
    if (st) tpl_tokenizer_free(t);
    else *out = t;
    return st;
}

tpl_status tpl_tokenizer_from_files(tpl_tokenizer **out, tpl_str json, const char *where, tpl_str config,
                                    const char *where_config, tpl_err *err)
{
    json_t *root = NULL, *beside = NULL;
    *out = NULL;
    if (json.len > JSON_MAX_BYTES || config.len > JSON_MAX_BYTES)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, json.len > JSON_MAX_BYTES ? where : where_config,
                        "file has more than %zu bytes", JSON_MAX_BYTES);
    tpl_status st = tpl_json_parse(&root, json.s, json.len, 0, where, err);
    if (!st && config.s) st = tpl_json_parse(&beside, config.s, config.len, 0, where_config, err);
    if (!st) st = load_new(out, root, where, beside, config.s ? where_config : where, err);
    json_decref(root);
    json_decref(beside);
    return st;
}

tpl_status tpl_tokenizer_from_json(tpl_tokenizer **out, const char *bytes, size_t len, const char *where,
                                   tpl_err *err)
{
    return tpl_tokenizer_from_files(out, (tpl_str){ bytes, len }, where, (tpl_str){ NULL, 0 }, where,
                                    err);
}
