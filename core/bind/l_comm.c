/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.comm: transports, and what they cost on this machine. Blocks the calling thread while it measures.
 */
#include "bind/bind.h"
#include "comm/comm.h"
#include "comm/timing.h"

int tpl_open_comm(lua_State *L);

static lua_Integer option(lua_State *L, const char *name, lua_Integer otherwise)
{
    lua_getfield(L, 1, name);
    lua_Integer v = lua_isnil(L, -1) ? otherwise : luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return v;
}

static int time_with(lua_State *L, tpl_timing_desc d)
{
    tpl_timing t;
    tpl_err err = { 0 };
    if (tpl_comm_time(&t, &d, &err)) return tpl_push_err(L, &err);
    lua_createtable(L, 0, 4);
    tpl_set_number(L, "us", t.us);
    tpl_set_number(L, "us_min", t.us_min);
    tpl_set_number(L, "us_max", t.us_max);
    lua_pushboolean(L, t.checked);
    lua_setfield(L, -2, "checked");
    return 1;
}

/* time_all_reduce{ranks=2, threads=1, bytes=4096, iters=1000} -> {us, us_min, us_max, checked}: one call,
 * median, least and most of 7 batches */
static int comm_time_all_reduce(lua_State *L)
{
    static const char *const names[] = { "ranks", "threads", "bytes", "iters", NULL };
    luaL_checktype(L, 1, LUA_TTABLE);
    tpl_check_options(L, 1, names);
    lua_Integer bytes = option(L, "bytes", 4096);
    luaL_argcheck(L, bytes > 0, 1, "bytes must be positive");
    return time_with(L, (tpl_timing_desc){ .ranks = (int)option(L, "ranks", 2),
                                           .threads = (int)option(L, "threads", 1),
                                           .iters = (int)option(L, "iters", 1000),
                                           .bytes = (size_t)bytes });
}

/* time_barrier{ranks=1, threads=2, iters=1000} -> the same for one barrier of all threads */
static int comm_time_barrier(lua_State *L)
{
    static const char *const names[] = { "ranks", "threads", "iters", NULL };
    luaL_checktype(L, 1, LUA_TTABLE);
    tpl_check_options(L, 1, names);
    return time_with(L, (tpl_timing_desc){ .ranks = (int)option(L, "ranks", 1),
                                           .threads = (int)option(L, "threads", 2),
                                           .iters = (int)option(L, "iters", 1000) });
}

/* transports() -> list of names */
static int comm_transports(lua_State *L)
{
    const char *const *names = tpl_comm_transports();
    lua_newtable(L);
    for (int i = 0; names[i]; i++) {
        lua_pushstring(L, names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

int tpl_open_comm(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "time_all_reduce", comm_time_all_reduce },
        { "time_barrier", comm_time_barrier },
        { "transports", comm_transports },
        { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
