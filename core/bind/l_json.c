/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.json: JSON to and from Lua values, byte-exact.
 *   object  a table with a metatable of its own, {__name = "json.object", keys = {..}}: the keys in the order
 * of the text, because chat templates print tools as they were sent. encode follows keys, then takes members
 * that were added later, sorted. array   a table with json.array_mt, so that an empty one stays an array null
 * json.null, the light userdata NULL number  a Lua number; with typed=true one written with '.', 'e' or 'E'
 * is {value = x} with json.real_mt: Python prints 1.0 and 1 differently, and templates see that
 */
#include "base/json.h"
#include "bind/bind.h"
#include "bind/json_encode.h"
#include "bind/json_push.h"

#define ARRAY_MT "tpl.json.array"
#define REAL_MT "tpl.json.real"

/* -- Values with a metatable ---- */

/* Gives the table on top the metatable {__name="json.object", keys=<value below the table>}; pops the keys.
 * Stack: keys, table. */
static void make_object(lua_State *L)
{
    lua_createtable(L, 0, 2);
    lua_pushliteral(L, "json.object");
    lua_setfield(L, -2, "__name");
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "keys");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

static void set_named_mt(lua_State *L, const char *registry_name)
{
    luaL_getmetatable(L, registry_name);
    lua_setmetatable(L, -2);
}

/* -- Decode ---- */

static void close_doc(void *obj)
{
    json_decref(obj);
}

static const tpl_class doc_class = { "tpl.json.doc", close_doc, NULL };

static void push_value(lua_State *L, const json_t *v, bool typed);

static void push_object(lua_State *L, const json_t *v, bool typed)
{
    int i = 0, n = (int)json_object_size(v);
    lua_createtable(L, n, 0);
    lua_createtable(L, 0, n);
    for (void *it = json_object_iter((json_t *)v); it; it = json_object_iter_next((json_t *)v, it)) {
        lua_pushlstring(L, json_object_iter_key(it), json_object_iter_key_len(it));
        lua_pushvalue(L, -1);
        lua_rawseti(L, -4, ++i);
        push_value(L, json_object_iter_value(it), typed);
        lua_rawset(L, -3);
    }
    make_object(L);
}

static void push_array(lua_State *L, const json_t *v, bool typed)
{
    size_t n = json_array_size(v);
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        push_value(L, json_array_get(v, i), typed);
        lua_rawseti(L, -2, (int)i + 1);
    }
    set_named_mt(L, ARRAY_MT);
}

static void push_real(lua_State *L, double x, bool typed)
{
    if (!typed) {
        lua_pushnumber(L, x);
        return;
    }
    lua_createtable(L, 0, 1);
    lua_pushnumber(L, x);
    lua_setfield(L, -2, "value");
    set_named_mt(L, REAL_MT);
}

static void push_value(lua_State *L, const json_t *v, bool typed)
{
    luaL_checkstack(L, 6, "JSON too deep"); /* raises; the document belongs to a box */
    switch (json_typeof(v)) {
    case JSON_OBJECT: push_object(L, v, typed); break;
    case JSON_ARRAY: push_array(L, v, typed); break;
    case JSON_STRING: lua_pushlstring(L, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: lua_pushnumber(L, (double)json_integer_value(v)); break;
    case JSON_REAL: push_real(L, json_real_value(v), typed); break;
    case JSON_TRUE: lua_pushboolean(L, 1); break;
    case JSON_FALSE: lua_pushboolean(L, 0); break;
    case JSON_NULL: lua_pushlightuserdata(L, NULL); break;
    }
}

void **tpl_json_box(lua_State *L)
{
    return tpl_box_new(L, &doc_class);
}

static void unbox(lua_State *L, bool typed)
{
    int box_at = lua_gettop(L);
    push_value(L, tpl_box_get(L, box_at, &doc_class), typed);
    luaL_callmeta(L, box_at, "__gc"); /* frees the document now, not at the next collection */
    lua_settop(L, box_at + 1);
    lua_remove(L, box_at);
}

void tpl_json_unbox(lua_State *L)
{
    unbox(L, false);
}

/* decode(text, options) -> value; options: depth (64), typed (numbers with '.' or 'e' are marked), where (name for messages) */
static int json_decode(lua_State *L)
{
    static const char *const options[] = { "depth", "typed", "where", NULL };
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len), *where = "";
    int depth = 0;
    bool typed = false;
    tpl_check_options(L, 2, options);
    if (lua_istable(L, 2)) {
        lua_getfield(L, 2, "depth");
        lua_getfield(L, 2, "typed");
        lua_getfield(L, 2, "where");
        depth = (int)luaL_optinteger(L, -3, 0);
        typed = lua_toboolean(L, -2);
        where = luaL_optstring(L, -1, "");
    }
    void **box = tpl_json_box(L);
    json_t *v;
    tpl_err err = { 0 };
    if (tpl_json_parse(&v, text, len, depth, where, &err)) return tpl_push_err(L, &err);
    *box = v;
    unbox(L, typed);
    return 1;
}

/* -- Constructors ---- */

/* json.object{ {"b", 1}, {"a", 2} }: an object with its keys in this order. */
static int json_object_new(lua_State *L)
{
    int n = 0;
    if (!lua_isnoneornil(L, 1)) {
        luaL_checktype(L, 1, LUA_TTABLE);
        n = (int)lua_objlen(L, 1);
    }
    lua_createtable(L, n, 0);
    int keys = lua_gettop(L);
    lua_createtable(L, 0, n);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        if (!lua_istable(L, -1))
            return luaL_error(L, "json.object: item %d is a %s, expected {key, value}", i,
                              luaL_typename(L, -1));
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        if (lua_type(L, -2) != LUA_TSTRING)
            return luaL_error(L, "json.object: key %d is a %s, expected a string", i, luaL_typename(L, -2));
        lua_pushvalue(L, -2);
        lua_rawget(L, keys + 1);
        if (!lua_isnil(L, -1)) return luaL_error(L, "json.object: duplicate key '%s'", lua_tostring(L, -3));
        lua_pop(L, 1);
        lua_pushvalue(L, -2);
        lua_rawseti(L, keys, i);
        lua_rawset(L, keys + 1);
        lua_pop(L, 1);
    }
    make_object(L);
    return 1;
}

/* json.array{...}: the same table, marked. */
static int json_array_new(lua_State *L)
{
    if (lua_isnoneornil(L, 1))
        lua_newtable(L);
    else
        luaL_checktype(L, 1, LUA_TTABLE);
    set_named_mt(L, ARRAY_MT);
    return 1;
}

/* json.real(x): a number that is written as a float. */
static int json_real_new(lua_State *L)
{
    push_real(L, luaL_checknumber(L, 1), true);
    return 1;
}

/* json.pyrepr(x): the text that Python's repr gives a float. */
static int json_pyrepr(lua_State *L)
{
    lua_pushstring(L, tpl_json_pyrepr(luaL_checknumber(L, 1)).s);
    return 1;
}

static void add_mt(lua_State *L, const char *field, const char *registry_name, const char *name)
{
    luaL_newmetatable(L, registry_name);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__name");
    lua_setfield(L, -2, field);
}

/* encode(value, options) -> text; options as those of Python's json.dumps: indent, separators, sort_keys, ensure_ascii, allow_nan
 * (l_json_encode.c) */

int tpl_open_json(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "decode", json_decode },
        { "encode", tpl_json_encode },
        { "object", json_object_new },
        { "array", json_array_new },
        { "real", json_real_new },
        { "pyrepr", json_pyrepr },
        { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    add_mt(L, "array_mt", ARRAY_MT, "json.array");
    add_mt(L, "real_mt", REAL_MT, "json.real");
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    return 1;
}
