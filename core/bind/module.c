/* SPDX-License-Identifier: Apache-2.0
 *
 * tpl.core: every C module as a field of one table, whether required from plain luajit or preloaded in the tpl binary.
 */
#include "bind/bind.h"

/* X(field): each comes from core/bind/l_<field>.c as tpl_open_<field>. */
#define MODULES(X) X(json) X(hash) X(checkpoint) X(tokenizer) X(kernels) X(sampler) X(sys) X(comm) X(engine) X(yaml) X(xml) X(topo)

#define X(name) int tpl_open_##name(lua_State *L);
MODULES(X)
#undef X

int luaopen_tpl_core(lua_State *L);

__attribute__((visibility("default"))) int luaopen_tpl_core(lua_State *L)
{
    lua_newtable(L);
#define X(name)           \
    tpl_open_##name(L);   \
    lua_setfield(L, -2, #name);
    MODULES(X)
#undef X
    return 1;
}
