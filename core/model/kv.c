/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF values as C values. All lengths were checked when the header was read (gguf.c).
 */
#include <string.h>

#include "model/checkpoint_priv.h"

static const struct {
    const char *name;
    uint8_t bytes;
} kv_types[TPL_N_KV_TYPES] = {
    [TPL_KV_U8] = { "u8", 1 },       [TPL_KV_I8] = { "i8", 1 },     [TPL_KV_U16] = { "u16", 2 },
    [TPL_KV_I16] = { "i16", 2 },     [TPL_KV_U32] = { "u32", 4 },   [TPL_KV_I32] = { "i32", 4 },
    [TPL_KV_F32] = { "f32", 4 },     [TPL_KV_BOOL] = { "bool", 1 }, [TPL_KV_STR] = { "str", 0 },
    [TPL_KV_ARRAY] = { "array", 0 }, [TPL_KV_U64] = { "u64", 8 },   [TPL_KV_I64] = { "i64", 8 },
    [TPL_KV_F64] = { "f64", 8 },
};

const char *tpl_kv_type_name(const tpl_kv *kv)
{
    return kv_types[kv->type].name;
}

/* Little-endian bytes as an unsigned number. */
static uint64_t load_le(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint64_t raw(const tpl_kv *kv, uint64_t i)
{
    int size = kv_types[kv->type].bytes;
    return load_le(kv->data + i * (uint64_t)size, size);
}

bool tpl_kv_i64(const tpl_kv *kv, uint64_t i, int64_t *out)
{
    if (i >= kv->n) return false;
    switch (kv->type) {
    case TPL_KV_I8: *out = (int8_t)raw(kv, i); return true;
    case TPL_KV_I16: *out = (int16_t)raw(kv, i); return true;
    case TPL_KV_I32: *out = (int32_t)raw(kv, i); return true;
    case TPL_KV_U8:
    case TPL_KV_U16:
    case TPL_KV_U32:
    case TPL_KV_I64: *out = (int64_t)raw(kv, i); return true;
    case TPL_KV_U64: *out = (int64_t)raw(kv, i); return *out >= 0;
    default: return false;
    }
}

bool tpl_kv_u64(const tpl_kv *kv, uint64_t i, uint64_t *out)
{
    int64_t v;
    if (i >= kv->n) return false;
    if (kv->type == TPL_KV_U64) {
        *out = raw(kv, i);
        return true;
    }
    if (!tpl_kv_i64(kv, i, &v) || v < 0) return false;
    *out = (uint64_t)v;
    return true;
}

bool tpl_kv_f64(const tpl_kv *kv, uint64_t i, double *out)
{
    int64_t v;
    uint64_t bits;
    if (i >= kv->n) return false;
    if (kv->type == TPL_KV_F32) {
        uint32_t low = (uint32_t)raw(kv, i);
        float f;
        memcpy(&f, &low, sizeof f);
        *out = f;
        return true;
    }
    if (kv->type == TPL_KV_F64 || kv->type == TPL_KV_U64) {
        bits = raw(kv, i);
        if (kv->type == TPL_KV_U64)
            *out = (double)bits;
        else
            memcpy(out, &bits, sizeof *out);
        return true;
    }
    if (!tpl_kv_i64(kv, i, &v)) return false;
    *out = (double)v;
    return true;
}

bool tpl_kv_bool(const tpl_kv *kv, uint64_t i, bool *out)
{
    if (i >= kv->n || kv->type != TPL_KV_BOOL) return false;
    *out = kv->data[i] != 0;
    return true;
}

bool tpl_kv_strings(const tpl_kv *kv, tpl_str *out)
{
    if (kv->type != TPL_KV_STR) return false;
    const unsigned char *p = kv->data;
    for (uint64_t i = 0; i < kv->n; i++) {
        size_t len = (size_t)load_le(p, 8);
        out[i] = (tpl_str){ (const char *)p + 8, len };
        p += 8 + len;
    }
    return true;
}

bool tpl_kv_str(const tpl_kv *kv, tpl_str *out)
{
    return !kv->is_array && tpl_kv_strings(kv, out);
}

/* -- The list ---- */

static tpl_str kv_key(const void *ctx, uint32_t i)
{
    const char *key = ((const tpl_checkpoint *)ctx)->kvs[i].key;
    return (tpl_str){ key, strlen(key) };
}

uint32_t tpl_checkpoint_n_kvs(const tpl_checkpoint *cp)
{
    return cp->n_kvs;
}

const tpl_kv *tpl_checkpoint_kv_at(const tpl_checkpoint *cp, uint32_t i)
{
    return i < cp->n_kvs ? &cp->kvs[i] : NULL;
}

const tpl_kv *tpl_checkpoint_kv(const tpl_checkpoint *cp, const char *key)
{
    int64_t i = tpl_names_find(&cp->by_key, kv_key, cp, key, strlen(key));
    return i < 0 ? NULL : &cp->kvs[i];
}
