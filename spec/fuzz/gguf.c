/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "model/vocab.h"
#include "target.h"
#include "token/tokenizer.h"

static void read_keys(const tpl_checkpoint *cp)
{
    for (uint32_t i = 0; i < tpl_checkpoint_n_kvs(cp); i++) {
        const tpl_kv *kv = tpl_checkpoint_kv_at(cp, i);
        uint64_t u;
        int64_t v;
        double x;
        bool b;
        tpl_str s;
        if (tpl_checkpoint_kv(cp, kv->key) != kv) tpl_broken("key %s is not found", kv->key);
        for (uint64_t k = 0; k <= kv->n && k < 64; k++)
            (void)(tpl_kv_u64(kv, k, &u) + tpl_kv_i64(kv, k, &v) + tpl_kv_f64(kv, k, &x) + tpl_kv_bool(kv, k, &b));
        (void)tpl_kv_str(kv, &s);
        if (kv->n > 65536) continue;
        tpl_str *list = malloc((size_t)(kv->n + 1) * sizeof *list);
        unsigned sum = 0;
        if (list && tpl_kv_strings(kv, list))
            for (uint64_t k = 0; k < kv->n; k++) sum += list[k].len ? (unsigned char)list[k].s[list[k].len - 1] : 0;
        if (sum == ~0u) tpl_broken("never");
        free(list);
    }
}

static void read_tensors(const tpl_checkpoint *cp)
{
    static unsigned char bytes[1 << 20];
    for (uint32_t i = 0; i < tpl_checkpoint_n_tensors(cp); i++) {
        const tpl_ckpt_tensor *t = tpl_checkpoint_tensor(cp, i);
        tpl_dtype type;
        tpl_err err = { 0 };
        if (tpl_checkpoint_find(cp, t->name) != t) tpl_broken("tensor %s is not found", t->name);
        if (t->bytes <= sizeof bytes && tpl_checkpoint_read_tensor(cp, t, 0, t->bytes, bytes, &err))
            tpl_broken("tensor %s was accepted, but cannot be read: %s", t->name, err.msg);
        if (tpl_checkpoint_dtype(cp, t, &type, &err)) tpl_check_refusal(&err);
    }
}

static tpl_status read_vocab(const tpl_checkpoint *cp, const char *path, tpl_err *err)
{
    tpl_checkpoint_vocab v;
    tpl_tokenizer *t;
    TPL_TRY(tpl_checkpoint_vocab_read(&v, cp, path, err));
    tpl_status st = v.source.n_tokens ? tpl_tokenizer_from_vocab(&t, &v.source, err) : TPL_OK;
    bool has_vocab = v.source.n_tokens > 0;
    tpl_checkpoint_vocab_free(&v);
    if (st || !has_vocab) return st;
    tpl_use_tokenizer(t);
    tpl_tokenizer_free(t);
    return TPL_OK;
}

tpl_status tpl_target_gguf(const uint8_t *data, size_t n, tpl_err *err)
{
    const char *path = tpl_scratch("m.gguf", data, n);
    tpl_checkpoint *cp;
    if (tpl_checkpoint_open(&cp, path, err)) {
        /* a file that says it is one of several parts names files that are not there */
        if (err->code == TPL_ERR_IO && err->sys == 2) return err->code = TPL_ERR_FORMAT;
        return tpl_check_refusal(err);
    }
    read_keys(cp);
    read_tensors(cp);
    tpl_status st = read_vocab(cp, path, err);
    tpl_checkpoint_close(cp);
    if (st) return tpl_check_refusal(err);
    return tpl_lua_target("model", path, __builtin_strlen(path), err);
}
