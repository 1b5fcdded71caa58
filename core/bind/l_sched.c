/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests and events of an engine, for Lua, and what becomes of their logit rows.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bind/engine_box.h"
#include "serve/score.h"

/* -- Row sinks ---- */

void tpl_sink_free(tpl_row_sink *s)
{
    if (!s) return;
    if (s->file) fclose(s->file);
    free(s->memory);
    free(s->ids);
    free(s->argmax);
    free(s->logprob);
    free(s->top_id);
    free(s->top_logprob);
    free(s);
}

static void score_row(tpl_row_sink *s, int32_t at, const float *row, int64_t vocab)
{
    s->argmax[at] = tpl_row_argmax(row, vocab);
    if (!s->top_id) return;
    double lse = tpl_row_logsumexp(row, vocab);
    s->logprob[at] = at + 1 < s->n_ids ? (float)((double)row[s->ids[at + 1]] - lse) : NAN;
    tpl_row_top(row, vocab, s->top, s->top_id + (size_t)at * (size_t)s->top, s->top_logprob + (size_t)at * (size_t)s->top);
    for (int i = 0; i < s->top; i++) s->top_logprob[(size_t)at * (size_t)s->top + (size_t)i] -= (float)lse;
}

static void on_rows(void *ctx, void *user, int64_t pos0, int32_t n, const float *rows, int64_t vocab)
{
    tpl_row_sink *s = user;
    (void)ctx;
    if (!s) return;
    if (s->file && fwrite(rows, sizeof *rows, (size_t)n * (size_t)vocab, s->file) != (size_t)n * (size_t)vocab && !s->io_error) s->io_error = errno ? errno : EIO;
    for (int32_t i = 0; i < n && s->n_rows < s->n_ids; i++, s->n_rows++) {
        if (s->memory) memcpy(s->memory + (size_t)s->n_rows * (size_t)vocab, rows + (size_t)i * (size_t)vocab, (size_t)vocab * sizeof *rows);
        score_row(s, s->top_id ? (int32_t)(pos0 + i) : s->n_rows, rows + (size_t)i * (size_t)vocab, vocab);
    }
}

/* sink = {file=path} | {memory=true} | {top=K}, at index; rows = how many will come */
static tpl_status sink_new(lua_State *L, int index, const tpl_engine_box *b, const int32_t *ids, int32_t n_ids, int32_t rows, tpl_row_sink **out, tpl_err *err)
{
    tpl_row_sink *s = calloc(1, sizeof *s);
    *out = s;
    bool ok = s && (s->argmax = calloc((size_t)n_ids, sizeof *s->argmax)) && (s->ids = malloc((size_t)n_ids * sizeof *s->ids));
    if (ok) memcpy(s->ids, ids, (size_t)n_ids * sizeof *ids), s->n_ids = n_ids;
    int top = (int)tpl_opt_number(L, index, "top", -1);
    if (ok && top >= 0) {
        s->top = top;
        ok = (s->logprob = calloc((size_t)n_ids, sizeof *s->logprob)) && (s->top_id = calloc((size_t)n_ids * (size_t)(top + 1), sizeof *s->top_id)) &&
             (s->top_logprob = calloc((size_t)n_ids * (size_t)(top + 1), sizeof *s->top_logprob));
    }
    lua_getfield(L, index, "memory");
    if (ok && lua_toboolean(L, -1)) ok = (s->memory = malloc((size_t)rows * b->caps.vocab * sizeof(float))) != NULL;
    lua_pop(L, 1);
    if (!ok) return tpl_fail(err, TPL_ERR_MEM, 0, "logits", "out of memory");
    const char *path = tpl_opt_string(L, index, "file", NULL);
    if (path && !(s->file = fopen(path, "ab"))) return tpl_fail(err, TPL_ERR_IO, errno, path, "%s", strerror(errno));
    return TPL_OK;
}

/* take_rows(handle) -> {rows=, vocab=, argmax={..}, logprob={..}, top={{{id, logprob}..}..}, data=lightuserdata}; rows in memory live as long as the engine */
int tpl_engine_take_rows(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    int64_t handle = (int64_t)luaL_checknumber(L, 2);
    tpl_row_sink *s = b->sinks;
    while (s && s->handle != handle) s = s->next;
    if (!s) return luaL_error(L, "no rows were asked for by request %d", (int)handle);
    if (s->file) {
        int e = fclose(s->file) ? errno : s->io_error;
        s->file = NULL;
        if (e) {
            tpl_err err = { 0 };
            tpl_fail(&err, TPL_ERR_IO, e, "logits", "writing failed: %s", strerror(e));
            return tpl_push_err(L, &err);
        }
    }
    lua_createtable(L, 0, 6);
    lua_pushinteger(L, s->n_rows);
    lua_setfield(L, -2, "rows");
    lua_pushinteger(L, (lua_Integer)b->caps.vocab);
    lua_setfield(L, -2, "vocab");
    lua_createtable(L, s->n_rows, 0);
    for (int i = 0; i < s->n_rows; i++) lua_pushinteger(L, s->argmax[i]), lua_rawseti(L, -2, i + 1);
    lua_setfield(L, -2, "argmax");
    if (s->memory) {
        lua_pushlightuserdata(L, s->memory);
        lua_setfield(L, -2, "data");
    }
    if (!s->top_id) return 1;
    lua_createtable(L, s->n_rows, 0);
    for (int i = 0; i < s->n_rows; i++) lua_pushnumber(L, s->logprob[i]), lua_rawseti(L, -2, i + 1);
    lua_setfield(L, -2, "logprob");
    lua_createtable(L, s->n_rows, 0);
    for (int i = 0; i < s->n_rows; i++) {
        lua_createtable(L, s->top, 0);
        for (int k = 0; k < s->top; k++) {
            lua_createtable(L, 2, 0);
            lua_pushinteger(L, s->top_id[(size_t)i * (size_t)s->top + (size_t)k]);
            lua_rawseti(L, -2, 1);
            lua_pushnumber(L, s->top_logprob[(size_t)i * (size_t)s->top + (size_t)k]);
            lua_rawseti(L, -2, 2);
            lua_rawseti(L, -2, k + 1);
        }
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "top");
    return 1;
}

/* -- Scheduler ---- */

static bool is_eog(void *ctx, int32_t id)
{
    const tpl_engine_box *b = ctx;
    return (uint32_t)id < b->caps.vocab && b->eog[id];
}

static void read_eog(lua_State *L, int index, tpl_engine_box *b)
{
    lua_getfield(L, index, "eog");
    for (int i = 1; lua_istable(L, -1) && i <= (int)lua_objlen(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        double id = lua_tonumber(L, -1);
        if (id >= 0 && id < b->caps.vocab) b->eog[(size_t)id] = 1;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

tpl_status tpl_box_open_sched(lua_State *L, int index, tpl_engine_box *b, tpl_err *err)
{
    b->eog = calloc(b->caps.vocab, 1);
    if (!b->eog) return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    read_eog(L, index, b);
    lua_getfield(L, index, "shuffle");
    bool shuffle = lua_toboolean(L, -1);
    lua_pop(L, 1);
    tpl_sched_desc d = { .engine = b->engine, .caps = b->caps, .n_stages = b->n_stages, .page = (uint32_t)tpl_opt_number(L, index, "kv_page", 16),
                         .n_pages = (uint32_t)tpl_opt_number(L, index, "kv_pages", 1), .chunk = (int32_t)tpl_opt_number(L, index, "chunk", 0),
                         .shuffle_pages = shuffle, .seed = (uint64_t)tpl_opt_number(L, index, "seed", 0), .is_eog = is_eog, .eog_ctx = b,
                         .on_rows = on_rows, .rows_ctx = b };
    return tpl_sched_new(&b->sched, &d, err);
}

/* -- Requests ---- */

static int32_t *read_ids(lua_State *L, int index, const char *key, int32_t *n)
{
    lua_getfield(L, index, key);
    *n = lua_istable(L, -1) ? (int32_t)lua_objlen(L, -1) : 0;
    int32_t *ids = lua_newuserdata(L, ((size_t)*n + 1) * sizeof *ids); /* stays on the stack: freed by Lua */
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, -2, i + 1);
        double v = lua_isnumber(L, -1) ? lua_tonumber(L, -1) : -1;
        ids[i] = v >= 0 && v <= INT32_MAX && v == floor(v) ? (int32_t)v : -1;
        lua_pop(L, 1);
    }
    return ids;
}

static float *read_floats(lua_State *L, int index, const char *key, int32_t n)
{
    lua_getfield(L, index, key);
    float *x = lua_newuserdata(L, ((size_t)n + 1) * sizeof *x);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -2, i + 1);
        x[i] = (float)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    return x;
}

static tpl_sampling read_sampling(lua_State *L, int index)
{
    return (tpl_sampling){ .temperature = (float)tpl_opt_number(L, index, "temperature", 0), .top_p = (float)tpl_opt_number(L, index, "top_p", 1),
                           .min_p = (float)tpl_opt_number(L, index, "min_p", 0), .repetition = (float)tpl_opt_number(L, index, "repetition_penalty", 1),
                           .frequency = (float)tpl_opt_number(L, index, "frequency_penalty", 0),
                           .presence = (float)tpl_opt_number(L, index, "presence_penalty", 0), .top_k = (int32_t)tpl_opt_number(L, index, "top_k", 0),
                           .n_logprobs = (uint32_t)tpl_opt_number(L, index, "logprobs", 0), .seed = (uint64_t)tpl_opt_number(L, index, "seed", 0) };
}

static bool opt_flag(lua_State *L, int index, const char *key)
{
    lua_getfield(L, index, key);
    bool on = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return on;
}

/* add{ids=, max_tokens=, rows="all"|"last", sink=, ignore_eos=, temperature=, .., bias_ids=, biases=} -> handle */
int tpl_engine_add(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    luaL_checktype(L, 2, LUA_TTABLE);
    tpl_request r = { .max_tokens = (int32_t)tpl_opt_number(L, 2, "max_tokens", 0), .sampling = read_sampling(L, 2) };
    int32_t n_bias;
    const char *rows = tpl_opt_string(L, 2, "rows", NULL);
    r.ids = read_ids(L, 2, "ids", &r.n_ids);
    r.bias_ids = read_ids(L, 2, "bias_ids", &n_bias);
    r.biases = read_floats(L, 2, "biases", n_bias);
    r.n_bias = (uint32_t)n_bias;
    r.flags = rows && !strcmp(rows, "all") ? TPL_REQ_ROWS_ALL : rows ? TPL_REQ_ROWS_LAST : 0;
    if (opt_flag(L, 2, "ignore_eos")) r.flags |= TPL_REQ_IGNORE_EOS;
    tpl_err err = { 0 };
    tpl_row_sink *sink = NULL;
    lua_getfield(L, 2, "sink");
    if (rows && lua_istable(L, -1) && r.n_ids > 0 &&
        sink_new(L, lua_gettop(L), b, r.ids, r.n_ids, r.flags & TPL_REQ_ROWS_ALL ? r.n_ids : 1, &sink, &err)) {
        tpl_sink_free(sink);
        return tpl_push_err(L, &err);
    }
    r.user = sink;
    int64_t handle;
    if (tpl_sched_add(b->sched, &r, &handle, &err)) {
        tpl_sink_free(sink);
        return tpl_push_err(L, &err);
    }
    if (sink) {
        sink->handle = handle;
        sink->next = b->sinks;
        b->sinks = sink;
    }
    lua_pushnumber(L, (double)handle);
    return 1;
}

int tpl_engine_cancel(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    tpl_sched_cancel(b->sched, (int64_t)luaL_checknumber(L, 2));
    return 0;
}

int tpl_engine_idle(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    lua_pushboolean(L, tpl_sched_is_idle(b->sched));
    return 1;
}

static void push_event(lua_State *L, const tpl_event *e)
{
    static const char *const reasons[] = { "stop", "length", "numeric_error", "abort" };
    lua_createtable(L, 0, 6);
    lua_pushnumber(L, (double)e->handle);
    lua_setfield(L, -2, "handle");
    lua_pushnumber(L, (double)e->time_us);
    lua_setfield(L, -2, "time_us");
    if (e->kind == TPL_EVENT_DONE) {
        lua_pushstring(L, reasons[e->finish]);
        lua_setfield(L, -2, "finish");
        return;
    }
    lua_pushinteger(L, e->token);
    lua_setfield(L, -2, "token");
    lua_pushnumber(L, e->logprob);
    lua_setfield(L, -2, "logprob");
    if (!e->n_top) return;
    lua_createtable(L, e->n_top, 0);
    for (int i = 0; i < e->n_top; i++) {
        lua_createtable(L, 2, 0);
        lua_pushinteger(L, e->top_id[i]);
        lua_rawseti(L, -2, 1);
        lua_pushnumber(L, e->top_logprob[i]);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "top");
}

/* pump() -> array of events of one step */
int tpl_engine_pump(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    tpl_err err = { 0 };
    if (tpl_sched_pump(b->sched, &err)) return tpl_push_err(L, &err);
    lua_newtable(L);
    tpl_event e;
    for (int i = 1; tpl_sched_next_event(b->sched, &e); i++) {
        push_event(L, &e);
        lua_rawseti(L, -2, i);
    }
    return 1;
}
