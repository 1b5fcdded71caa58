/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of Hugging Face tokenizers, format version "1.0". Truncation and padding are the
 * business of training and ignored.
 */
#include "base/json.h"
#include "token/bpe.h"
#include "token/part.h"
#include "token/tokenizer_priv.h"

/* Bytes of a file; DeepSeek's is 8 MB, Gemma's 33 MB. */
#define JSON_MAX_BYTES ((size_t)512 << 20)

typedef struct loader {
    tpl_tokenizer *t;
    const json_t *root, *model, *vocab, *added;
    const char *where;
    tpl_err *err;
} loader;

static tpl_status bad(loader *l, const char *what)
{
    return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where, "%s", what);
}

/* -- Vocabulary ------------------------------------------------------------------------------- */

static tpl_status size_vocab(loader *l)
{
    uint64_t bytes = 0, n;
    const char *key;
    size_t i, len;
    json_t *value;
    json_object_keylen_foreach ((json_t *)l->vocab, key, len, value)
        if (!ck_add(bytes, len, &bytes)) return bad(l, "vocabulary is too large");
    json_array_foreach (l->added, i, value)
        if (!ck_add(bytes, json_string_length(json_object_get(value, "content")), &bytes))
            return bad(l, "vocabulary is too large");
    if (!ck_add(json_object_size(l->vocab), json_array_size(l->added), &n))
        return bad(l, "vocabulary is too large");
    return tpl_vocab_init(&l->t->vocab, n, bytes, l->where, l->err);
}

static tpl_status add_vocab(loader *l, bool byte_fallback)
{
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach ((json_t *)l->vocab, key, len, value) {
        if (!json_is_integer(value))
            return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                            "token %s has an id that is not an integer", tpl_show(key, len).s);
        if (byte_fallback && tpl_vocab_is_byte_like(key, len) && tpl_vocab_byte(key, len) < 0)
            return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                            "byte token %s is malformed, expected <0xHH>", tpl_show(key, len).s);
        TPL_TRY(tpl_vocab_add(&l->t->vocab, json_integer_value(value), (tpl_str){ key, len },
                              TPL_TOKEN_MODEL, l->where, l->err));
    }
    return TPL_OK;
}

/* -- Added tokens ----------------------------------------------------------------------------- */

static tpl_status name_added(loader *l, tpl_str s, int64_t id, uint32_t flags)
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
static tpl_status match_added(loader *l, tpl_str s, tpl_added_token token, bool normalized)
{
    tpl_buf a = { 0 }, b = { 0 };
    tpl_regex_work *work = NULL;
    tpl_status st = TPL_OK;
    if (normalized) st = tpl_normalizer_run(&l->t->normalizer, &s, &a, &b, &work, l->err);
    /* one that normalises to nothing can never be found */
    if (!st && (s.len || !normalized))
        st = tpl_added_add(normalized ? &l->t->normalized : &l->t->raw, s, token, l->where, l->err);
    tpl_regex_work_free(work);
    tpl_buf_free(&a);
    tpl_buf_free(&b);
    return st;
}

static tpl_status add_added(loader *l, const json_t *json)
{
    const char *what = "added token", *w = l->where;
    tpl_str s;
    int64_t id;
    bool normalized;
    tpl_added_token token = { 0 };
    TPL_TRY(tpl_part_str(json, "content", what, &s, w, l->err));
    TPL_TRY(tpl_part_int(json, "id", what, &id, w, l->err));
    TPL_TRY(tpl_part_bool(json, "special", 0, what, &token.special, w, l->err));
    TPL_TRY(tpl_part_bool(json, "single_word", 0, what, &token.single_word, w, l->err));
    TPL_TRY(tpl_part_bool(json, "lstrip", 0, what, &token.lstrip, w, l->err));
    TPL_TRY(tpl_part_bool(json, "rstrip", 0, what, &token.rstrip, w, l->err));
    TPL_TRY(tpl_part_bool(json, "normalized", !token.special, what, &normalized, w, l->err));
    TPL_TRY(name_added(l, s, id, TPL_TOKEN_ADDED | (token.special ? TPL_TOKEN_SPECIAL : 0)));
    token.id = (int32_t)id;
    return match_added(l, s, token, normalized);
}

/* -- BPE -------------------------------------------------------------------------------------- */

/* "left right" (until 2024) or ["left", "right"] */
static tpl_status read_merge(loader *l, const json_t *json, tpl_str *left, tpl_str *right)
{
    const json_t *a = json_array_get(json, 0), *b = json_array_get(json, 1);
    if (json_is_string(json)) {
        tpl_str s = tpl_part_text(json);
        const char *space = memchr(s.s, ' ', s.len);
        if (!space || memchr(space + 1, ' ', s.len - (size_t)(space + 1 - s.s)))
            return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                            "merge %s is not two tokens and a space", tpl_show(s.s, s.len).s);
        *left = (tpl_str){ s.s, (size_t)(space - s.s) };
        *right = (tpl_str){ space + 1, s.len - left->len - 1 };
        return TPL_OK;
    }
    if (json_array_size(json) != 2 || !json_is_string(a) || !json_is_string(b))
        return bad(l, "a merge is not a pair of strings");
    *left = tpl_part_text(a);
    *right = tpl_part_text(b);
    return TPL_OK;
}

static tpl_status refuse_affix(loader *l, const char *key)
{
    const json_t *s = json_object_get(l->model, key);
    if (!s || json_is_null(s) || (json_is_string(s) && !json_string_length(s))) return TPL_OK;
    return tpl_fail(l->err, TPL_ERR_UNSUPPORTED, 0, l->where, "model BPE: %s is not supported", key);
}

static tpl_status read_bpe_options(loader *l, tpl_bpe_options *o)
{
    const char *what = "model BPE";
    *o = (tpl_bpe_options){ .vocab = &l->t->vocab, .byte_level = l->t->pretok.byte_level, .unk_id = -1 };
    TPL_TRY(refuse_affix(l, "continuing_subword_prefix"));
    TPL_TRY(refuse_affix(l, "end_of_word_suffix"));
    TPL_TRY(tpl_part_bool(l->model, "byte_fallback", 0, what, &o->byte_fallback, l->where, l->err));
    TPL_TRY(tpl_part_bool(l->model, "fuse_unk", 0, what, &o->fuse_unk, l->where, l->err));
    TPL_TRY(tpl_part_bool(l->model, "ignore_merges", 0, what, &o->ignore_merges, l->where, l->err));
    if (o->byte_level && o->byte_fallback)
        return tpl_fail(l->err, TPL_ERR_UNSUPPORTED, 0, l->where,
                        "model BPE: byte_fallback with ByteLevel is not supported");
    return TPL_OK;
}

static tpl_status find_unk(loader *l, int32_t *id)
{
    const json_t *unk = json_object_get(l->model, "unk_token");
    if (!unk || json_is_null(unk)) return TPL_OK;
    if (!json_is_string(unk)) return bad(l, "model BPE: 'unk_token' is not a string");
    *id = tpl_vocab_find(&l->t->vocab, json_string_value(unk), json_string_length(unk));
    return *id >= 0 ? TPL_OK : bad(l, "model BPE: 'unk_token' is not in the vocabulary");
}

static tpl_status load_bpe(loader *l)
{
    const json_t *merges = json_object_get(l->model, "merges"), *item;
    tpl_bpe_options o;
    tpl_bpe *bpe;
    size_t i;
    l->vocab = json_object_get(l->model, "vocab");
    if (!json_is_object(l->vocab)) return bad(l, "model BPE: 'vocab' is not an object");
    if (!json_is_array(merges)) return bad(l, "model BPE: 'merges' is not an array");
    TPL_TRY(read_bpe_options(l, &o));
    TPL_TRY(size_vocab(l));
    TPL_TRY(add_vocab(l, o.byte_fallback));
    TPL_TRY(find_unk(l, &o.unk_id));
    TPL_TRY(tpl_bpe_new(&bpe, &o, json_array_size(merges), l->where, l->err));
    l->t->model = tpl_bpe_model(bpe);
    json_array_foreach (merges, i, item) {
        tpl_str left, right;
        TPL_TRY(read_merge(l, item, &left, &right));
        TPL_TRY(tpl_bpe_add(bpe, left, right, (uint32_t)i, l->where, l->err));
    }
    return TPL_OK;
}

/* -- The document ----------------------------------------------------------------------------- */

/* "type" was left out by early versions of the library, where the members tell. */
static tpl_status load_model(loader *l)
{
    const json_t *type = json_object_get(l->model, "type");
    if (!json_is_object(l->model))
        return bad(l, "'model' is not an object: this is not a tokenizer.json");
    if (!type && json_object_get(l->model, "merges")) return load_bpe(l);
    if (!json_is_string(type)) return bad(l, "model has no string 'type'");
    if (!strcmp(json_string_value(type), "BPE")) return load_bpe(l);
    return tpl_part_unknown("model", json_string_value(type), l->where, l->err);
}

static tpl_status load(loader *l)
{
    tpl_tokenizer *t = l->t;
    const json_t *item;
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
    TPL_TRY(load_model(l));
    json_array_foreach (l->added, i, item) TPL_TRY(add_added(l, item));
    return tpl_tokenizer_finish(t, l->where, l->err);
}

tpl_status tpl_tokenizer_from_json(tpl_tokenizer **out, const char *bytes, size_t len, const char *where,
                                   tpl_err *err)
{
    json_t *root;
    *out = NULL;
    if (len > JSON_MAX_BYTES)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "file has %zu bytes, at most %zu", len,
                        JSON_MAX_BYTES);
    TPL_TRY(tpl_json_parse(&root, bytes, len, 0, where, err));
    tpl_tokenizer *t = calloc(1, sizeof *t);
    loader l = { .t = t, .root = root, .where = where, .err = err };
    tpl_status st = tpl_fail(t ? NULL : err, TPL_ERR_MEM, 0, where, "out of memory");
    if (t) {
        t->bos = t->eos = -1;
        st = load(&l);
    }
    json_decref(root);
    if (st) tpl_tokenizer_free(t);
    else *out = t;
    return st;
}
