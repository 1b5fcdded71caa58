/* SPDX-License-Identifier: Apache-2.0
 *
 * Taps: copies of the values that ops leave behind, by name, for `tap` and `verify`. Rank threads append under a lock; a tapped step may allocate.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "bind/engine_box.h"
#include "kernels/pack.h"

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
                           .cols = view->cols, .step = (int64_t)step->id, .real_rows = view->sym == TPL_SYM_TOK ? step->n_tok : step->n_out };
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
        const char *const keys[] = { "rank", "stage", "op", "i_out", "rows", "cols", "step", "real_rows" };
        const double numbers[] = { t->rank, t->stage, t->op, t->i_out, (double)t->rows, (double)t->cols, (double)t->step, (double)t->real_rows };
        for (int k = 0; k < 8; k++) {
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

/* -- One row of a product, again ---- */

/* The ranges {{first, count}, ..} at index, as columns or rows of a tensor; raises for anything else. */
static int64_t read_ranges(lua_State *L, int index, tpl_range *out, int cap, int *n)
{
    int64_t total = 0;
    luaL_checktype(L, index, LUA_TTABLE);
    *n = (int)lua_objlen(L, index);
    if (*n > cap) luaL_error(L, "too many ranges");
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, index, i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        out[i] = (tpl_range){ (int64_t)lua_tonumber(L, -2), (int64_t)lua_tonumber(L, -1) };
        total += out[i].count;
        lua_pop(L, 3);
    }
    return total;
}

static double dot(const float *w, const float *x, const tpl_range *cols, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < cols[i].count; k++) sum += (double)w[cols[i].first + k] * (double)*x++;
    return sum;
}

/* product_error(checkpoint, tensor, rows, cols, x, y): sum over this rank's rows of (y - x w^T)^2, with w read from the file and products in
 * double. x and y are float pointers; nil when the tensor is not there or cannot be read. */
int tpl_engine_product_error(lua_State *L)
{
    const tpl_checkpoint *cp = tpl_box_get(L, 1, &tpl_checkpoint_class);
    const tpl_ckpt_tensor *t = tpl_checkpoint_find(cp, luaL_checkstring(L, 2));
    tpl_range rows[256], cols[256];
    int n_rows, n_cols;
    read_ranges(L, 3, rows, 256, &n_rows);
    read_ranges(L, 4, cols, 256, &n_cols);
    const float *x = *(const float *const *)lua_topointer(L, 5), *y = *(const float *const *)lua_topointer(L, 6);
    uint64_t row_bytes;
    if (!t || t->dtype < 0 || t->n_dims < 1) return 0;
    int64_t width = t->dims[t->n_dims - 1];
    if (!tpl_dtype_row_bytes((tpl_dtype)t->dtype, (uint64_t)width, &row_bytes)) return 0;
    char *raw = lua_newuserdata(L, (size_t)row_bytes);
    float *w = lua_newuserdata(L, (size_t)width * sizeof *w);
    double sum = 0;
    for (int i = 0; i < n_rows; i++)
        for (int64_t r = rows[i].first; r < rows[i].first + rows[i].count; r++) {
            if (tpl_checkpoint_read_tensor(cp, t, (uint64_t)r * row_bytes, row_bytes, raw, NULL)) return 0;
            tpl_dequant_row((tpl_dtype)t->dtype, raw, width, w);
            double d = (double)*y++ - dot(w, x, cols, n_cols);
            sum += d * d;
        }
    lua_pushnumber(L, sum);
    return 1;
}
