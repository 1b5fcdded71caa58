/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.tokenizer: tokenizers for Lua; lua/tpl/tokenizer.lua finds the files and gives the interface
 * users see. Ids count from 0, the arrays they lie in from 1. A tokenizer box may be used by the state's
 * owner thread only, though the C object is shareable.
 */
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "model/vocab.h"
#include "token/tokenizer.h"

static void close_tokenizer(void *obj) { tpl_tokenizer_free(obj); }
static void close_detok(void *obj) { tpl_detok_free(obj); }

static const luaL_Reg tokenizer_methods[];
static const luaL_Reg detok_methods[];
static const tpl_class tokenizer_class = { "tpl.tokenizer", close_tokenizer, tokenizer_methods };
static const tpl_class detok_class = { "tpl.detok", close_detok, detok_methods };

static tpl_tokenizer *self(lua_State *L) { return tpl_box_get(L, 1, &tokenizer_class); }

/* -- Making ----------------------------------------------------------------------------------------------- */

/* from_json(bytes [, name for messages [, bytes of tokenizer_config.json or nil [, its name]]]) */
static int from_json(lua_State *L)
{
    tpl_str json = { NULL, 0 }, config = { NULL, 0 };
    json.s = luaL_checklstring(L, 1, &json.len);
    config.s = luaL_optlstring(L, 3, NULL, &config.len);
    const char *where = luaL_optstring(L, 2, "tokenizer.json"),
               *where_config = luaL_optstring(L, 4, "tokenizer_config.json");
    void **box = tpl_box_new(L, &tokenizer_class);
    tpl_tokenizer *t;
    tpl_err err = { 0 };
    if (tpl_tokenizer_from_files(&t, json, where, config, where_config, &err))
        return tpl_push_err(L, &err);
    *box = t;
    return 1;
}

static int no_vocab(lua_State *L, const char *where)
{
    lua_pushnil(L);
    lua_pushliteral(L, "the file has no vocabulary");
    lua_pushliteral(L, "no_vocab");
    lua_pushstring(L, where);
    lua_pushliteral(L, "give token ids, or name a tokenizer.json");
    return 5;
}

/* from_checkpoint(checkpoint [, name for messages]) */
static int from_checkpoint(lua_State *L)
{
    const tpl_checkpoint *cp = tpl_box_get(L, 1, &tpl_checkpoint_class);
    const char *where = luaL_optstring(
        L, 2, tpl_checkpoint_n_files(cp) ? tpl_checkpoint_file(cp, 0).path : "checkpoint");
    void **box = tpl_box_new(L, &tokenizer_class);
    tpl_checkpoint_vocab v;
    tpl_err err = { 0 };
    tpl_tokenizer *t = NULL;
    if (tpl_checkpoint_vocab_read(&v, cp, where, &err)) return tpl_push_err(L, &err);
    tpl_str model = v.source.model;
    bool has_vocab = v.source.n_tokens && !(model.len == 4 && !memcmp(model.s, "none", 4));
    tpl_status st = has_vocab ? tpl_tokenizer_from_vocab(&t, &v.source, &err) : TPL_OK;
    tpl_checkpoint_vocab_free(&v);
    if (st) return tpl_push_err(L, &err);
    if (!has_vocab) return no_vocab(L, where);
    *box = t;
    return 1;
}

/* -- Configuring ------------------------------------------------------------------------------------------ */

static tpl_str opt_str(lua_State *L, int index, const char *key)
{
    tpl_str s = { NULL, 0 };
    lua_getfield(L, index, key); /* stays on the stack, so that the bytes live */
    if (!lua_isnil(L, -1)) s.s = luaL_checklstring(L, -1, &s.len);
    return s;
}

static int opt_flag(lua_State *L, int index, const char *key)
{
    lua_getfield(L, index, key);
    int v = lua_isnil(L, -1) ? -1 : lua_toboolean(L, -1);
    lua_pop(L, 1);
    return v;
}

static const char *const config_names[] = { "bos_token", "eos_token", "add_bos", "add_eos", NULL };

/* configure{bos_token=, eos_token=, add_bos=, add_eos=} -> true */
static int tokenizer_configure(lua_State *L)
{
    tpl_tokenizer *t = self(L);
    tpl_err err = { 0 };
    luaL_checktype(L, 2, LUA_TTABLE);
    tpl_check_options(L, 2, config_names);
    tpl_tokenizer_config c = { .add_bos = opt_flag(L, 2, "add_bos"),
                               .add_eos = opt_flag(L, 2, "add_eos") };
    c.bos_token = opt_str(L, 2, "bos_token");
    c.eos_token = opt_str(L, 2, "eos_token");
    if (tpl_tokenizer_configure(t, &c, &err)) return tpl_push_err(L, &err);
    lua_pushboolean(L, 1);
    return 1;
}

/* add_eog(id) -> true */
static int tokenizer_add_eog(lua_State *L)
{
    tpl_err err = { 0 };
    if (tpl_tokenizer_add_eog(self(L), (int64_t)luaL_checknumber(L, 2), &err))
        return tpl_push_err(L, &err);
    lua_pushboolean(L, 1);
    return 1;
}

/* -- Facts ------------------------------------------------------------------------------------------------ */

/* An id from Lua; anything that is none becomes -1, which has no token. */
static int32_t check_id(lua_State *L, int index)
{
    lua_Number x = luaL_checknumber(L, index);
    return x >= 0 && x <= INT32_MAX && x == (lua_Number)(int32_t)x ? (int32_t)x : -1;
}

static int push_id(lua_State *L, int32_t id)
{
    if (id < 0) lua_pushnil(L);
    else lua_pushinteger(L, id);
    return 1;
}

static int tokenizer_n_vocab(lua_State *L)
{
    lua_pushinteger(L, tpl_tokenizer_n_vocab(self(L)));
    return 1;
}

static int tokenizer_bos(lua_State *L) { return push_id(L, tpl_tokenizer_bos(self(L))); }
static int tokenizer_eos(lua_State *L) { return push_id(L, tpl_tokenizer_eos(self(L))); }

static int tokenizer_adds_bos(lua_State *L)
{
    lua_pushboolean(L, tpl_tokenizer_adds_bos(self(L)));
    return 1;
}

static int tokenizer_is_eog(lua_State *L)
{
    lua_pushboolean(L, tpl_tokenizer_is_eog(self(L), check_id(L, 2)));
    return 1;
}

/* eog_ids() -> ids that end a generation, ascending */
static int tokenizer_eog_ids(lua_State *L)
{
    const tpl_tokenizer *t = self(L);
    int n = 0;
    lua_newtable(L);
    for (int32_t id = 0; id < tpl_tokenizer_n_vocab(t); id++) {
        if (!tpl_tokenizer_is_eog(t, id)) continue;
        lua_pushinteger(L, id);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

static int tokenizer_is_special(lua_State *L)
{
    lua_pushboolean(L, tpl_tokenizer_is_special(self(L), check_id(L, 2)));
    return 1;
}

static int tokenizer_token(lua_State *L)
{
    tpl_str s = tpl_tokenizer_token(self(L), check_id(L, 2));
    if (s.s) lua_pushlstring(L, s.s, s.len);
    else lua_pushnil(L);
    return 1;
}

static int tokenizer_find(lua_State *L)
{
    size_t len;
    const char *s = luaL_checklstring(L, 2, &len);
    return push_id(L, tpl_tokenizer_find(self(L), s, len));
}

/* -- Encoding --------------------------------------------------------------------------------------------- */

static int push_ids(lua_State *L, const int32_t *ids, size_t n)
{
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushinteger(L, ids[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* encode(text, special, bos) -> ids */
static int tokenizer_encode(lua_State *L)
{
    const tpl_tokenizer *t = self(L);
    size_t len, n, cap;
    const char *text = luaL_checklstring(L, 2, &len);
    unsigned flags =
        (lua_toboolean(L, 3) ? TPL_ENCODE_SPECIAL : 0) | (lua_toboolean(L, 4) ? TPL_ENCODE_BOS : 0);
    tpl_err err = { 0 };
    cap = len / 2 + 64; /* nearly always enough: languages take two bytes a token and more */
    int32_t *ids = lua_newuserdata(L, cap * sizeof *ids);
    if (tpl_tokenizer_encode(t, text, len, flags, ids, cap, &n, &err)) return tpl_push_err(L, &err);
    if (n > cap) {
        cap = n;
        ids = lua_newuserdata(L, cap * sizeof *ids);
        if (tpl_tokenizer_encode(t, text, len, flags, ids, cap, &n, &err)) return tpl_push_err(L, &err);
    }
    return push_ids(L, ids, n);
}

/* -- Decoding --------------------------------------------------------------------------------------------- */

/* stream(skip_special [, n_prompt]) -> detok */
static int tokenizer_stream(lua_State *L)
{
    const tpl_tokenizer *t = self(L);
    bool skip = lua_toboolean(L, 2);
    lua_Number prompt = luaL_optnumber(L, 3, 0);
    luaL_argcheck(L, prompt >= 0 && prompt < 9007199254740992.0, 3, "expected a number of tokens");
    void **box = tpl_box_new(L, &detok_class);
    tpl_box_keep(L, -1, 1);
    tpl_detok *d;
    tpl_err err = { 0 };
    if (tpl_detok_new(&d, t, skip, (size_t)prompt, &err)) return tpl_push_err(L, &err);
    *box = d;
    return 1;
}

/* The detok, after a check that the tokenizer which it looks into is still open. */
static tpl_detok *detok_self(lua_State *L)
{
    tpl_detok *d = tpl_box_get(L, 1, &detok_class);
    lua_getfenv(L, 1);
    lua_rawgeti(L, -1, 1);
    tpl_box_get(L, -1, &tokenizer_class);
    lua_pop(L, 2);
    return d;
}

static int detok_push(lua_State *L)
{
    tpl_detok *d = detok_self(L);
    tpl_str s;
    tpl_err err = { 0 };
    if (tpl_detok_push(d, check_id(L, 2), &s, &err)) return tpl_push_err(L, &err);
    lua_pushlstring(L, s.s, s.len);
    return 1;
}

static int detok_flush(lua_State *L)
{
    tpl_detok *d = detok_self(L);
    tpl_str s;
    tpl_err err = { 0 };
    if (tpl_detok_flush(d, &s, &err)) return tpl_push_err(L, &err);
    lua_pushlstring(L, s.s, s.len);
    return 1;
}

/* --------------------------------------------------------------------------------------------- */

static const luaL_Reg tokenizer_methods[] = {
    { "configure", tokenizer_configure },
    { "add_eog", tokenizer_add_eog },
    { "n_vocab", tokenizer_n_vocab },
    { "bos", tokenizer_bos },
    { "eos", tokenizer_eos },
    { "adds_bos", tokenizer_adds_bos },
    { "is_eog", tokenizer_is_eog },
    { "eog_ids", tokenizer_eog_ids },
    { "is_special", tokenizer_is_special },
    { "token", tokenizer_token },
    { "find", tokenizer_find },
    { "encode", tokenizer_encode },
    { "stream", tokenizer_stream },
    { NULL, NULL },
};

static const luaL_Reg detok_methods[] = { { "push", detok_push },
                                          { "flush", detok_flush },
                                          { NULL, NULL } };

static const luaL_Reg functions[] = { { "from_json", from_json },
                                      { "from_checkpoint", from_checkpoint },
                                      { NULL, NULL } };

int tpl_open_tokenizer(lua_State *L);

int tpl_open_tokenizer(lua_State *L)
{
    lua_newtable(L);
    for (const luaL_Reg *f = functions; f->name; f++) {
        lua_pushcfunction(L, f->func);
        lua_setfield(L, -2, f->name);
    }
    return 1;
}
