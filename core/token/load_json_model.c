/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of tokenizer.json: their vocabularies, and what makes them.
 */
#include "token/bpe.h"
#include "token/load_json_priv.h"
#include "token/unigram.h"

static tpl_status bad(tpl_json_loader *l, const char *what)
{
    return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where, "%s", what);
}

/* -- Vocabulary ------------------------------------------------------------------------------- */

/* Makes room for n tokens of the model, `bytes` in total, and the added ones. */
static tpl_status size_vocab(tpl_json_loader *l, uint64_t n, uint64_t bytes)
{
    size_t i;
    const json_t *value;
    const char *key;
    bool ok = ck_add(n, json_array_size(l->added), &n) && ck_add(n, json_object_size(l->more), &n);
    json_array_foreach (l->added, i, value)
        ok = ok && ck_add(bytes, json_string_length(json_object_get(value, "content")), &bytes);
    json_object_foreach ((json_t *)l->more, key, value)
        ok = ok && ck_add(bytes, json_string_length(json_object_get(value, "content")), &bytes);
    if (!ok) return bad(l, "vocabulary is too large");
    return tpl_vocab_init(&l->t->vocab, n, bytes, l->where, l->err);
}

static tpl_status add_token(tpl_json_loader *l, tpl_str s, int64_t id, bool byte_fallback)
{
    if (byte_fallback && tpl_vocab_is_byte_like(s.s, s.len) && tpl_vocab_byte(s.s, s.len) < 0)
        return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                        "byte token %s is malformed, expected <0xHH>", tpl_show(s.s, s.len).s);
    return tpl_vocab_add(&l->t->vocab, id, s, TPL_TOKEN_MODEL, l->where, l->err);
}

/* -- BPE -------------------------------------------------------------------------------------- */

/* {"spelling": id} */
static tpl_status add_bpe_vocab(tpl_json_loader *l, const json_t *vocab, bool byte_fallback)
{
    uint64_t bytes = 0;
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach ((json_t *)vocab, key, len, value)
        if (!ck_add(bytes, len, &bytes)) return bad(l, "vocabulary is too large");
    TPL_TRY(size_vocab(l, json_object_size(vocab), bytes));
    json_object_keylen_foreach ((json_t *)vocab, key, len, value) {
        if (!json_is_integer(value))
            return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                            "token %s has an id that is not an integer", tpl_show(key, len).s);
        TPL_TRY(add_token(l, (tpl_str){ key, len }, json_integer_value(value), byte_fallback));
    }
    return TPL_OK;
}

/* "left right" (until 2024) or ["left", "right"] */
static tpl_status read_merge(tpl_json_loader *l, const json_t *json, tpl_str *left, tpl_str *right)
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

static tpl_status refuse_affix(tpl_json_loader *l, const char *key)
{
    const json_t *s = json_object_get(l->model, key);
    if (!s || json_is_null(s) || (json_is_string(s) && !json_string_length(s))) return TPL_OK;
    return tpl_fail(l->err, TPL_ERR_UNSUPPORTED, 0, l->where, "model BPE: %s is not supported", key);
}

static tpl_status read_bpe_options(tpl_json_loader *l, tpl_bpe_options *o)
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

static tpl_status find_unk(tpl_json_loader *l, int32_t *id)
{
    const json_t *unk = json_object_get(l->model, "unk_token");
    if (!unk || json_is_null(unk)) return TPL_OK;
    if (!json_is_string(unk)) return bad(l, "model BPE: 'unk_token' is not a string");
    *id = tpl_vocab_find(&l->t->vocab, json_string_value(unk), json_string_length(unk));
    return *id >= 0 ? TPL_OK : bad(l, "model BPE: 'unk_token' is not in the vocabulary");
}

static tpl_status load_bpe(tpl_json_loader *l)
{
    const json_t *merges = json_object_get(l->model, "merges"), *item;
    tpl_bpe_options o;
    tpl_bpe *bpe;
    size_t i;
    const json_t *vocab = json_object_get(l->model, "vocab");
    if (!json_is_object(vocab)) return bad(l, "model BPE: 'vocab' is not an object");
    if (!json_is_array(merges)) return bad(l, "model BPE: 'merges' is not an array");
    TPL_TRY(read_bpe_options(l, &o));
    TPL_TRY(add_bpe_vocab(l, vocab, o.byte_fallback));
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

/* -- Unigram ---------------------------------------------------------------------------------- */

/* [["spelling", score], ..]; the index is the id. Fills scores. */
static tpl_status add_unigram_vocab(tpl_json_loader *l, const json_t *vocab, bool byte_fallback,
                                    double *scores)
{
    uint64_t bytes = 0;
    size_t i;
    const json_t *item;
    json_array_foreach (vocab, i, item) {
        const json_t *s = json_array_get(item, 0), *score = json_array_get(item, 1);
        if (json_array_size(item) != 2 || !json_is_string(s) || !json_is_number(score))
            return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where,
                            "model Unigram: token %zu is not [text, score]", i);
        scores[i] = json_number_value(score);
        if (!ck_add(bytes, json_string_length(s), &bytes)) return bad(l, "vocabulary is too large");
    }
    TPL_TRY(size_vocab(l, json_array_size(vocab), bytes));
    json_array_foreach (vocab, i, item)
        TPL_TRY(add_token(l, tpl_part_text(json_array_get(item, 0)), (int64_t)i, byte_fallback));
    return TPL_OK;
}

static tpl_status find_unigram_unk(tpl_json_loader *l, size_t n, int32_t *id)
{
    const json_t *unk = json_object_get(l->model, "unk_id");
    if (!unk || json_is_null(unk))
        return tpl_fail(l->err, TPL_ERR_UNSUPPORTED, 0, l->where,
                        "model Unigram without an unk_id is not supported");
    int64_t value = json_is_integer(unk) ? json_integer_value(unk) : -1;
    if (value < 0 || (uint64_t)value >= n)
        return bad(l, "model Unigram: 'unk_id' is not an id of the vocabulary");
    *id = (int32_t)value;
    return TPL_OK;
}

static tpl_status make_unigram(tpl_json_loader *l, const json_t *vocab, double *scores)
{
    tpl_unigram_options o = { .vocab = &l->t->vocab, .scores = scores };
    if (l->t->pretok.byte_level)
        return tpl_fail(l->err, TPL_ERR_UNSUPPORTED, 0, l->where,
                        "model Unigram with ByteLevel is not supported");
    TPL_TRY(tpl_part_bool(l->model, "byte_fallback", 0, "model Unigram", &o.byte_fallback, l->where,
                          l->err));
    TPL_TRY(find_unigram_unk(l, json_array_size(vocab), &o.unk_id));
    TPL_TRY(add_unigram_vocab(l, vocab, o.byte_fallback, scores));
    return tpl_unigram_new(&l->t->model, &o, l->where, l->err);
}

static tpl_status load_unigram(tpl_json_loader *l)
{
    const json_t *vocab = json_object_get(l->model, "vocab");
    if (!json_is_array(vocab)) return bad(l, "model Unigram: 'vocab' is not an array");
    size_t n = json_array_size(vocab);
    if (!n || n > TPL_VOCAB_MAX)
        return tpl_fail(l->err, TPL_ERR_FORMAT, 0, l->where, "vocabulary has %zu tokens, at most %d", n,
                        TPL_VOCAB_MAX);
    double *scores = calloc(n, sizeof *scores);
    if (!scores) return tpl_fail(l->err, TPL_ERR_MEM, 0, l->where, "out of memory for %zu tokens", n);
    tpl_status st = make_unigram(l, vocab, scores);
    free(scores);
    return st;
}

/* --------------------------------------------------------------------------------------------- */

/* "type" was left out by early versions of the library, where the members tell. */
tpl_status tpl_json_load_model(tpl_json_loader *l)
{
    const json_t *type = json_object_get(l->model, "type");
    if (!json_is_object(l->model))
        return bad(l, "'model' is not an object: this is not a tokenizer.json");
    if (!type && json_object_get(l->model, "merges")) return load_bpe(l);
    if (!type && json_is_array(json_object_get(l->model, "vocab"))) return load_unigram(l);
    if (!json_is_string(type)) return bad(l, "model has no string 'type'");
    if (!strcmp(json_string_value(type), "BPE")) return load_bpe(l);
    if (!strcmp(json_string_value(type), "Unigram")) return load_unigram(l);
    return tpl_part_unknown("model", json_string_value(type), l->where, l->err);
}
