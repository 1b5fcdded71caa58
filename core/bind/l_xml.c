/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.xml: XML text to Lua tables.
 *   element  {tag = "gpu", attr = {dev = "0"}, line = 7, text = "..", child, child, ..}: children are the elements in it, text
 *            is what stands directly in it, pieces joined; absent where that is blank
 */
#include "base/xml.h"

#include <string.h>

#include "bind/bind.h"

static void close_tree(void *obj)
{
    tpl_xml_free(obj);
}

static const tpl_class tree_class = { "tpl.xml.tree", close_tree, NULL };

static void push_attrs(lua_State *L, const tpl_xml *x, const tpl_xml_node *n)
{
    lua_createtable(L, 0, (int)n->n_attr);
    for (uint32_t i = 0; i < n->n_attr; i++) {
        const tpl_xml_attr *a = &x->attrs[n->attr + i];
        lua_pushstring(L, x->bytes + a->value);
        lua_setfield(L, -2, x->bytes + a->name);
    }
}

static bool is_blank(const char *s)
{
    return !s[strspn(s, " \t\r\n")];
}

/* Sets `text` of the element on top. */
static void set_text(lua_State *L, const tpl_xml *x, const tpl_xml_node *n)
{
    int pieces = 0;
    for (uint32_t i = n->first; i; i = x->nodes[i].next) {
        const tpl_xml_node *c = &x->nodes[i];
        if (c->tag || is_blank(x->bytes + c->text)) continue;
        lua_pushlstring(L, x->bytes + c->text, c->text_len);
        if (++pieces > 1) lua_concat(L, 2);
    }
    if (pieces) lua_setfield(L, -2, "text");
}

static void push_element(lua_State *L, const tpl_xml *x, const tpl_xml_node *n)
{
    int count = 0;
    luaL_checkstack(L, 6, "XML too deep"); /* raises; the tree belongs to a box */
    lua_createtable(L, 0, 4);
    lua_pushstring(L, x->bytes + n->tag);
    lua_setfield(L, -2, "tag");
    lua_pushinteger(L, (lua_Integer)n->line);
    lua_setfield(L, -2, "line");
    push_attrs(L, x, n);
    lua_setfield(L, -2, "attr");
    set_text(L, x, n);
    for (uint32_t i = n->first; i; i = x->nodes[i].next) {
        if (!x->nodes[i].tag) continue;
        push_element(L, x, &x->nodes[i]);
        lua_rawseti(L, -2, ++count);
    }
}

/* decode(text, options) -> root, or root or nil, message, code, where, line; options: where (name for messages) */
static int xml_decode(lua_State *L)
{
    static const char *const options[] = { "where", NULL };
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len), *where = "";
    tpl_check_options(L, 2, options);
    if (lua_istable(L, 2)) where = tpl_opt_string(L, 2, "where", "");
    void **box = tpl_box_new(L, &tree_class);
    int box_at = lua_gettop(L), line;
    tpl_xml *x;
    tpl_err err = { 0 };
    tpl_status st = tpl_xml_parse(&x, text, len, where, &line, &err);
    *box = x;
    if (x && x->n_nodes)
        push_element(L, x, &x->nodes[0]);
    else
        lua_pushnil(L);
    luaL_callmeta(L, box_at, "__gc"); /* frees the tree now, not at the next collection */
    lua_settop(L, box_at + 1);
    if (!st) return 1;
    lua_pushstring(L, err.msg);
    lua_pushstring(L, tpl_status_name(err.code));
    if (*err.where)
        lua_pushstring(L, err.where);
    else
        lua_pushnil(L);
    if (line)
        lua_pushinteger(L, line);
    else
        lua_pushnil(L);
    return 5;
}

int tpl_open_xml(lua_State *L)
{
    static const luaL_Reg functions[] = { { "decode", xml_decode }, { NULL, NULL } };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
