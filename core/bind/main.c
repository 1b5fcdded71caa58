/* SPDX-License-Identifier: Apache-2.0
 *
 * The tpl program: starts LuaJIT with tpl.core built in, finds the lua/ tree beside the binary (build/tpl -> lua/) or where it was
 * installed (bin/tpl -> share/lua/5.1), and hands the arguments to tpl.cli.main, whose result is the exit code. An interrupt ends the
 * process at once with 130: nothing on disk is ever left half written (sys.write_file renames), so there is nothing to tidy up.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#ifndef TPL_COMMIT
#define TPL_COMMIT "unknown"
#endif

int luaopen_tpl_core(lua_State *L);

/* Folders that may hold tpl/init.lua, relative to the folder of the binary, nearest first. */
static const char *const lua_trees[] = { "../lua", "../share/lua/5.1", "../../lua" };

static void on_interrupt(int signal)
{
    (void)signal;
    _exit(130);
}

/* The folder of the running binary, links resolved; 0 when the system does not say. */
static int own_folder(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0) return 0;
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (!slash) return 0;
    *slash = 0;
    return 1;
}

/* Writes the Lua tree's folder to out; 0 when there is none. */
static int find_lua(char *out)
{
    char folder[PATH_MAX], probe[PATH_MAX];
    if (!own_folder(folder, sizeof folder)) return 0;
    for (size_t i = 0; i < sizeof lua_trees / sizeof *lua_trees; i++) {
        int n = snprintf(probe, sizeof probe, "%s/%s/tpl/init.lua", folder, lua_trees[i]);
        if (n < 0 || (size_t)n >= sizeof probe || access(probe, R_OK)) continue;
        probe[n - (int)strlen("/tpl/init.lua")] = 0;
        return realpath(probe, out) != NULL;
    }
    return 0;
}

/* Puts the tree first on package.path, so that another tpl on LUA_PATH is never mixed in. */
static void set_path(lua_State *L, const char *tree)
{
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "path");
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", tree, tree, lua_tostring(L, -1));
    lua_setfield(L, -3, "path");
    lua_pop(L, 1);
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_tpl_core);
    lua_setfield(L, -2, "tpl.core");
    lua_pop(L, 2);
}

/* Makes require("tpl.build") say what this build is. */
static void set_build(lua_State *L)
{
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaded");
    lua_newtable(L);
    lua_pushliteral(L, TPL_COMMIT);
    lua_setfield(L, -2, "commit");
    lua_setfield(L, -2, "tpl.build");
    lua_pop(L, 2);
}

static int add_traceback(lua_State *L)
{
    const char *text = lua_tostring(L, 1);
    luaL_traceback(L, L, text ? text : "error without a text", 1);
    return 1;
}

/* Calls require("tpl.cli.main").main{arguments} and gives its exit code. */
static int run(lua_State *L, int argc, char **argv)
{
    lua_pushcfunction(L, add_traceback);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "tpl.cli.main");
    if (lua_pcall(L, 1, 1, 1)) goto failed;
    lua_getfield(L, -1, "main");
    lua_createtable(L, argc > 0 ? argc - 1 : 0, 1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i);
    }
    if (lua_pcall(L, 1, 1, 1)) goto failed;
    return (int)lua_tointeger(L, -1);
failed:
    fprintf(stderr, "tpl: %s\n", lua_tostring(L, -1));
    return 1;
}

int main(int argc, char **argv)
{
    char tree[PATH_MAX];
    struct sigaction interrupt = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &interrupt, NULL);
    if (!find_lua(tree)) {
        fprintf(stderr, "tpl: the Lua files are missing: no tpl/init.lua in ../lua or ../share/lua/5.1 beside the binary\n");
        return 1;
    }
    lua_State *L = luaL_newstate();
    if (!L) {
        fprintf(stderr, "tpl: out of memory\n");
        return 1;
    }
    luaL_openlibs(L);
    set_path(L, tree);
    set_build(L);
    int code = run(L, argc, argv);
    lua_close(L);
    return code;
}
