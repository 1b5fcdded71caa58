/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.json.encode(value[, {indent, separators, sort_keys, ensure_ascii, allow_nan}]) -> text. A Lua C
 * function of its own file, because writing JSON and reading it share nothing. Owner thread of the lua_State.
 */
#ifndef TPL_BIND_JSON_ENCODE_H
#define TPL_BIND_JSON_ENCODE_H

#include <lua.h>

int tpl_json_encode(lua_State *L);

#endif
