/* SPDX-License-Identifier: Apache-2.0
 *
 * A json_t tree as Lua values, as tpl.json.decode gives them: shared by the modules that read JSON and YAML. Owner thread
 * of the lua_State.
 */
#ifndef TPL_BIND_JSON_PUSH_H
#define TPL_BIND_JSON_PUSH_H

#include <lua.h>

#include "base/json.h"

/* Pushes a box for a document. Store the document in *box: the box owns it from there. */
void **tpl_json_box(lua_State *L);
/* Frees the document of the box on top and puts its value in the place of the box. */
void tpl_json_unbox(lua_State *L);

#endif
