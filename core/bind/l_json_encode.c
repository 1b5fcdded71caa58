/* SPDX-License-Identifier: Apache-2.0
 *
 * Lua values as JSON text, the way Python's json.dumps writes it (l_json.c says what an object, an array and
 * a real are). The text grows in a box, so that a raise in the middle frees it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "bind/bind.h"
#include "bind/json_encode.h"

enum { MAX_ENCODE_DEPTH = 150 }; /* C recursion, 3 Lua stack slots each; also what ends a cycle */

typedef struct encoder {
    lua_State *L;
    tpl_text *out;
    const char *item, *pair; /* separators */
    size_t item_len, pair_len;
    const char *indent; /* of one level, NULL: all in one line */
    size_t indent_len;
    bool sort, ascii, allow_nan;
    int depth;
} encoder;

static void put(encoder *e, const char *s, size_t len)
{
    tpl_text_add(e->L, e->out, s, len);
}

static void put_text(encoder *e, const char *s)
{
    put(e, s, strlen(s));
}

static void put_newline(encoder *e)
{
    if (!e->indent) return;
    put(e, "\n", 1);
    for (int i = 0; i < e->depth; i++) put(e, e->indent, e->indent_len);
}

static int decode_utf8(const char *s, int n)
{
    static const unsigned char first[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    int c = (unsigned char)s[0] & first[n];
    for (int i = 1; i < n; i++) c = c << 6 | ((unsigned char)s[i] & 0x3f);
    return c;
}

static void put_unicode(encoder *e, int c)
{
    char text[16];
    if (c >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                 0xDC00 + ((c - 0x10000) & 0x3ff));
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c & 0xffff);
    put_text(e, text);
}

/* The escapes of Python's json.dumps. With ensure_ascii a byte that is not UTF-8 becomes U+FFFD, else it is
 * written as it is. */
static void put_string(encoder *e, const char *s, size_t len)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *end = s + len, *run = s;
    put(e, "\"", 1);
    while (s < end) {
        unsigned char c = (unsigned char)*s;
        int n = c >= 0x80 && e->ascii ? tpl_utf8_len(s, end) : 1;
        const char *at = c ? strchr(from, c) : NULL;
        if (!at && c >= 0x20 && !(c >= 0x80 && e->ascii)) {
            s++;
            continue;
        }
        put(e, run, (size_t)(s - run));
        if (at)
            put(e, (char[]){ '\\', to[at - from] }, 2);
        else
            put_unicode(e, n ? decode_utf8(s, n) : 0xFFFD);
        s += n ? n : 1;
        run = s;
    }
    put(e, run, (size_t)(s - run));
    put(e, "\"", 1);
}

static void put_special(encoder *e, double x)
{
    if (!e->allow_nan) luaL_error(e->L, "json: %s is no JSON number", isnan(x) ? "nan" : "inf");
    put_text(e, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
}

static void put_number(encoder *e, double x)
{
    char text[32];
    if (!isfinite(x)) {
        put_special(e, x);
    } else if (x == 0 && signbit(x)) {
        put_text(e, "-0.0");
    } else if (x == floor(x) && fabs(x) < 9007199254740992.0) {
        snprintf(text, sizeof text, "%.0f", x);
        put_text(e, text);
    } else {
        put_text(e, tpl_json_shortest(x).s);
    }
}

/* {value = x} at the top of the stack */
static void put_real(encoder *e)
{
    lua_pushliteral(e->L, "value");
    lua_rawget(e->L, -2);
    double x = luaL_checknumber(e->L, -1);
    lua_pop(e->L, 1);
    if (isfinite(x))
        put_text(e, tpl_json_pyrepr(x).s);
    else
        put_special(e, x);
}

static void put_value(encoder *e);

typedef enum shape { SHAPE_ARRAY, SHAPE_OBJECT, SHAPE_PLAIN_OBJECT, SHAPE_REAL } shape;

/* Entries of the table on top. */
static size_t count_entries(lua_State *L)
{
    size_t n = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) n++;
    return n;
}

static shape shape_by_metatable(lua_State *L, bool *known)
{
    shape s = SHAPE_PLAIN_OBJECT;
    const char *name;
    *known = false;
    if (!lua_getmetatable(L, -1)) return s;
    lua_pushliteral(L, "__name");
    if (lua_istable(L, -2)) lua_rawget(L, -2);
    name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    *known = true;
    if (!strcmp(name, "json.object"))
        s = SHAPE_OBJECT;
    else if (!strcmp(name, "json.array"))
        s = SHAPE_ARRAY;
    else if (!strcmp(name, "json.real"))
        s = SHAPE_REAL;
    else
        *known = false;
    lua_pop(L, 2);
    return s;
}

static shape shape_of(lua_State *L)
{
    bool known;
    shape s = shape_by_metatable(L, &known);
    if (known) return s;
    size_t n = lua_objlen(L, -1);
    return n > 0 && count_entries(L) == n ? SHAPE_ARRAY : SHAPE_PLAIN_OBJECT;
}

static void begin(encoder *e, const char *bracket)
{
    if (++e->depth > MAX_ENCODE_DEPTH)
        luaL_error(e->L, "json: nested more than %d levels deep, or a cycle", MAX_ENCODE_DEPTH);
    luaL_checkstack(e->L, 8, "json: nested too deep");
    put(e, bracket, 1);
}

static void end(encoder *e, const char *bracket, bool is_empty)
{
    e->depth--;
    if (!is_empty) put_newline(e);
    put(e, bracket, 1);
}

static void put_array(encoder *e)
{
    size_t n = lua_objlen(e->L, -1);
    begin(e, "[");
    for (size_t i = 1; i <= n; i++) {
        if (i > 1) put(e, e->item, e->item_len);
        put_newline(e);
        lua_rawgeti(e->L, -1, (int)i);
        put_value(e);
        lua_pop(e->L, 1);
    }
    end(e, "]", n == 0);
}

static int by_bytes(const void *a, const void *b)
{
    const tpl_str *x = a, *y = b;
    int c = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* Sorts list[from..n] on top of the stack. The strings stay alive through the object that has them as keys.
 */
static void sort_keys(lua_State *L, int from, int n)
{
    if (n <= from) return;
    tpl_str *s = lua_newuserdata(L, (size_t)(n - from + 1) * sizeof *s);
    for (int i = from; i <= n; i++) {
        lua_rawgeti(L, -2, i);
        s[i - from].s = lua_tolstring(L, -1, &s[i - from].len);
        lua_pop(L, 1);
    }
    qsort(s, (size_t)(n - from + 1), sizeof *s, by_bytes);
    for (int i = from; i <= n; i++) {
        lua_pushlstring(L, s[i - from].s, s[i - from].len);
        lua_rawseti(L, -3, i);
    }
    lua_pop(L, 1);
}

/* Appends to the list on top the keys of `object` that are not in the set at `known` (0: no set). Returns the
 * new length. */
static int push_plain_keys(lua_State *L, int object, int known, int n)
{
    int list = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, object); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "json: an object's key is a %s, expected a string",
                       lua_typename(L, lua_type(L, -2)));
        if (known) {
            lua_pushvalue(L, -2);
            lua_rawget(L, known);
            bool seen = lua_toboolean(L, -1);
            lua_pop(L, 1);
            if (seen) continue;
        }
        lua_pushvalue(L, -2);
        lua_rawseti(L, list, ++n);
    }
    return n;
}

/* From the metatable's `keys` on top: leaves the list of those that have a value and a set of them. Returns
 * the length. */
static int push_known_keys(lua_State *L, int object)
{
    int keys = lua_gettop(L), n = 0, n_keys = (int)lua_objlen(L, keys);
    lua_createtable(L, n_keys, 0);
    lua_createtable(L, 0, n_keys);
    for (int i = 1; i <= n_keys; i++) {
        lua_rawgeti(L, keys, i);
        lua_pushvalue(L, -1);
        lua_rawget(L, object);
        bool is_set = !lua_isnil(L, -1);
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_rawget(L, -3);
        bool seen = lua_toboolean(L, -1);
        lua_pop(L, 1);
        if (is_set && !seen) {
            lua_pushvalue(L, -1);
            lua_rawseti(L, -4, ++n);
            lua_pushboolean(L, 1);
            lua_rawset(L, -3);
        } else {
            lua_pop(L, 1);
        }
    }
    return n;
}

/* Pushes the list of keys in the order in which they are written; returns how many. */
static int push_keys(encoder *e, shape s)
{
    lua_State *L = e->L;
    int object = lua_gettop(L), n = 0, n_known = 0;
    if (s == SHAPE_OBJECT && lua_getmetatable(L, object)) {
        lua_pushliteral(L, "keys");
        lua_rawget(L, -2);
        lua_remove(L, -2);
        if (lua_istable(L, -1)) {
            n_known = push_known_keys(L, object);
            lua_pushvalue(L, -2); /* keys, list, set, list */
            n = push_plain_keys(L, object, lua_gettop(L) - 1, n_known);
        } else {
            lua_newtable(L);
            n = push_plain_keys(L, object, 0, 0);
        }
        lua_replace(L, object + 1);
        lua_settop(L, object + 1);
    } else {
        lua_newtable(L);
        n = push_plain_keys(L, object, 0, 0);
    }
    sort_keys(L, e->sort ? 1 : n_known + 1, n);
    return n;
}

static void put_object(encoder *e, shape s)
{
    lua_State *L = e->L;
    int object = lua_gettop(L);
    begin(e, "{");
    int n = push_keys(e, s);
    for (int i = 1; i <= n; i++) {
        size_t len;
        if (i > 1) put(e, e->item, e->item_len);
        put_newline(e);
        lua_rawgeti(L, object + 1, i);
        const char *key = lua_tolstring(L, -1, &len);
        put_string(e, key, len);
        put(e, e->pair, e->pair_len);
        lua_rawget(L, object);
        put_value(e);
        lua_pop(L, 1);
    }
    lua_settop(L, object);
    end(e, "}", n == 0);
}

static void put_table(encoder *e)
{
    shape s = shape_of(e->L);
    if (s == SHAPE_REAL)
        put_real(e);
    else if (s == SHAPE_ARRAY)
        put_array(e);
    else
        put_object(e, s);
}

/* The value on top of the stack, which stays there. */
static void put_value(encoder *e)
{
    lua_State *L = e->L;
    size_t len;
    const char *s;
    switch (lua_type(L, -1)) {
    case LUA_TNIL: put_text(e, "null"); break;
    case LUA_TBOOLEAN: put_text(e, lua_toboolean(L, -1) ? "true" : "false"); break;
    case LUA_TNUMBER: put_number(e, lua_tonumber(L, -1)); break;
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, &len);
        put_string(e, s, len);
        break;
    case LUA_TTABLE: put_table(e); break;
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(L, -1) == NULL) {
            put_text(e, "null");
            break;
        }
        /* fall through */
    default: luaL_error(L, "json: cannot encode a %s", luaL_typename(L, -1));
    }
}

/* indent: a number of spaces, or the text of one level. Pushes what it points to. */
static void read_indent(encoder *e)
{
    lua_State *L = e->L;
    lua_getfield(L, 2, "indent");
    if (lua_isnil(L, -1)) return;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        int n = (int)lua_tointeger(L, -1);
        if (n < 0 || n > 64) luaL_error(L, "json: indent is %d, expected 0 to 64", n);
        char spaces[64];
        memset(spaces, ' ', sizeof spaces);
        lua_pushlstring(L, spaces, (size_t)n);
    }
    e->indent = luaL_checklstring(L, -1, &e->indent_len);
    e->item = ","; /* as Python does when it indents */
    e->item_len = 1;
}

static void read_separators(encoder *e)
{
    lua_State *L = e->L;
    lua_getfield(L, 2, "separators");
    if (lua_isnil(L, -1)) return;
    luaL_checktype(L, -1, LUA_TTABLE);
    int at = lua_gettop(L);
    lua_rawgeti(L, at, 1);
    lua_rawgeti(L, at, 2);
    e->item = luaL_checklstring(L, at + 1, &e->item_len);
    e->pair = luaL_checklstring(L, at + 2, &e->pair_len);
}

static bool flag(lua_State *L, const char *name)
{
    lua_getfield(L, 2, name);
    bool on = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return on;
}

int tpl_json_encode(lua_State *L)
{
    static const char *const options[] = { "indent",       "separators", "sort_keys",
                                           "ensure_ascii", "allow_nan",  NULL };
    encoder e = { .L = L, .item = ", ", .item_len = 2, .pair = ": ", .pair_len = 2 };
    luaL_checkany(L, 1);
    lua_settop(L, 2);
    tpl_check_options(L, 2, options);
    if (lua_istable(L, 2)) {
        read_indent(&e); /* what these leave on the stack keeps their texts alive */
        read_separators(&e);
        e.sort = flag(L, "sort_keys");
        e.ascii = flag(L, "ensure_ascii");
        e.allow_nan = flag(L, "allow_nan");
    }
    e.out = tpl_text_new(L);
    int box = lua_gettop(L);
    lua_pushvalue(L, 1);
    put_value(&e);
    lua_pushlstring(L, e.out->s, e.out->len);
    luaL_callmeta(L, box, "__gc");
    lua_settop(L, box + 2);
    return 1;
}
