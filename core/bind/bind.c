/* SPDX-License-Identifier: Apache-2.0 */
#include "bind/bind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Boxes ---- */

typedef struct box {
    void *obj;
    const tpl_class *class;
} box;

/* The class is an upvalue, so that one function serves all classes. */
static box *own_box(lua_State *L)
{
    const tpl_class *c = lua_touserdata(L, lua_upvalueindex(1));
    return luaL_checkudata(L, 1, c->name);
}

static int box_close(lua_State *L)
{
    box *b = own_box(L);
    void *obj = b->obj;
    b->obj = NULL;
    if (obj) b->class->close(obj);
    return 0;
}

static int box_tostring(lua_State *L)
{
    box *b = own_box(L);
    if (b->obj)
        lua_pushfstring(L, "%s: %p", b->class->name, b->obj);
    else
        lua_pushfstring(L, "%s (closed)", b->class->name);
    return 1;
}

static void set_closure(lua_State *L, const tpl_class *c, const char *name, lua_CFunction f)
{
    lua_pushlightuserdata(L, (void *)c);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
}

static void push_metatable(lua_State *L, const tpl_class *c)
{
    if (!luaL_newmetatable(L, c->name)) return;
    set_closure(L, c, "__gc", box_close);
    set_closure(L, c, "__tostring", box_tostring);
    lua_pushliteral(L, "locked");
    lua_setfield(L, -2, "__metatable");
    lua_newtable(L);
    for (const luaL_Reg *m = c->methods; m && m->name; m++) {
        lua_pushcfunction(L, m->func);
        lua_setfield(L, -2, m->name);
    }
    set_closure(L, c, "close", box_close);
    lua_setfield(L, -2, "__index");
}

void **tpl_box_new(lua_State *L, const tpl_class *c)
{
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){ NULL, c };
    push_metatable(L, c);
    lua_setmetatable(L, -2);
    return &b->obj;
}

void *tpl_box_get(lua_State *L, int index, const tpl_class *c)
{
    box *b = luaL_checkudata(L, index, c->name);
    if (!b->obj) luaL_error(L, "%s is closed", c->name);
    return b->obj;
}

void tpl_box_keep(lua_State *L, int index, int parent)
{
    lua_pushvalue(L, index);
    lua_pushvalue(L, parent < 0 ? parent - 1 : parent);
    lua_createtable(L, 1, 0);
    lua_insert(L, -2);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    lua_pop(L, 1);
}

/* -- Errors and options ---- */

static void push_or_nil(lua_State *L, const char *s)
{
    if (*s)
        lua_pushstring(L, s);
    else
        lua_pushnil(L);
}

int tpl_push_err(lua_State *L, const tpl_err *err)
{
    lua_pushnil(L);
    lua_pushstring(L, err->msg);
    lua_pushstring(L, tpl_status_name(err->code));
    push_or_nil(L, err->where);
    push_or_nil(L, err->hint);
    return 5;
}

static int is_listed(const char *s, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(s, *names)) return 1;
    return 0;
}

void tpl_check_options(lua_State *L, int index, const char *const *names)
{
    if (lua_isnoneornil(L, index)) return;
    luaL_checktype(L, index, LUA_TTABLE);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            luaL_error(L, "option names are strings, one is a %s", luaL_typename(L, -1));
        if (!is_listed(lua_tostring(L, -1), names)) luaL_error(L, "unknown option '%s'", lua_tostring(L, -1));
    }
}

double tpl_opt_number(lua_State *L, int index, const char *key, double otherwise)
{
    lua_getfield(L, index, key);
    double v = lua_isnumber(L, -1) ? lua_tonumber(L, -1) : otherwise;
    lua_pop(L, 1);
    return v;
}

int64_t tpl_opt_whole(lua_State *L, int index, const char *key, int64_t least, int64_t most, int64_t otherwise)
{
    double v = tpl_opt_number(L, index, key, (double)otherwise);
    if (v != (double)otherwise && (v != floor(v) || v < (double)least || v > (double)most))
        luaL_error(L, "%s is %f, a whole number from %f to %f is wanted", key, v, (double)least, (double)most);
    return (int64_t)v;
}

/* Valid while the table holds the string. */
const char *tpl_opt_string(lua_State *L, int index, const char *key, const char *otherwise)
{
    lua_getfield(L, index, key);
    const char *v = lua_isstring(L, -1) ? lua_tostring(L, -1) : otherwise;
    lua_pop(L, 1);
    return v;
}

void tpl_set_number(lua_State *L, const char *key, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, key);
}

/* -- Text ---- */

static void text_close(void *obj)
{
    tpl_text *t = obj;
    free(t->s);
    free(t);
}

static const tpl_class text_class = { "tpl.text", text_close, NULL };

tpl_text *tpl_text_new(lua_State *L)
{
    void **b = tpl_box_new(L, &text_class);
    *b = calloc(1, sizeof(tpl_text));
    if (!*b) luaL_error(L, "out of memory");
    return *b;
}

void tpl_text_add(lua_State *L, tpl_text *t, const char *s, size_t len)
{
    if (len > t->cap - t->len) {
        size_t cap = t->cap ? t->cap : 256;
        while (cap - t->len < len && cap <= SIZE_MAX / 2) cap *= 2;
        char *p = cap - t->len >= len ? realloc(t->s, cap) : NULL;
        if (!p) luaL_error(L, "out of memory");
        t->s = p;
        t->cap = cap;
    }
    memcpy(t->s + t->len, s, len);
    t->len += len;
}
