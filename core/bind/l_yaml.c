/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.yaml: YAML text to Lua values of the same shapes as JSON gives (l_json.c). Writing YAML is done in Lua
 * (lua/tpl/yaml.lua).
 */
#include "base/yaml.h"
#include "bind/bind.h"
#include "bind/json_push.h"

typedef tpl_status parse_fn(json_t **, const char *, size_t, int, const char *, tpl_err *);

static int decode_with(lua_State *L, parse_fn *parse)
{
    static const char *const options[] = { "depth", "where", NULL };
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len), *where = "";
    int depth = 0;
    tpl_check_options(L, 2, options);
    if (lua_istable(L, 2)) {
        depth = (int)tpl_opt_whole(L, 2, "depth", 1, 512, 0);
        where = tpl_opt_string(L, 2, "where", "");
    }
    void **box = tpl_json_box(L);
    json_t *v;
    tpl_err err = { 0 };
    if (parse(&v, text, len, depth, where, &err)) return tpl_push_err(L, &err);
    *box = v;
    tpl_json_unbox(L);
    return 1;
}

/* decode(text, options) -> value; options: depth (64), where (name for messages) */
static int yaml_decode(lua_State *L)
{
    return decode_with(L, tpl_yaml_parse);
}

/* decode_all(text, options) -> array of the values of all documents */
static int yaml_decode_all(lua_State *L)
{
    return decode_with(L, tpl_yaml_parse_all);
}

/* line(text, "devices[2].name") -> the line in which that value begins, or nil */
static int yaml_line(lua_State *L)
{
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len), *path = luaL_checkstring(L, 2);
    int line = tpl_yaml_line(text, len, path);
    if (line)
        lua_pushinteger(L, line);
    else
        lua_pushnil(L);
    return 1;
}

int tpl_open_yaml(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "decode", yaml_decode }, { "decode_all", yaml_decode_all }, { "line", yaml_line }, { NULL, NULL }
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
