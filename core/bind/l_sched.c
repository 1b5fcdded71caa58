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

static bool opt_flag(lua_State *L, int index, const char *key)
{
    lua_getfield(L, index, key);
    bool on = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return on;
}

/* Pushes {{id, logprob}..}. */
static void push_top(lua_State *L, int n, const int32_t *ids, const float *logprobs)
{
    lua_createtable(L, n, 0);
    for (int k = 0; k < n; k++) {
        lua_createtable(L, 2, 0);
        lua_pushinteger(L, ids[k]);
        lua_rawseti(L, -2, 1);
        lua_pushnumber(L, logprobs[k]);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, k + 1);
    }
}

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

static void score_row(tpl_row_sink *s, int32_t at, int64_t pos, const float *row, int64_t vocab)
{
    s->argmax[at] = tpl_row_argmax(row, vocab);
    if (!s->logprob) return;
    size_t top0 = (size_t)at * (size_t)s->top;
    double lse = tpl_row_logsumexp(row, vocab);
    s->logprob[at] = pos + 1 < s->n_ids ? (float)((double)row[s->ids[pos + 1]] - lse) : NAN;
    tpl_row_top(row, vocab, s->top, s->top_id + top0, s->top_logprob + top0);
    for (int i = 0; i < s->top; i++) s->top_logprob[top0 + (size_t)i] -= (float)lse;
}

static void on_rows(void *ctx, void *user, int64_t pos0, int32_t n, const float *rows, int64_t vocab)
{
    tpl_row_sink *s = user;
    (void)ctx;
    if (!s) return;
    size_t n_floats = (size_t)n * (size_t)vocab;
    if (s->file && fwrite(rows, sizeof *rows, n_floats, s->file) != n_floats && !s->io_error)
        s->io_error = errno ? errno : EIO;
    for (int32_t i = 0; i < n && s->n_rows < s->cap_rows; i++, s->n_rows++) {
        const float *row = rows + (size_t)i * (size_t)vocab;
        if (s->memory) memcpy(s->memory + (size_t)s->n_rows * (size_t)vocab, row, (size_t)vocab * sizeof *row);
        score_row(s, s->n_rows, pos0 + i, row, vocab);
    }
}

/* What the table at `index`, {file=path} | {memory=true} | {top=K}, asks for. */
typedef struct sink_wish {
    const char *file; /* valid while the table holds it */
    bool memory;
    int32_t top; /* -1: no scores */
} sink_wish;

static sink_wish read_wish(lua_State *L, int index, const tpl_engine_box *b)
{
    return (sink_wish){ .file = tpl_opt_string(L, index, "file", NULL),
                        .memory = opt_flag(L, index, "memory"),
                        .top = (int32_t)tpl_opt_whole(L, index, "top", 0, b->caps.vocab, -1) };
}

static bool sink_alloc(tpl_row_sink *s, const sink_wish *w, uint32_t vocab)
{
    size_t n = (size_t)s->cap_rows;
    if (!(s->argmax = calloc(n, sizeof *s->argmax)) || !(s->ids = malloc((size_t)s->n_ids * sizeof *s->ids)))
        return false;
    if (w->memory && !(s->memory = malloc(n * vocab * sizeof *s->memory))) return false;
    if (w->top < 0) return true;
    s->top = w->top;
    size_t tops = n * ((size_t)w->top + 1);
    return (s->logprob = calloc(n, sizeof *s->logprob)) && (s->top_id = calloc(tops, sizeof *s->top_id)) &&
           (s->top_logprob = calloc(tops, sizeof *s->top_logprob));
}

/* A sink for the rows of all positions of a request, or of one. Calls nothing of Lua. */
static tpl_status sink_new(tpl_row_sink **out, const sink_wish *w, const tpl_request *r, uint32_t vocab, tpl_err *err)
{
    tpl_row_sink *s = *out = calloc(1, sizeof *s);
    if (s) {
        s->n_ids = r->n_ids;
        s->cap_rows = r->flags & TPL_REQ_ROWS_ALL ? r->n_ids : 1;
    }
    if (!s || !sink_alloc(s, w, vocab)) {
        tpl_sink_free(s);
        return tpl_fail(err, TPL_ERR_MEM, 0, "logits", "out of memory");
    }
    memcpy(s->ids, r->ids, (size_t)r->n_ids * sizeof *r->ids);
    if (!w->file || (s->file = fopen(w->file, "ab"))) return TPL_OK;
    int e = errno;
    tpl_sink_free(s);
    return tpl_fail(err, TPL_ERR_IO, e, w->file, "%s", strerror(e));
}

/* The link that points to the sink of a request; to NULL when there is none. */
static tpl_row_sink **find_sink(tpl_engine_box *b, int64_t handle)
{
    tpl_row_sink **at = &b->sinks;
    while (*at && (*at)->handle != handle) at = &(*at)->next;
    return at;
}

static void drop_sink(tpl_row_sink **at)
{
    tpl_row_sink *s = *at;
    *at = s->next;
    tpl_sink_free(s);
}

static void push_numbers(lua_State *L, const tpl_row_sink *s)
{
    lua_createtable(L, s->n_rows, 0);
    for (int i = 0; i < s->n_rows; i++) {
        lua_pushnumber(L, s->logprob[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "logprob");
    lua_createtable(L, s->n_rows, 0);
    for (int i = 0; i < s->n_rows; i++) {
        push_top(L, s->top, s->top_id + (size_t)i * (size_t)s->top, s->top_logprob + (size_t)i * (size_t)s->top);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "top");
}

static void push_rows(lua_State *L, const tpl_engine_box *b, const tpl_row_sink *s)
{
    lua_createtable(L, 0, 6);
    lua_pushinteger(L, s->n_rows);
    lua_setfield(L, -2, "rows");
    lua_pushinteger(L, (lua_Integer)b->caps.vocab);
    lua_setfield(L, -2, "vocab");
    lua_createtable(L, s->n_rows, 0);
    for (int i = 0; i < s->n_rows; i++) {
        lua_pushinteger(L, s->argmax[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "argmax");
    if (s->memory) {
        lua_pushlightuserdata(L, s->memory);
        lua_setfield(L, -2, "data");
    }
    if (s->logprob) push_numbers(L, s);
}

/* take_rows(handle) -> {rows=, vocab=, argmax={..}, logprob={..}, top={{{id, logprob}..}..}, data=lightuserdata},
 * once the request has ended. data lives until drop_rows(handle) or the end of the engine; rows that were not kept in
 * memory can be taken once. */
int tpl_engine_take_rows(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    int64_t handle = (int64_t)luaL_checknumber(L, 2);
    tpl_row_sink **at = find_sink(b, handle), *s = *at;
    if (!s) return luaL_error(L, "no rows are kept for request %d", (int)handle);
    if (!s->is_done) return luaL_error(L, "request %d still runs", (int)handle);
    if (s->file) {
        int e = fclose(s->file) ? errno : 0;
        s->file = NULL;
        if (s->io_error) e = s->io_error;
        if (e) {
            tpl_err err = { 0 };
            drop_sink(at);
            tpl_fail(&err, TPL_ERR_IO, e, "logits", "writing failed: %s", strerror(e));
            return tpl_push_err(L, &err);
        }
    }
    push_rows(L, b, s); /* may raise: the sink is still in the list */
    if (!s->memory) drop_sink(at);
    return 1;
}

/* drop_rows(handle): frees what take_rows gave; nothing to do for a request that keeps no rows, or none any more */
int tpl_engine_drop_rows(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    int64_t handle = (int64_t)luaL_checknumber(L, 2);
    tpl_row_sink **at = find_sink(b, handle);
    if (*at && !(*at)->is_done) return luaL_error(L, "request %d still runs", (int)handle);
    if (*at) drop_sink(at);
    return 0;
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

/* Any number serves as a seed; what 64 bits cannot hold counts as 0. */
static uint64_t opt_seed(lua_State *L, int index)
{
    double v = tpl_opt_number(L, index, "seed", 0);
    if (v >= 0) return v < 18446744073709551616.0 ? (uint64_t)v : 0;
    return v >= -9223372036854775808.0 ? (uint64_t)(int64_t)v : 0;
}

tpl_status tpl_box_open_sched(lua_State *L, int index, tpl_engine_box *b, tpl_err *err)
{
    b->eog = calloc(b->caps.vocab, 1);
    if (!b->eog) return tpl_fail(err, TPL_ERR_MEM, 0, "memory", "out of memory");
    read_eog(L, index, b);
    tpl_sched_desc d = {
        .engine = b->engine,
        .caps = b->caps,
        .n_stages = b->n_stages,
        .page = (uint32_t)tpl_opt_whole(L, index, "kv_page", 1, INT32_MAX, 16),
        .n_pages = (uint32_t)tpl_opt_whole(L, index, "kv_pages", 1, UINT32_MAX, 1),
        .chunk = (int32_t)tpl_opt_whole(L, index, "chunk", 0, INT32_MAX, 0),
        .shuffle_pages = opt_flag(L, index, "shuffle"),
        .seed = opt_seed(L, index),
        .is_eog = is_eog,
        .eog_ctx = b,
        .on_rows = on_rows,
        .rows_ctx = b,
    };
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
    bool is_table = lua_istable(L, -1);
    float *x = lua_newuserdata(L, ((size_t)n + 1) * sizeof *x);
    memset(x, 0, ((size_t)n + 1) * sizeof *x);
    for (int i = 0; is_table && i < n; i++) {
        lua_rawgeti(L, -2, i + 1);
        x[i] = (float)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    return x;
}

static tpl_sampling read_sampling(lua_State *L, int index)
{
    return (tpl_sampling){
        .temperature = (float)tpl_opt_number(L, index, "temperature", 0),
        .top_p = (float)tpl_opt_number(L, index, "top_p", 1),
        .min_p = (float)tpl_opt_number(L, index, "min_p", 0),
        .repetition = (float)tpl_opt_number(L, index, "repetition_penalty", 1),
        .frequency = (float)tpl_opt_number(L, index, "frequency_penalty", 0),
        .presence = (float)tpl_opt_number(L, index, "presence_penalty", 0),
        .top_k = (int32_t)tpl_opt_whole(L, index, "top_k", INT32_MIN, INT32_MAX, 0),
        .n_logprobs = (uint32_t)tpl_opt_whole(L, index, "logprobs", 0, TPL_EVENT_TOP, 0),
        .seed = opt_seed(L, index),
    };
}

/* add{ids=, max_tokens=, rows="all"|"last", sink=, ignore_eos=, temperature=, .., bias_ids=, biases=} -> handle */
int tpl_engine_add(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    luaL_checktype(L, 2, LUA_TTABLE);
    tpl_request r = { .max_tokens = (int32_t)tpl_opt_whole(L, 2, "max_tokens", INT32_MIN, INT32_MAX, 0),
                      .sampling = read_sampling(L, 2) };
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
    if (rows && lua_istable(L, -1) && r.n_ids > 0) {
        sink_wish w = read_wish(L, lua_gettop(L), b);
        if (sink_new(&sink, &w, &r, b->caps.vocab, &err)) return tpl_push_err(L, &err);
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
    push_top(L, e->n_top, e->top_id, e->top_logprob);
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
        tpl_row_sink *sink = e.user;
        if (sink && e.kind == TPL_EVENT_DONE) sink->is_done = true;
        push_event(L, &e);
        lua_rawseti(L, -2, i);
    }
    return 1;
}
