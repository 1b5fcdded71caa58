/* SPDX-License-Identifier: Apache-2.0 */
#include "model/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "base/file.h"

typedef struct reader {
    const tpl_checkpoint *cp;
    tpl_checkpoint_vocab *out;
    tpl_err *err;
    int n_lists;
} reader;

static tpl_status wrong(const reader *r, const tpl_kv *kv, const char *expected)
{
    return tpl_fail(r->err, TPL_ERR_FORMAT, 0, tpl_where_key(r->out->source.where, kv->key).s, "'%s' is %s%s, expected %s",
                    kv->key, kv->is_array ? "an array of " : "", tpl_kv_type_name(kv), expected);
}

static tpl_status read_str(const reader *r, const char *key, tpl_str *out)
{
    const tpl_kv *kv = tpl_checkpoint_kv(r->cp, key);
    if (!kv || tpl_kv_str(kv, out)) return TPL_OK;
    return wrong(r, kv, "a string");
}

static tpl_status read_flag(const reader *r, const char *key, int *out)
{
    bool b;
    const tpl_kv *kv = tpl_checkpoint_kv(r->cp, key);
    if (!kv) return TPL_OK;
    if (kv->is_array || !tpl_kv_bool(kv, 0, &b)) return wrong(r, kv, "a bool");
    *out = b;
    return TPL_OK;
}

static tpl_status read_id(const reader *r, const char *key, int64_t *out)
{
    const tpl_kv *kv = tpl_checkpoint_kv(r->cp, key);
    if (!kv) return TPL_OK;
    if (kv->is_array || !tpl_kv_i64(kv, 0, out) || *out < 0) return wrong(r, kv, "a token id");
    return TPL_OK;
}

/* Memory for one `size` of each element, owned by out; NULL: none. */
static void *new_list(reader *r, const tpl_kv *kv, uint64_t size)
{
    uint64_t bytes;
    void *p = ck_mul(kv->n ? kv->n : 1, size, &bytes) ? malloc(bytes) : NULL;
    if (p) r->out->lists[r->n_lists++] = p;
    else tpl_fail(r->err, TPL_ERR_MEM, 0, r->out->source.where, "out of memory for '%s'", kv->key);
    return p;
}

static tpl_status read_strings(reader *r, const char *key, const tpl_str **out, size_t *n)
{
    const tpl_kv *kv = tpl_checkpoint_kv(r->cp, key);
    if (!kv) return TPL_OK;
    if (!kv->is_array || kv->type != TPL_KV_STR) return wrong(r, kv, "an array of strings");
    tpl_str *list = new_list(r, kv, sizeof *list);
    if (!list) return TPL_ERR_MEM;
    tpl_kv_strings(kv, list);
    *out = list;
    *n = kv->n;
    return TPL_OK;
}

static tpl_status read_types(reader *r, const char *key)
{
    const tpl_kv *kv = tpl_checkpoint_kv(r->cp, key);
    int64_t v;
    if (!kv) return TPL_OK;
    if (!kv->is_array || (kv->n && !tpl_kv_f64(kv, 0, &(double){ 0 })) || kv->type == TPL_KV_F32 || kv->type == TPL_KV_F64)
        return wrong(r, kv, "an array of integers");
    int32_t *list = new_list(r, kv, sizeof *list);
    if (!list) return TPL_ERR_MEM;
    for (uint64_t i = 0; i < kv->n; i++) list[i] = tpl_kv_i64(kv, i, &v) && v >= 0 && v < 100 ? (int32_t)v : 0; /* 0 is refused later */
    r->out->source.types = list;
    r->out->source.n_types = kv->n;
    return TPL_OK;
}

static tpl_status read_scores(reader *r, const char *key)
{
    const tpl_kv *kv = tpl_checkpoint_kv(r->cp, key);
    double v;
    if (!kv) return TPL_OK;
    if (!kv->is_array || (kv->n && !tpl_kv_f64(kv, 0, &v))) return wrong(r, kv, "an array of numbers");
    float *list = new_list(r, kv, sizeof *list);
    if (!list) return TPL_ERR_MEM;
    /* a score outside float is none: the loader refuses it by name */
    for (uint64_t i = 0; i < kv->n; i++) list[i] = tpl_kv_f64(kv, i, &v) && fabs(v) < 3e38 ? (float)v : __builtin_nanf("");
    r->out->source.scores = list;
    r->out->source.n_scores = kv->n;
    return TPL_OK;
}

static tpl_status read_all(reader *r)
{
    tpl_vocab_source *s = &r->out->source;
    TPL_TRY(read_str(r, "tokenizer.ggml.model", &s->model));
    TPL_TRY(read_str(r, "tokenizer.ggml.pre", &s->pre));
    TPL_TRY(read_str(r, "tokenizer.chat_template", &s->chat_template));
    TPL_TRY(read_strings(r, "tokenizer.ggml.tokens", &s->tokens, &s->n_tokens));
    TPL_TRY(read_types(r, "tokenizer.ggml.token_type"));
    TPL_TRY(read_scores(r, "tokenizer.ggml.scores"));
    TPL_TRY(read_strings(r, "tokenizer.ggml.merges", &s->merges, &s->n_merges));
    TPL_TRY(read_id(r, "tokenizer.ggml.bos_token_id", &s->bos_id));
    TPL_TRY(read_id(r, "tokenizer.ggml.eos_token_id", &s->eos_id));
    TPL_TRY(read_id(r, "tokenizer.ggml.eot_token_id", &s->eot_id));
    TPL_TRY(read_id(r, "tokenizer.ggml.eom_token_id", &s->eom_id));
    TPL_TRY(read_id(r, "tokenizer.ggml.unknown_token_id", &s->unk_id));
    TPL_TRY(read_id(r, "tokenizer.ggml.padding_token_id", &s->pad_id));
    TPL_TRY(read_flag(r, "tokenizer.ggml.add_bos_token", &s->add_bos));
    TPL_TRY(read_flag(r, "tokenizer.ggml.add_eos_token", &s->add_eos));
    return read_flag(r, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix);
}

tpl_status tpl_checkpoint_vocab_read(tpl_checkpoint_vocab *out, const tpl_checkpoint *cp, const char *where, tpl_err *err)
{
    reader r = { .cp = cp, .out = out, .err = err };
    *out = (tpl_checkpoint_vocab){ .source = TPL_VOCAB_SOURCE_NONE };
    out->source.where = where;
    tpl_status st = read_all(&r);
    if (st) tpl_checkpoint_vocab_free(out);
    return st;
}

void tpl_checkpoint_vocab_free(tpl_checkpoint_vocab *v)
{
    for (size_t i = 0; i < sizeof v->lists / sizeof *v->lists; i++) free(v->lists[i]);
    *v = (tpl_checkpoint_vocab){ .source = TPL_VOCAB_SOURCE_NONE };
}
