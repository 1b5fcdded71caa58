/* SPDX-License-Identifier: Apache-2.0
 *
 * One Lua state with the parts of tpl.core that read files, for the targets whose reader is Lua. All its memory comes from realloc, so
 * that the sanitizer's bounds hold for it too, and is capped. The JIT compiler is off: compiled code calls no hooks, and the hook below
 * tells libFuzzer which lines of Lua an input reached, as its own instrumentation does for C.
 */
#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "target.h"

int tpl_open_tokenizer(lua_State *L);
int tpl_open_sys(lua_State *L);
int tpl_open_yaml(lua_State *L);
int tpl_open_xml(lua_State *L);

#define MOST_LUA_BYTES ((size_t)256 << 20)

#ifdef TPL_FUZZ_LINES
/* libFuzzer reads this section as further coverage counters. */
enum { N_LINES = 1 << 16 };
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t lines[N_LINES];

/* A step from one line to another; asking for the file of the line as well would cost more than the step. */
static void on_line(lua_State *L, lua_Debug *ar)
{
    static uint32_t before;
    uint32_t line = (uint32_t)ar->currentline, at = (before * 0x9E3779B1u ^ line * 0x85EBCA6Bu);
    at = (at ^ at >> 15) % N_LINES;
    before = line;
    if (lines[at] < 255) lines[at]++;
}
#endif

static size_t in_use;

static void *allocate(void *ud, void *p, size_t was, size_t n)
{
    if (!n) {
        free(p);
        in_use -= p ? was : 0;
        return NULL;
    }
    if (n > (p ? was : 0) && in_use + n > MOST_LUA_BYTES) return NULL;
    void *q = realloc(p, n);
    if (q) in_use += n - (p ? was : 0);
    return q;
}

static int open_core(lua_State *L)
{
    static const struct {
        const char *name;
        int (*open)(lua_State *L);
    } parts[] = { { "json", tpl_open_json }, { "checkpoint", tpl_open_checkpoint }, { "tokenizer", tpl_open_tokenizer }, { "sys", tpl_open_sys },
                { "yaml", tpl_open_yaml },      { "xml", tpl_open_xml } };
    lua_newtable(L);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        parts[i].open(L);
        lua_setfield(L, -2, parts[i].name);
    }
    return 1;
}

static void run_file(lua_State *L, const char *path)
{
    if (luaL_loadfile(L, path) || lua_pcall(L, 0, 1, 0)) tpl_broken("%s", lua_tostring(L, -1));
    lua_setglobal(L, "targets");
}

static lua_State *state(void)
{
    static lua_State *L;
    if (L) return L;
    L = lua_newstate(allocate, NULL);
    if (!L) tpl_broken("no Lua state: this LuaJIT takes no allocator");
    luaL_openlibs(L);
    luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
    lua_getglobal(L, "package");
    lua_pushstring(L, TPL_SOURCE_DIR "/lua/?.lua;" TPL_SOURCE_DIR "/lua/?/init.lua");
    lua_setfield(L, -2, "path");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, open_core);
    lua_setfield(L, -2, "tpl.core");
    lua_pop(L, 2);
    run_file(L, TPL_SOURCE_DIR "/spec/fuzz/targets.lua");
#ifdef TPL_FUZZ_LINES
    lua_sethook(L, on_line, LUA_MASKLINE, 0);
#endif
    return L;
}

void tpl_lua_collect(void)
{
    lua_settop(state(), 0);
    lua_gc(state(), LUA_GCCOLLECT, 0);
    lua_gc(state(), LUA_GCCOLLECT, 0); /* what finalizers let go */
}

static void copy(lua_State *L, int index, char *out, size_t size)
{
    const char *s = lua_tostring(L, index);
    strncpy(out, s ? s : "", size - 1);
    out[size - 1] = 0;
}

/* The Lua function gives nothing, or a status, a message, a place and a hint; it raises what is a fault of ours. */
tpl_status tpl_lua_target(const char *function, const void *data, size_t n, tpl_err *err)
{
    lua_State *L = state();
    char where[sizeof err->where], msg[sizeof err->msg], hint[sizeof err->hint];
    lua_settop(L, 0);
    lua_getglobal(L, "targets");
    lua_getfield(L, -1, function);
    lua_pushlstring(L, data, n);
    if (lua_pcall(L, 1, 4, 0)) tpl_broken("targets.%s: %s", function, lua_tostring(L, -1));
    const char *status = lua_tostring(L, 2);
    tpl_status st = !status ? TPL_OK : !strcmp(status, "unsupported") ? TPL_ERR_UNSUPPORTED : TPL_ERR_FORMAT;
    if (!st) return TPL_OK;
    copy(L, 3, msg, sizeof msg);
    copy(L, 4, where, sizeof where);
    copy(L, 5, hint, sizeof hint);
    *err = (tpl_err){ 0 };
    tpl_fail(err, st, 0, where, "%s", msg);
    tpl_hint(err, st, "%s", hint);
    lua_settop(L, 0);
    lua_gc(L, LUA_GCSTEP, 200);
    return tpl_check_refusal(err);
}
