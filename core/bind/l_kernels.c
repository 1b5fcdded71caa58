/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.kernels: what the kernels of this build and machine can do, sizes of packed weights, exact
 * expansion of file rows (for specs), and the machine probe. Element types are named as in base/dtype.h. Any
 * lua_State; probe starts threads and blocks until they end.
 */
#include <math.h>

#include "bind/bind.h"
#include "kernels/ops.h"
#include "kernels/pack.h"
#include "kernels/probe.h"

int tpl_open_kernels(lua_State *L);

/* -- ISAs and ops ---- */

/* isa_best() -> name of the set that is used unless told otherwise */
static int kernels_isa_best(lua_State *L)
{
    lua_pushstring(L, tpl_isa_name(tpl_isa_best()));
    return 1;
}

/* isa_usable(name): false also for names that do not exist. */
static int kernels_isa_usable(lua_State *L)
{
    const int isa = tpl_isa_find(luaL_checkstring(L, 1));
    lua_pushboolean(L, isa >= 0 && tpl_isa_usable((tpl_isa)isa));
    return 1;
}

/* isas(): {{name, usable}, ..}, the worst first. */
static int kernels_isas(lua_State *L)
{
    lua_createtable(L, TPL_N_ISAS, 0);
    for (int i = 0; i < TPL_N_ISAS; i++) {
        lua_createtable(L, 0, 2);
        lua_pushstring(L, tpl_isa_name((tpl_isa)i));
        lua_setfield(L, -2, "name");
        lua_pushboolean(L, tpl_isa_usable((tpl_isa)i));
        lua_setfield(L, -2, "usable");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Types that an op's weights (the cache, for the ops that keep state) may have; the rest work on floats. */
static bool op_takes(tpl_op_kind kind, tpl_dtype type)
{
    uint64_t bytes;
    if (kind == TPL_OP_ID_LINEAR || kind == TPL_OP_ID_EMBED) return tpl_pack_bytes(type, 1, 256, &bytes);
    if (tpl_op_infos[kind].flags & TPL_OP_STATE) return type == TPL_DTYPE_F32 || type == TPL_DTYPE_F16;
    return type == TPL_DTYPE_F32;
}

static void push_op(lua_State *L, tpl_op_kind kind)
{
    lua_createtable(L, 0, 4);
    lua_pushstring(L, tpl_op_infos[kind].name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, tpl_backend_cpu()->name);
    lua_setfield(L, -2, "backend");
    lua_newtable(L);
    for (int t = 0, n = 0; t < TPL_N_DTYPES; t++) {
        if (!op_takes(kind, (tpl_dtype)t)) continue;
        lua_pushstring(L, tpl_dtypes[t].name);
        lua_rawseti(L, -2, ++n);
    }
    lua_setfield(L, -2, "dtypes");
    lua_newtable(L);
    for (int i = 0, n = 0; i < TPL_N_ISAS; i++) {
        if (!tpl_isa_usable((tpl_isa)i)) continue;
        lua_pushstring(L, tpl_isa_name((tpl_isa)i));
        lua_rawseti(L, -2, ++n);
    }
    lua_setfield(L, -2, "isa");
}

/* ops(): {{name, backend, dtypes, isa}, ..} of the ops that a backend computes; isa as far as this machine
 * runs them. */
static int kernels_ops(lua_State *L)
{
    lua_newtable(L);
    for (int i = 0, n = 0; i < TPL_N_OPS; i++) {
        if (!(tpl_op_infos[i].flags & TPL_OP_KERNEL)) continue;
        push_op(L, (tpl_op_kind)i);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* -- Sizes and types ---- */

static tpl_dtype check_dtype(lua_State *L, int index)
{
    const int type = tpl_dtype_find(luaL_checkstring(L, index));
    luaL_argcheck(L, type >= 0, index, "no such element type");
    return (tpl_dtype)type;
}

static uint64_t check_count(lua_State *L, int index)
{
    const double n = luaL_checknumber(L, index);
    luaL_argcheck(L, n >= 0 && n <= 0x1p53 && n == floor(n), index, "not a whole number from 0 to 2^53");
    return (uint64_t)n;
}

/* pack_bytes(dtype, rows, cols): bytes of a packed matrix; nil for types that are no weights, partial blocks,
 * and sizes past 2^64. */
static int kernels_pack_bytes(lua_State *L)
{
    uint64_t bytes;
    const tpl_dtype type = check_dtype(L, 1);
    if (!tpl_pack_bytes(type, check_count(L, 2), check_count(L, 3), &bytes)) return lua_pushnil(L), 1;
    lua_pushnumber(L, (double)bytes);
    return 1;
}

/* row_bytes(act, cols): bytes of a row of a value; whole blocks of 32 where the form has blocks. */
static int kernels_row_bytes(lua_State *L)
{
    const int act = tpl_act_find(luaL_checkstring(L, 1));
    const uint64_t cols = check_count(L, 2);
    luaL_argcheck(L, act >= 0, 1, "no such form of rows");
    luaL_argcheck(L, cols <= INT32_MAX && (!tpl_act_in_blocks((tpl_act)act) || cols % 32 == 0), 2,
                  "not a multiple of 32");
    lua_pushnumber(L, (double)tpl_row_bytes((tpl_act)act, (int64_t)cols));
    return 1;
}

/* wants(dtype): in which form act = auto multiplies with such weights: "f32", "bf16" or "q8_bf16". */
static int kernels_wants(lua_State *L)
{
    lua_pushstring(L, tpl_act_names[tpl_backend_cpu()->wants(check_dtype(L, 1))]);
    return 1;
}

/* dequant(dtype, bytes, n): the n elements of a file row as numbers. */
static int kernels_dequant(lua_State *L)
{
    size_t len;
    uint64_t want, one;
    const tpl_dtype type = check_dtype(L, 1);
    const char *bytes = luaL_checklstring(L, 2, &len);
    const uint64_t n = check_count(L, 3);
    luaL_argcheck(L, tpl_pack_bytes(type, 1, 256, &one), 1, "not a weight type");
    luaL_argcheck(L, n <= INT32_MAX && tpl_dtype_row_bytes(type, n, &want) && want == len, 3,
                  "does not fit the bytes");
    float *row = lua_newuserdata(L, (size_t)n * sizeof(float) + 1);
    tpl_dequant_row(type, bytes, (int64_t)n, row);
    lua_createtable(L, (int)n, 0);
    for (int i = 0; i < (int)n; i++) {
        lua_pushnumber(L, row[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* -- Probe ---- */

static double field(lua_State *L, const char *name, double otherwise)
{
    lua_getfield(L, 1, name);
    const double x = luaL_optnumber(L, -1, otherwise);
    lua_pop(L, 1);
    return x;
}

/* probe{threads=, seconds=, bytes=}: {read_gb_s, read_bytes, f32_gflop_s, bf16_gflop_s, i8_gflop_s,
 * barrier_us, isa}; 0 = unknown. */
static int kernels_probe(lua_State *L)
{
    static const char *const names[] = { "threads", "seconds", "bytes", NULL };
    tpl_probe_result r;
    tpl_err err = { 0 };
    luaL_checktype(L, 1, LUA_TTABLE);
    tpl_check_options(L, 1, names);
    const double threads = field(L, "threads", 1), seconds = field(L, "seconds", 1),
                 bytes = field(L, "bytes", 0);
    luaL_argcheck(L, threads >= 1 && threads <= INT32_MAX && bytes >= 0 && bytes <= 0x1p53, 1,
                  "threads or bytes out of range");
    if (tpl_probe_run((int)threads, seconds, (size_t)bytes, &r, &err)) return tpl_push_err(L, &err);
    const struct {
        const char *name;
        double value;
    } fields[] = {
        { "read_gb_s", r.read_gb_s },     { "read_bytes", (double)r.read_bytes },
        { "f32_gflop_s", r.f32_gflop_s }, { "bf16_gflop_s", r.bf16_gflop_s },
        { "i8_gflop_s", r.i8_gflop_s },   { "barrier_us", r.barrier_us },
    };
    lua_createtable(L, 0, 7);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushnumber(L, fields[i].value);
        lua_setfield(L, -2, fields[i].name);
    }
    lua_pushstring(L, r.isa);
    lua_setfield(L, -2, "isa");
    return 1;
}

int tpl_open_kernels(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "isa_best", kernels_isa_best },
        { "isa_usable", kernels_isa_usable },
        { "isas", kernels_isas },
        { "ops", kernels_ops },
        { "pack_bytes", kernels_pack_bytes },
        { "row_bytes", kernels_row_bytes },
        { "wants", kernels_wants },
        { "dequant", kernels_dequant },
        { "probe", kernels_probe },
        { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
