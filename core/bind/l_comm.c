/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.comm: transports, and what they cost on this machine. Blocks the calling thread while it measures.
 */
#include "base/thread.h"
#include "bind/bind.h"
#include "comm/comm.h"
#include "comm/pair.h"
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

/* Field `name` of the options, {cpus="0-3", numa=0}. The cores lie in a userdata that stays on the stack. */
static tpl_pair_side side(lua_State *L, const char *name)
{
    static const char *const names[] = { "cpus", "numa", NULL };
    lua_getfield(L, 1, name);
    int at = lua_gettop(L);
    luaL_checktype(L, at, LUA_TTABLE);
    tpl_check_options(L, at, names);
    const char *cpus = tpl_opt_string(L, at, "cpus", "");
    int n = tpl_cpu_parse(cpus, NULL, 0);
    if (n < 1) luaL_error(L, "%s.cpus: '%s' is no list of cores", name, cpus);
    int *list = lua_newuserdata(L, (size_t)n * sizeof *list);
    tpl_cpu_parse(cpus, list, n);
    return (tpl_pair_side){ list, n, (int)tpl_opt_whole(L, at, "numa", -1, 65535, -1) };
}

/* time_pair{a={cpus=, numa=}, b={cpus=, numa=}, bytes=33554432, iters=2000} -> {gb_s, us, data_ok, threads}: a's data copied by b, and a word one way */
static int comm_time_pair(lua_State *L)
{
    static const char *const names[] = { "a", "b", "bytes", "iters", "spoil", NULL };
    tpl_pair_timing t;
    tpl_err err = { 0 };
    luaL_checktype(L, 1, LUA_TTABLE);
    tpl_check_options(L, 1, names);
    tpl_pair_desc d = { .a = side(L, "a"),
                        .b = side(L, "b"),
                        .bytes = (size_t)tpl_opt_whole(L, 1, "bytes", 0, (int64_t)1 << 40, 32 << 20),
                        .iters = (int)tpl_opt_whole(L, 1, "iters", 0, INT32_MAX, 2000),
                        .spoil = (int)tpl_opt_whole(L, 1, "spoil", 0, 7, 0) };
    if (tpl_pair_time(&t, &d, &err)) return tpl_push_err(L, &err);
    lua_createtable(L, 0, 4);
    tpl_set_number(L, "gb_s", t.gb_s);
    tpl_set_number(L, "us", t.us);
    tpl_set_number(L, "threads", t.threads);
    lua_pushboolean(L, t.data_ok);
    lua_setfield(L, -2, "data_ok");
    return 1;
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
        { "time_pair", comm_time_pair },
        { "transports", comm_transports },
        { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
