/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.engine: a running deployment for Lua. Ranks, stages and token positions count from 0.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "bind/engine_box.h"

static void close_engine(void *obj)
{
    tpl_engine_box *b = obj;
    tpl_engine_close(b->engine);
    tpl_sched_free(b->sched);
    for (int i = 0; b->programs && i < b->n_stages; i++) tpl_program_free(b->programs[i]);
    for (tpl_row_sink *s = b->sinks, *next; s; s = next) {
        next = s->next;
        tpl_sink_free(s);
    }
    tpl_taps_free(b);
    pthread_mutex_destroy(&b->tap_lock);
    free(b->programs);
    free(b->eog);
    free(b);
}

/* -- Opening ---- */

typedef struct progress_ctx {
    lua_State *L;
    int function; /* stack index */
} progress_ctx;

/* Errors of the callback are dropped: it only draws. Raises nothing itself (no memory is taken outside pcall), so
 * that no loader is left behind. */
static void on_progress(void *ctx, int rank, uint64_t bytes, uint64_t total)
{
    progress_ctx *p = ctx;
    lua_pushvalue(p->L, p->function);
    lua_pushinteger(p->L, rank);
    lua_pushnumber(p->L, (double)bytes);
    lua_pushnumber(p->L, (double)total);
    if (lua_pcall(p->L, 3, 0, 0)) lua_pop(p->L, 1);
}

static tpl_status parse_programs(lua_State *L, tpl_engine_box *b, tpl_err *err)
{
    lua_getfield(L, 1, "programs");
    int n = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    tpl_status st = n ? TPL_OK : tpl_fail(err, TPL_ERR_ARG, 0, "programs", "no program is given");
    b->programs = calloc((size_t)n + 1, sizeof *b->programs);
    if (!st && !b->programs) st = tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    for (; !st && b->n_stages < n; b->n_stages++) {
        size_t len;
        lua_rawgeti(L, -1, b->n_stages + 1);
        const char *text = lua_tolstring(L, -1, &len);
        st = text ? tpl_program_parse(&b->programs[b->n_stages], text, len, err)
                  : tpl_fail(err, TPL_ERR_ARG, 0, "programs", "a program is no text");
        lua_pop(L, 1);
        if (st) break;
    }
    lua_pop(L, 1);
    return st;
}

static uint32_t opt_cap(lua_State *L, int index, const char *key, uint32_t otherwise)
{
    return (uint32_t)tpl_opt_whole(L, index, key, 0, UINT32_MAX, otherwise);
}

static void read_caps(lua_State *L, tpl_engine_box *b)
{
    lua_getfield(L, 1, "caps");
    int at = lua_gettop(L);
    const tpl_step_caps *p = &b->programs[0]->caps;
    luaL_checktype(L, at, LUA_TTABLE);
    b->caps = (tpl_step_caps){ .tok = p->tok,
                               .seq = p->seq,
                               .out = p->out,
                               .vocab = p->vocab,
                               .pages = opt_cap(L, at, "pages", 1),
                               .pool = opt_cap(L, at, "pool", 1),
                               .logit_rows = opt_cap(L, at, "logit_rows", 1),
                               .top = opt_cap(L, at, "top", 20) };
    lua_pop(L, 1);
}

enum { MAX_CPUS = 65536 };

/* ranks={{cpus="0-3", numa=0}, ..}: one for each rank, both may be absent. Places and cores lie in one userdata, which
 * stays on the stack: nothing is lost when Lua raises. NULL without the field. */
static tpl_place *read_places(lua_State *L, int *n, tpl_err *err)
{
    lua_getfield(L, 1, "ranks");
    *n = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    if (!*n) return NULL;
    int at = lua_gettop(L), n_cpus = 0;
    tpl_place *places = lua_newuserdata(L, (size_t)*n * sizeof *places);
    for (int k = 0; k < *n; k++) {
        lua_rawgeti(L, at, k + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        const char *cpus = tpl_opt_string(L, -1, "cpus", "");
        int count = *cpus ? tpl_cpu_parse(cpus, NULL, 0) : 0;
        places[k] = (tpl_place){ .n_cpus = count, .numa = (int)tpl_opt_whole(L, lua_gettop(L), "numa", -1, 65535, -1) };
        if (count < 0 || count > MAX_CPUS - n_cpus) {
            tpl_fail(err, TPL_ERR_ARG, 0, "ranks", "rank %d: '%s' is no list of cores", k, cpus);
            return NULL;
        }
        n_cpus += count;
        lua_pop(L, 1);
    }
    int *cpus = lua_newuserdata(L, ((size_t)n_cpus + 1) * sizeof *cpus);
    for (int k = 0; k < *n; cpus += places[k++].n_cpus) {
        lua_rawgeti(L, at, k + 1);
        places[k].cpus = places[k].n_cpus ? cpus : NULL;
        if (places[k].n_cpus) tpl_cpu_parse(tpl_opt_string(L, -1, "cpus", ""), cpus, places[k].n_cpus);
        lua_pop(L, 1);
    }
    return places;
}

static tpl_status open_engine(lua_State *L, tpl_engine_box *b, const tpl_checkpoint *cp, tpl_err *err)
{
    int isa = tpl_isa_find(tpl_opt_string(L, 1, "isa", "portable")),
        kv = tpl_dtype_find(tpl_opt_string(L, 1, "kv_dtype", "f32"));
    if (isa < 0 || !tpl_isa_usable((tpl_isa)isa))
        return tpl_fail(err, TPL_ERR_ARG, 0, "TPL_ISA", "this machine or build lacks '%s'",
                        tpl_opt_string(L, 1, "isa", ""));
    if (kv != TPL_DTYPE_F32 && kv != TPL_DTYPE_F16)
        return tpl_fail(err, TPL_ERR_ARG, 0, "kv.dtype", "'%s' is not f32 or f16",
                        tpl_opt_string(L, 1, "kv_dtype", ""));
    int n_places;
    tpl_place *places = read_places(L, &n_places, err);
    if (err->code) return err->code;
    progress_ctx p = { L, 0 };
    lua_getfield(L, 1, "progress");
    p.function = lua_gettop(L);
    tpl_engine_desc d = { .programs = b->programs,
                          .n_stages = b->n_stages,
                          .checkpoint = cp,
                          .threads = (int)tpl_opt_whole(L, 1, "threads", 1, 1024, 1),
                          .places = places,
                          .n_places = n_places,
                          .isa = (tpl_isa)isa,
                          .kv_dtype = (tpl_dtype)kv,
                          .kv_page = (int32_t)tpl_opt_whole(L, 1, "kv_page", 1, INT32_MAX, 16),
                          .kv_pages = tpl_opt_whole(L, 1, "kv_pages", 1, UINT32_MAX, 1),
                          .caps = b->caps,
                          .stall_s = tpl_opt_number(L, 1, "stall_s", 0) };
    if (lua_isfunction(L, p.function)) d.progress = on_progress, d.progress_ctx = &p;
    TPL_TRY(tpl_fault_parse(&d.fault, tpl_opt_string(L, 1, "fault", NULL), err));
    return tpl_engine_open(&b->engine, &d, err);
}

/* open{programs=, checkpoint=, threads=, ranks=, isa=, kv_dtype=, kv_page=, kv_pages=, caps=, fault=, stall_s=, progress=,
 * sched=} */
static int engine_open(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "checkpoint");
    const tpl_checkpoint *cp = tpl_box_get(L, -1, &tpl_checkpoint_class);
    void **box = tpl_box_new(L, &tpl_engine_class);
    int box_at = lua_gettop(L);
    tpl_engine_box *b = calloc(1, sizeof *b);
    if (!b) return luaL_error(L, "out of memory");
    pthread_mutex_init(&b->tap_lock, NULL);
    b->last_tap = &b->taps;
    *box = b; /* owned from here; closing copes with a half-open box */
    tpl_err err = { 0 };
    if (parse_programs(L, b, &err)) return tpl_push_err(L, &err);
    read_caps(L, b);
    if (open_engine(L, b, cp, &err)) return tpl_push_err(L, &err);
    if (tpl_box_open_sched(L, 1, b, &err)) return tpl_push_err(L, &err);
    lua_pushvalue(L, box_at);
    return 1;
}

/* -- Figures ---- */

static int engine_stats(lua_State *L)
{
    const tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    tpl_engine_stats s;
    tpl_sched_stats q;
    tpl_engine_get_stats(b->engine, &s);
    tpl_sched_get_stats(b->sched, &q);
    lua_createtable(L, 0, 16);
    tpl_set_number(L, "steps", (double)s.steps);
    tpl_set_number(L, "read_bytes", (double)s.read_bytes);
    tpl_set_number(L, "weight_bytes", (double)s.weight_bytes);
    tpl_set_number(L, "allocs", (double)s.allocs);
    tpl_set_number(L, "barriers", (double)s.barriers);
    tpl_set_number(L, "load_us", (double)s.load_us);
    tpl_set_number(L, "n_ranks", s.n_ranks);
    tpl_set_number(L, "n_threads", s.n_threads);
    tpl_set_number(L, "prompt_tokens", (double)q.prompt_tokens);
    tpl_set_number(L, "output_tokens", (double)q.output_tokens);
    tpl_set_number(L, "pages_total", q.pages_total);
    tpl_set_number(L, "pages_left", q.pages_left);
    tpl_set_number(L, "rss_peak_bytes", (double)tpl_mem_rss_peak_bytes());
    lua_createtable(L, s.n_ranks, 0);
    for (int r = 0; r < s.n_ranks; r++) {
        uint64_t weights, read;
        tpl_engine_rank_stats(b->engine, r, &weights, &read);
        lua_createtable(L, 0, 3);
        tpl_set_number(L, "weight_bytes", (double)weights);
        tpl_set_number(L, "read_bytes", (double)read);
        lua_pushboolean(L, tpl_engine_is_pinned(b->engine, r));
        lua_setfield(L, -2, "is_pinned");
        lua_rawseti(L, -2, r + 1);
    }
    lua_setfield(L, -2, "ranks");
    return 1;
}

/* numa_error() -> why memory could not be bound to a rank's node, and whether it is a matter of permission; nil when all is bound or none was to be */
static int engine_numa_error(lua_State *L)
{
    const tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    int sys = tpl_engine_numa_error(b->engine);
    if (!sys) return 0;
    lua_pushstring(L, strerror(sys));
    lua_pushboolean(L, sys == EPERM || sys == EACCES);
    return 2;
}

/* variants(): op name -> kernel variant, of rank 0 */
static int engine_variants(lua_State *L)
{
    const tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    lua_createtable(L, 0, b->programs[0]->n_ops);
    for (int i = 0; i < b->programs[0]->n_ops; i++) {
        lua_pushstring(L, tpl_engine_variant(b->engine, 0, i));
        lua_setfield(L, -2, b->programs[0]->ops[i].name);
    }
    return 1;
}

/* fault_hits(): how many places, ops and weights over all ranks, the planted fault acts on; 0 when none is planted */
static int engine_fault_hits(lua_State *L)
{
    const tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    lua_pushinteger(L, tpl_engine_fault_hits(b->engine));
    return 1;
}

/* roundtrip(text): parses a program and prints it again */
static int engine_roundtrip(lua_State *L)
{
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    tpl_text *t = tpl_text_new(L);
    tpl_program *p;
    tpl_err err = { 0 };
    if (tpl_program_parse(&p, text, len, &err)) return tpl_push_err(L, &err);
    t->s = tpl_program_print(p);
    tpl_program_free(p);
    if (!t->s) return luaL_error(L, "out of memory");
    lua_pushstring(L, t->s);
    return 1;
}

/* step_bytes{tok=, seq=, out=, pages=, pool=, logit_rows=, vocab=, top=}: bytes of a step slot */
static int engine_step_bytes(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    tpl_step_caps c = { .tok = opt_cap(L, 1, "tok", 0),
                        .seq = opt_cap(L, 1, "seq", 0),
                        .out = opt_cap(L, 1, "out", 0),
                        .pages = opt_cap(L, 1, "pages", 0),
                        .pool = opt_cap(L, 1, "pool", 0),
                        .logit_rows = opt_cap(L, 1, "logit_rows", 0),
                        .vocab = opt_cap(L, 1, "vocab", 0),
                        .top = opt_cap(L, 1, "top", 0) };
    lua_pushnumber(L, (double)tpl_step_bytes(&c));
    return 1;
}

static const luaL_Reg methods[] = { { "stats", engine_stats },
                                    { "numa_error", engine_numa_error },
                                    { "variants", engine_variants },
                                    { "add", tpl_engine_add },
                                    { "pump", tpl_engine_pump },
                                    { "cancel", tpl_engine_cancel },
                                    { "idle", tpl_engine_idle },
                                    { "take_rows", tpl_engine_take_rows },
                                    { "drop_rows", tpl_engine_drop_rows },
                                    { "fault_hits", engine_fault_hits },
                                    { "tap_begin", tpl_engine_tap_begin },
                                    { "tap_end", tpl_engine_tap_end },
                                    { NULL, NULL } };
const tpl_class tpl_engine_class = { "tpl.engine", close_engine, methods };

int tpl_open_engine(lua_State *L)
{
    static const luaL_Reg functions[] = { { "open", engine_open },
                                          { "roundtrip", engine_roundtrip },
                                          { "step_bytes", engine_step_bytes },
                                          { "product_error", tpl_engine_product_error },
                                          { NULL, NULL } };
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    return 1;
}
