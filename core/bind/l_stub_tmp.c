#include <lua.h>
__attribute__((weak)) int tpl_open_kernels(lua_State *L);
__attribute__((weak)) int tpl_open_kernels(lua_State *L){ lua_newtable(L); return 1; }
__attribute__((weak)) int tpl_open_sampler(lua_State *L);
__attribute__((weak)) int tpl_open_sampler(lua_State *L){ lua_newtable(L); return 1; }
