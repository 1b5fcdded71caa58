/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.checkpoint: the files, tensors and keys of a model, for Lua. File indices count from 0, as in
 * reports.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "model/checkpoint.h"

enum {
    MAX_READ_ELEMS = 65536,
    MAX_KV_ELEMS = 1 << 22, /* of an array that becomes a table: as many as a vocabulary may have tokens */
};

static void close_checkpoint(void *obj)
{
    tpl_checkpoint_close(obj);
}

static tpl_checkpoint *self(lua_State *L)
{
    return tpl_box_get(L, 1, &tpl_checkpoint_class);
}

/* open(path) -> checkpoint: the headers of a model file or folder, checked */
static int checkpoint_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = tpl_box_new(L, &tpl_checkpoint_class);
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    if (tpl_checkpoint_open(&cp, path, &err)) return tpl_push_err(L, &err);
    *box = cp;
    return 1;
}

static int checkpoint_kind(lua_State *L)
{
    lua_pushstring(L, tpl_checkpoint_kind_name(self(L)));
    return 1;
}

static int checkpoint_path(lua_State *L)
{
    lua_pushstring(L, tpl_checkpoint_folder(self(L)));
    return 1;
}

static int checkpoint_warning(lua_State *L)
{
    lua_pushstring(L, tpl_checkpoint_warning(self(L))); /* NULL becomes nil */
    return 1;
}

static int checkpoint_files(lua_State *L)
{
    const tpl_checkpoint *cp = self(L);
    uint32_t n = tpl_checkpoint_n_files(cp);
    lua_createtable(L, (int)n, 0);
    for (uint32_t i = 0; i < n; i++) {
        tpl_ckpt_file f = tpl_checkpoint_file(cp, i);
        lua_createtable(L, 0, 2);
        lua_pushstring(L, f.path);
        lua_setfield(L, -2, "path");
        tpl_set_number(L, "size", (double)f.bytes);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* -- Tensors ---- */

static void push_tensor(lua_State *L, const tpl_ckpt_tensor *t)
{
    lua_createtable(L, 0, 6);
    lua_pushlstring(L, t->name, t->name_len);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, tpl_checkpoint_type_name(t));
    lua_setfield(L, -2, "dtype");
    lua_createtable(L, t->n_dims, 0);
    for (int i = 0; i < t->n_dims; i++) {
        lua_pushnumber(L, (double)t->dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "dims");
    tpl_set_number(L, "bytes", (double)t->bytes);
    tpl_set_number(L, "file", t->file);
    tpl_set_number(L, "offset", (double)t->offset);
}

static int checkpoint_tensors(lua_State *L)
{
    const tpl_checkpoint *cp = self(L);
    uint32_t n = tpl_checkpoint_n_tensors(cp);
    lua_createtable(L, (int)n, 0);
    for (uint32_t i = 0; i < n; i++) {
        push_tensor(L, tpl_checkpoint_tensor(cp, i));
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

static int checkpoint_tensor(lua_State *L)
{
    const tpl_ckpt_tensor *t = tpl_checkpoint_find(self(L), luaL_checkstring(L, 2));
    if (!t) return 0;
    push_tensor(L, t);
    return 1;
}

/* One element of a plain type as a double. f16: IEEE 754 binary16. */
static double plain_value(tpl_dtype type, const unsigned char *p)
{
    uint32_t bits = 0;
    float f;
    if (type == TPL_DTYPE_F16) {
        uint32_t h = (uint32_t)p[0] | (uint32_t)p[1] << 8, e = h >> 10 & 31, m = h & 1023;
        double v = e == 31 ? (m ? __builtin_nan("") : __builtin_inf())
                   : e     ? __builtin_ldexp(1024 + m, (int)e - 25)
                           : __builtin_ldexp(m, -24);
        return h >> 15 ? -v : v;
    }
    if (type == TPL_DTYPE_BF16)
        bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    else
        bits = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static int checkpoint_read_f32(lua_State *L)
{
    const tpl_checkpoint *cp = self(L);
    const char *name = luaL_checkstring(L, 2);
    const tpl_ckpt_tensor *t = tpl_checkpoint_find(cp, name);
    tpl_err err = { 0 };
    tpl_dtype type;
    if (!t) return luaL_error(L, "no tensor '%s'", name);
    if (tpl_checkpoint_dtype(cp, t, &type, &err)) return tpl_push_err(L, &err);
    if (type != TPL_DTYPE_F32 && type != TPL_DTYPE_F16 && type != TPL_DTYPE_BF16)
        return luaL_error(L, "tensor '%s' has type %s, expected f32, f16 or bf16", name,
                          tpl_checkpoint_type_name(t));
    uint32_t size = tpl_dtypes[type].n_bytes;
    uint64_t n = t->bytes / size;
    if (n > MAX_READ_ELEMS)
        return luaL_error(L, "tensor '%s' is too large: at most %d elements", name, MAX_READ_ELEMS);
    unsigned char *data = lua_newuserdata(L, (size_t)t->bytes + 1);
    if (tpl_checkpoint_read_tensor(cp, t, 0, t->bytes, data, &err)) return tpl_push_err(L, &err);
    lua_createtable(L, (int)n, 0);
    for (uint64_t i = 0; i < n; i++) {
        lua_pushnumber(L, plain_value(type, data + i * size));
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* -- Keys ---- */

#define EXACT_INT ((int64_t)1 << 53)

/* Pushes element i of a number or bool; false when a double cannot hold it. */
static bool push_scalar(lua_State *L, const tpl_kv *kv, uint64_t i)
{
    int64_t v;
    uint64_t u;
    double x;
    bool b;
    if (tpl_kv_bool(kv, i, &b)) {
        lua_pushboolean(L, b);
    } else if (tpl_kv_i64(kv, i, &v)) {
        if (v > EXACT_INT || v < -EXACT_INT) return false;
        lua_pushnumber(L, (double)v);
    } else {
        if (tpl_kv_u64(kv, i, &u) || !tpl_kv_f64(kv, i, &x)) return false;
        lua_pushnumber(L, x);
    }
    return true;
}

static void push_strings(lua_State *L, const tpl_kv *kv)
{
    tpl_str *list = lua_newuserdata(L, (size_t)(kv->n ? kv->n : 1) * sizeof *list); /* n <= file size / 8 */
    tpl_kv_strings(kv, list);
    lua_createtable(L, (int)kv->n, 0);
    for (uint64_t i = 0; i < kv->n; i++) {
        lua_pushlstring(L, list[i].s, list[i].len);
        lua_rawseti(L, -2, (int)i + 1);
    }
}

static bool push_array(lua_State *L, const tpl_kv *kv)
{
    lua_createtable(L, (int)kv->n, 0);
    for (uint64_t i = 0; i < kv->n; i++) {
        if (!push_scalar(L, kv, i)) return false;
        lua_rawseti(L, -2, (int)i + 1);
    }
    return true;
}

static int checkpoint_kv(lua_State *L)
{
    const tpl_kv *kv = tpl_checkpoint_kv(self(L), luaL_checkstring(L, 2));
    tpl_str s;
    if (!kv) return 0;
    if (kv->n > MAX_KV_ELEMS) {
        lua_pushnil(L);
        lua_pushliteral(L, "too large");
        return 2;
    }
    if (tpl_kv_str(kv, &s)) {
        lua_pushlstring(L, s.s, s.len);
    } else if (kv->type == TPL_KV_STR) {
        push_strings(L, kv);
    } else if (!(kv->is_array ? push_array(L, kv) : push_scalar(L, kv, 0))) {
        lua_pushnil(L);
        lua_pushliteral(L, "too large");
        return 2;
    }
    return 1;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int checkpoint_keys(lua_State *L)
{
    const tpl_checkpoint *cp = self(L);
    uint32_t n = tpl_checkpoint_n_kvs(cp);
    const char **keys = lua_newuserdata(L, (n + (size_t)1) * sizeof *keys);
    for (uint32_t i = 0; i < n; i++) keys[i] = tpl_checkpoint_kv_at(cp, i)->key;
    qsort(keys, n, sizeof *keys, by_text);
    lua_createtable(L, (int)n, 0);
    for (uint32_t i = 0; i < n; i++) {
        lua_pushstring(L, keys[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* -- The module ---- */

static const luaL_Reg methods[] = {
    { "kind", checkpoint_kind },         { "path", checkpoint_path },
    { "warning", checkpoint_warning },   { "files", checkpoint_files },
    { "tensors", checkpoint_tensors },   { "tensor", checkpoint_tensor },
    { "read_f32", checkpoint_read_f32 }, { "kv", checkpoint_kv },
    { "keys", checkpoint_keys },         { NULL, NULL },
};

const tpl_class tpl_checkpoint_class = { "tpl.checkpoint", close_checkpoint, methods };

int tpl_open_checkpoint(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, checkpoint_open);
    lua_setfield(L, -2, "open");
    return 1;
}
