/* SPDX-License-Identifier: Apache-2.0
 *
 * The one binding pattern (design/style.md 3.6): a class is a box, a full userdata that holds one pointer to
 * a C object, with a locked metatable, __gc, __tostring and an idempotent close. Constructors: check
 * arguments, create the box, acquire, store; no C resource is owned across a Lua call that can raise. Wrong
 * type or closed object: raise; failure of the world: nil, message, code, where, hint. Owner thread of the
 * lua_State only.
 */
#ifndef TPL_BIND_BIND_H
#define TPL_BIND_BIND_H

#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>

#include "base/err.h"

typedef struct tpl_class {
    const char *name; /* "tpl.checkpoint": the metatable's key in the registry, and what messages say */
    void (*close)(void *obj); /* never called twice, never with NULL */
    const luaL_Reg *methods;  /* may be NULL; `close` is added */
} tpl_class;

/* Pushes a box holding NULL. Store the object in *box: it is closed by close(), by __gc, or never if it stays
 * NULL. */
void **tpl_box_new(lua_State *L, const tpl_class *c);
/* The object in the box at index; raises for another type or a closed box. */
void *tpl_box_get(lua_State *L, int index, const tpl_class *c);
/* The box at index keeps the value at `parent` alive (a view and what it looks into). */
void tpl_box_keep(lua_State *L, int index, int parent);

/* Pushes nil, message, code ("format"), where, hint; the last two are nil when unknown. Returns 5. */
int tpl_push_err(lua_State *L, const tpl_err *err);
/* Raises unless every key of the options table at index is one of `names` (NULL ends them). No table: nothing
 * to check. */
void tpl_check_options(lua_State *L, int index, const char *const *names);

/* Fields of the options table at index. */
double tpl_opt_number(lua_State *L, int index, const char *key, double otherwise);
/* A whole number from least to most; raises for another. */
int64_t tpl_opt_whole(lua_State *L, int index, const char *key, int64_t least, int64_t most, int64_t otherwise);
const char *tpl_opt_string(lua_State *L, int index, const char *key, const char *otherwise);
/* Sets key of the table on top. */
void tpl_set_number(lua_State *L, const char *key, double x);

/* A growing byte buffer owned by a box, so that a raise in the middle frees it. */
typedef struct tpl_text {
    char *s;
    size_t len, cap;
} tpl_text;
/* Pushes the box; the buffer lives as long as it. */
tpl_text *tpl_text_new(lua_State *L);
void tpl_text_add(lua_State *L, tpl_text *t, const char *s, size_t len); /* raises without memory */

/* -- Modules: each pushes its table ---- (core/bind/module.c puts them into tpl.core) */
int tpl_open_json(lua_State *L);
int tpl_open_hash(lua_State *L);
int tpl_open_checkpoint(lua_State *L);

/* The class of checkpoint boxes, for modules that take one: tpl_box_get(L, i, &tpl_checkpoint_class) is a
 * tpl_checkpoint *. */
extern const tpl_class tpl_checkpoint_class;

#endif
