/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.sampler: what sampling parameters leave of one row of logits (kernels/sampler.h has the
 * definitions and the default order). Owner thread of the state.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "kernels/sampler.h"

int tpl_open_sampler(lua_State *L);

static const char *const step_names[TPL_N_SAMPLER_STEPS] = {
#define X(id, name) name,
    TPL_SAMPLER_STEPS(X)
#undef X
};

/* What each parameter may be; logit_bias is a table. */
static const struct {
    double low, high;
} limits[TPL_N_SAMPLER_STEPS] = {
    [TPL_SAMPLER_REPETITION] = { 1e-3, 1e3 }, [TPL_SAMPLER_FREQUENCY] = { -1e3, 1e3 },
    [TPL_SAMPLER_PRESENCE] = { -1e3, 1e3 },   [TPL_SAMPLER_TEMPERATURE] = { 0, 1e4 },
    [TPL_SAMPLER_TOP_K] = { -1, INT32_MAX },  [TPL_SAMPLER_TOP_P] = { 0, 1 },
    [TPL_SAMPLER_MIN_P] = { 0, 1 },
};

/* The arguments, in memory that the Lua stack keeps. */
typedef struct request {
    float *z;
    int64_t n;
    uint32_t *pool;
    tpl_sampling p;
    bool is_set[TPL_N_SAMPLER_STEPS];
    uint8_t order[64];
    int n_order;
} request;

static int bad(lua_State *L, const char *fmt, ...)
{
    va_list ap;
    lua_pushnil(L);
    va_start(ap, fmt);
    lua_pushvfstring(L, fmt, ap);
    va_end(ap);
    lua_pushliteral(L, "arg");
    return 3;
}

static int find_step(const char *name)
{
    for (int i = 0; name && i < TPL_N_SAMPLER_STEPS; i++)
        if (!strcmp(name, step_names[i])) return i;
    return -1;
}

/* Pushes options.NAME; false (nothing pushed) when it is absent or a null. Raises unless it is a table. */
static bool push_table(lua_State *L, const char *name)
{
    lua_getfield(L, 1, name);
    if (lua_isnil(L, -1) || lua_islightuserdata(L, -1)) {
        lua_pop(L, 1);
        return false;
    }
    if (!lua_istable(L, -1)) luaL_error(L, "sampler.apply: %s must be a table", name);
    return true;
}

/* Each reader leaves the memory it needs on the stack, and returns 0, or what to return to Lua. */
static int read_logits(lua_State *L, request *r)
{
    if (!push_table(L, "logits")) return bad(L, "logits are missing");
    const int list = lua_gettop(L);
    r->n = (int64_t)lua_objlen(L, list);
    if (r->n < 1 || r->n > 1 << 24) return bad(L, "%d logits, expected 1 to 16777216", (int)r->n);
    r->z = lua_newuserdata(L, (size_t)r->n * 4);
    for (int64_t i = 0; i < r->n; i++) {
        lua_rawgeti(L, list, (int)i + 1);
        if (lua_type(L, -1) != LUA_TNUMBER) return bad(L, "logits[%d] is no number", (int)i);
        r->z[i] = (float)lua_tonumber(L, -1);
        if (isnan(r->z[i]) || r->z[i] == INFINITY) return bad(L, "logits[%d] is not finite", (int)i);
        lua_pop(L, 1);
    }
    return 0;
}

static int read_prior(lua_State *L, request *r)
{
    const int list = push_table(L, "prior") ? lua_gettop(L) : 0;
    const size_t n = list ? lua_objlen(L, list) : 0;
    r->p.n_prior = (uint32_t)n;
    r->pool = lua_newuserdata(L, (n + 2 * (size_t)r->n) * 4); /* the biases come behind */
    r->p.bias0 = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, list, (int)i + 1);
        lua_Number id = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
        if (!(id >= 0 && id < (lua_Number)r->n) || id != floor(id))
            return bad(L, "prior[%d] is no id below %d", (int)i, (int)r->n);
        r->pool[i] = (uint32_t)id;
        lua_pop(L, 1);
    }
    lua_getfield(L, 1, "n_prompt");
    r->p.n_prompt = lua_isnumber(L, -1) ? (uint32_t)lua_tointeger(L, -1) : 0;
    lua_pop(L, 1);
    return 0;
}

/* The table on top: id (a number, or its digits) -> bias. */
static int read_bias(lua_State *L, request *r)
{
    if (!lua_istable(L, -1)) return bad(L, "logit_bias is no table");
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        lua_pushvalue(L, -2); /* lua_tonumber would turn a string key into a number, and confuse lua_next */
        lua_Number id = lua_isnumber(L, -1) ? lua_tonumber(L, -1) : -1;
        lua_pop(L, 1);
        if (!(id >= 0 && id < (lua_Number)r->n) || id != floor(id))
            return bad(L, "logit_bias has a key that is no id below %d", (int)r->n);
        if (lua_type(L, -1) != LUA_TNUMBER || !isfinite(lua_tonumber(L, -1)))
            return bad(L, "logit_bias of %d is no number", (int)id);
        float by = (float)lua_tonumber(L, -1);
        uint32_t *pair = r->pool + r->p.bias0 + 2 * r->p.n_bias;
        if (r->p.n_bias++ >= r->n) return bad(L, "logit_bias has more than %d keys", (int)r->n);
        pair[0] = (uint32_t)id;
        memcpy(&pair[1], &by, 4);
    }
    return 0;
}

static void set_param(tpl_sampling *p, tpl_sampler_step step, double x)
{
    switch (step) {
    case TPL_SAMPLER_REPETITION: p->repetition = (float)x; break;
    case TPL_SAMPLER_FREQUENCY: p->frequency = (float)x; break;
    case TPL_SAMPLER_PRESENCE: p->presence = (float)x; break;
    case TPL_SAMPLER_TEMPERATURE: p->temperature = (float)x; break;
    case TPL_SAMPLER_TOP_K: p->top_k = (int32_t)x; break;
    case TPL_SAMPLER_TOP_P: p->top_p = (float)x; break;
    case TPL_SAMPLER_MIN_P: p->min_p = (float)x; break;
    default: break;
    }
}

/* The parameter on top of the stack. */
static int read_param(lua_State *L, request *r, int step)
{
    r->is_set[step] = true;
    if (step == TPL_SAMPLER_BIAS) return read_bias(L, r);
    if (lua_type(L, -1) != LUA_TNUMBER) return bad(L, "%s is no number", step_names[step]);
    double x = lua_tonumber(L, -1);
    if (!(x >= limits[step].low && x <= limits[step].high))
        return bad(L, "%s is %f, expected %f to %f", step_names[step], x, limits[step].low,
                   limits[step].high);
    if (step == TPL_SAMPLER_TOP_K && x != floor(x)) return bad(L, "top_k is %f, expected a whole number", x);
    set_param(&r->p, (tpl_sampler_step)step, x);
    return 0;
}

static int read_params(lua_State *L, request *r)
{
    r->p.repetition = r->p.top_p = 1;
    if (!push_table(L, "params")) return 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        int step = lua_type(L, -2) == LUA_TSTRING ? find_step(lua_tostring(L, -2)) : -1;
        if (step < 0)
            return bad(L, "params: unknown parameter '%s'",
                       lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?");
        if (lua_islightuserdata(L, -1)) continue; /* a null */
        int rc = read_param(L, r, step);
        if (rc) return rc;
    }
    return 0;
}

/* The steps to do: those of `order` that have a parameter, or all that have one. */
static int read_order(lua_State *L, request *r)
{
    if (!push_table(L, "order")) {
        for (int i = 0; i < TPL_N_SAMPLER_STEPS; i++)
            if (r->is_set[i]) r->order[r->n_order++] = (uint8_t)i;
        return 0;
    }
    const int list = lua_gettop(L), n = (int)lua_objlen(L, list);
    if (n > (int)sizeof r->order) return bad(L, "order has %d steps, at most %d", n, (int)sizeof r->order);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, list, i);
        int step = lua_type(L, -1) == LUA_TSTRING ? find_step(lua_tostring(L, -1)) : -1;
        if (step < 0) return bad(L, "order[%d] is no sampling step", i - 1);
        if (r->is_set[step]) r->order[r->n_order++] = (uint8_t)step;
        lua_pop(L, 1);
    }
    return 0;
}

static void push_result(lua_State *L, const int32_t *ids, const double *probs, int64_t n)
{
    lua_createtable(L, 0, 2);
    lua_createtable(L, (int)n, 0);
    for (int64_t i = 0; i < n; i++) {
        lua_pushinteger(L, ids[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, "kept");
    lua_createtable(L, (int)n, 0);
    for (int64_t i = 0; i < n; i++) {
        lua_pushnumber(L, probs[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, "probs");
}

/* apply{logits, prior=, params=, order=, n_prompt=} -> {kept (ids, best first, equal logits by id), probs}
 * | nil, message, "arg". -math.huge is a masked logit. Of prior, the first n_prompt ids (0) are the prompt,
 * which only the repetition penalty counts. */
static int sampler_apply(lua_State *L)
{
    static const char *const names[] = { "logits", "prior", "params", "order", "n_prompt", NULL };
    luaL_checktype(L, 1, LUA_TTABLE);
    tpl_check_options(L, 1, names);
    static int (*const readers[])(lua_State *, request *) = { read_logits, read_prior, read_params,
                                                              read_order };
    request r = { 0 };
    for (int i = 0; i < 4; i++) {
        int rc = readers[i](L, &r);
        if (rc) return rc;
    }
    tpl_sampler s;
    int32_t *ids = lua_newuserdata(L, (size_t)r.n * sizeof *ids);
    double *probs = lua_newuserdata(L, (size_t)r.n * sizeof *probs);
    tpl_sampler_init(&s, &tpl_row_code_portable, r.z, r.n, lua_newuserdata(L, tpl_sampler_work_bytes(r.n)));
    int64_t n = tpl_sampler_apply(&s, &r.p, r.pool, r.order, r.n_order, ids, probs);
    push_result(L, ids, probs, n);
    return 1;
}

/* steps() -> the names of the parameters, in the order in which they are applied unless told otherwise */
static int sampler_steps(lua_State *L)
{
    lua_createtable(L, TPL_N_SAMPLER_STEPS, 0);
    for (int i = 0; i < TPL_N_SAMPLER_STEPS; i++) {
        lua_pushstring(L, step_names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

int tpl_open_sampler(lua_State *L)
{
    static const luaL_Reg functions[] = { { "apply", sampler_apply },
                                          { "steps", sampler_steps },
                                          { NULL, NULL } };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
