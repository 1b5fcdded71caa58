/* SPDX-License-Identifier: Apache-2.0
 *
 * Taps: copies of the values that ops leave behind, by name, for `tap` and `verify`. Rank threads append under a lock; a tapped step may allocate.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "bind/engine_box.h"

void tpl_taps_free(tpl_engine_box *b)
{
    for (tpl_tapped *t = b->taps, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    b->taps = NULL;
    b->last_tap = &b->taps;
    free(b->tap_glob);
    b->tap_glob = NULL;
}

static void on_tap(void *ctx, int rank, const tpl_program *p, int op, int i_out, const tpl_view *view, const tpl_step *step)
{
    tpl_engine_box *b = ctx;
    const char *name = p->values[p->ops[op].out[i_out]].name;
    if (view->act != TPL_ACT_F32 || (b->tap_glob && fnmatch(b->tap_glob, name, 0))) return;
    int64_t rows = tpl_view_rows(view, step);
    tpl_tapped *t = malloc(sizeof *t + (size_t)rows * (size_t)view->cols * sizeof(float));
    pthread_mutex_lock(&b->tap_lock);
    if (t) {
        *t = (tpl_tapped){ .rank = rank, .stage = p->stage, .op = op, .i_out = i_out, .op_name = p->ops[op].name, .value_name = name, .rows = rows,
                           .cols = view->cols, .step = (int64_t)step->id };
        memcpy(t->data, view->data, (size_t)rows * (size_t)view->cols * sizeof(float));
        *b->last_tap = t;
        b->last_tap = &t->next;
    } else b->tap_failed = 1;
    pthread_mutex_unlock(&b->tap_lock);
}

/* tap_begin(glob): from now on steps leave copies of values whose name matches; nil: all */
int tpl_engine_tap_begin(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    const char *glob = luaL_optstring(L, 2, NULL);
    tpl_taps_free(b);
    if (glob && !(b->tap_glob = strdup(glob))) return luaL_error(L, "out of memory");
    tpl_engine_set_tap(b->engine, on_tap, b);
    return 0;
}

/* tap_end() -> array of {rank, stage, op, name, op_name, rows, cols, step, data=lightuserdata}; data lives until the next tap_begin */
int tpl_engine_tap_end(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    tpl_engine_set_tap(b->engine, NULL, NULL);
    if (b->tap_failed) return luaL_error(L, "out of memory while tapping");
    lua_newtable(L);
    int i = 0;
    for (tpl_tapped *t = b->taps; t; t = t->next) {
        lua_createtable(L, 0, 10);
        const char *const keys[] = { "rank", "stage", "op", "i_out", "rows", "cols", "step" };
        const double numbers[] = { t->rank, t->stage, t->op, t->i_out, (double)t->rows, (double)t->cols, (double)t->step };
        for (int k = 0; k < 7; k++) {
            lua_pushnumber(L, numbers[k]);
            lua_setfield(L, -2, keys[k]);
        }
        lua_pushstring(L, t->value_name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, t->op_name);
        lua_setfield(L, -2, "op_name");
        lua_pushlightuserdata(L, t->data);
        lua_setfield(L, -2, "data");
        lua_rawseti(L, -2, ++i);
    }
    return 1;
}
