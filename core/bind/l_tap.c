/* SPDX-License-Identifier: Apache-2.0
 *
 * Taps: copies of the values that ops leave behind, by name, for `tap` and `verify`. Rank threads append under a
 * lock; a tapped step may allocate.
 */
#include <fnmatch.h>
#include <stdbool.h>
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

/* After tap_end a step that failed may still be walked by some ranks: what they bring is not wanted, and the list is
 * Lua's to read. */
static bool is_wanted(tpl_engine_box *b, const char *name)
{
    pthread_mutex_lock(&b->tap_lock);
    bool is = b->is_tapping && (!b->tap_glob || !fnmatch(b->tap_glob, name, 0));
    pthread_mutex_unlock(&b->tap_lock);
    return is;
}

/* Begins with an empty list, or ends; takes the glob. */
static void set_tapping(tpl_engine_box *b, bool on, char *glob)
{
    pthread_mutex_lock(&b->tap_lock);
    if (on) {
        tpl_taps_free(b);
        b->tap_glob = glob;
        b->tap_failed = false;
    }
    b->is_tapping = on;
    pthread_mutex_unlock(&b->tap_lock);
}

static void on_tap(void *ctx, int rank, const tpl_program *p, int op, int i_out, const tpl_view *view,
                   const tpl_step *step)
{
    tpl_engine_box *b = ctx;
    const char *name = p->values[p->ops[op].out[i_out]].name;
    if (view->act != TPL_ACT_F32 || !is_wanted(b, name)) return;
    int64_t rows = tpl_view_rows(view, step);
    tpl_tapped *t = malloc(sizeof *t + (size_t)rows * (size_t)view->cols * sizeof(float));
    if (t) {
        *t = (tpl_tapped){ .rank = rank,
                           .stage = p->stage,
                           .op = op,
                           .i_out = i_out,
                           .op_name = p->ops[op].name,
                           .value_name = name,
                           .rows = rows,
                           .cols = view->cols,
                           .step = (int64_t)step->id,
                           .real_rows = view->sym == TPL_SYM_TOK ? step->n_tok : step->n_out };
        memcpy(t->data, view->data, (size_t)rows * (size_t)view->cols * sizeof(float));
    }
    pthread_mutex_lock(&b->tap_lock);
    bool is_kept = t && b->is_tapping;
    if (is_kept) {
        *b->last_tap = t;
        b->last_tap = &t->next;
    }
    if (!t) b->tap_failed = true;
    pthread_mutex_unlock(&b->tap_lock);
    if (!is_kept) free(t);
}

/* tap_begin(glob): from now on steps leave copies of values whose name matches; nil: all */
int tpl_engine_tap_begin(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    const char *glob = luaL_optstring(L, 2, NULL);
    char *copy = glob ? strdup(glob) : NULL;
    if (glob && !copy) return luaL_error(L, "out of memory");
    set_tapping(b, true, copy);
    tpl_engine_set_tap(b->engine, on_tap, b);
    return 0;
}

/* tap_end() -> array of {rank, stage, op, name, op_name, rows, cols, step, data=lightuserdata}; data lives until the
 * next tap_begin */
int tpl_engine_tap_end(lua_State *L)
{
    tpl_engine_box *b = tpl_box_get(L, 1, &tpl_engine_class);
    tpl_engine_set_tap(b->engine, NULL, NULL);
    set_tapping(b, false, NULL);
    if (b->tap_failed) return luaL_error(L, "out of memory while tapping");
    lua_newtable(L);
    int i = 0;
    for (tpl_tapped *t = b->taps; t; t = t->next) {
        lua_createtable(L, 0, 10);
        const char *const keys[] = { "rank", "stage", "op", "i_out", "rows", "cols", "step", "real_rows" };
        const double numbers[] = { t->rank,         t->stage,        t->op,           t->i_out,
                                   (double)t->rows, (double)t->cols, (double)t->step, (double)t->real_rows };
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

/* The ranges {{first, count}, ..} at index, as columns or rows of a tensor of `size`; raises for anything else. */
static void read_ranges(lua_State *L, int index, int64_t size, tpl_range *out, int cap, int *n)
{
    luaL_checktype(L, index, LUA_TTABLE);
    *n = (int)lua_objlen(L, index);
    if (*n > cap) luaL_error(L, "too many ranges");
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, index, i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        double first = lua_tonumber(L, -2), count = lua_tonumber(L, -1);
        if (!(first >= 0 && count >= 0 && first + count <= (double)size))
            luaL_error(L, "a range lies outside the tensor");
        out[i] = (tpl_range){ (int64_t)first, (int64_t)count };
        lua_pop(L, 3);
    }
}

/* The pointer in the FFI pointer at index. */
static const float *read_pointer(lua_State *L, int index)
{
    if (strcmp(luaL_typename(L, index), "cdata")) luaL_error(L, "argument %d is no FFI pointer", index);
    return *(const float *const *)lua_topointer(L, index);
}

static double dot(const float *w, const float *x, const tpl_range *cols, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < cols[i].count; k++) sum += (double)w[cols[i].first + k] * (double)*x++;
    return sum;
}

/* product_error(checkpoint, tensor, rows, cols, x, y): sum over this rank's rows of (y - x w^T)^2, with w read from
 * the file and products in double. x and y are float pointers; nil when the tensor is not there or cannot be read. */
int tpl_engine_product_error(lua_State *L)
{
    const tpl_checkpoint *cp = tpl_box_get(L, 1, &tpl_checkpoint_class);
    const tpl_ckpt_tensor *t = tpl_checkpoint_find(cp, luaL_checkstring(L, 2));
    tpl_range rows[256], cols[256];
    int n_rows, n_cols;
    const float *x = read_pointer(L, 5), *y = read_pointer(L, 6);
    uint64_t row_bytes;
    if (!t || t->dtype < 0 || t->n_dims < 1) return 0;
    int64_t width = t->dims[t->n_dims - 1], height = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) height *= t->dims[i];
    read_ranges(L, 3, height, rows, 256, &n_rows);
    read_ranges(L, 4, width, cols, 256, &n_cols);
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
