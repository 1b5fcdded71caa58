/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core.hash: SHA-256 of a string or a file.
 */
#include "base/sha256.h"
#include "bind/bind.h"

/* sha256(bytes) -> 64 hex digits */
static int hash_sha256(lua_State *L)
{
    size_t len;
    char hex[65];
    const char *s = luaL_checklstring(L, 1, &len);
    tpl_sha256_hex(s, len, hex);
    lua_pushlstring(L, hex, 64);
    return 1;
}

/* sha256_file(path) -> 64 hex digits */
static int hash_sha256_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    char hex[65];
    tpl_file f;
    tpl_err err = { 0 };
    if (tpl_file_open(&f, path, &err)) return tpl_push_err(L, &err);
    tpl_status st = tpl_sha256_file(&f, hex, &err);
    tpl_file_close(&f);
    if (st) return tpl_push_err(L, &err);
    lua_pushlstring(L, hex, 64);
    return 1;
}

int tpl_open_hash(lua_State *L)
{
    static const luaL_Reg functions[] = { { "sha256", hash_sha256 },
                                          { "sha256_file", hash_sha256_file },
                                          { NULL, NULL } };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
