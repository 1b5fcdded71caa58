-- SPDX-License-Identifier: Apache-2.0
--- Print shell lines that make the binary and the Lua module found: eval "$(tpl env)".
local find = require("tpl.find")

local M = {}

--- Quote for sh.
local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Give the absolute folder of the Lua tree and that of tpl/core.so.
local function folders()
  local sys = require("tpl.core").sys
  local own = debug.getinfo(1, "S").source:match("^@(.*)tpl/cli/env%.lua$")
  local lua = sys.realpath(own == "" and "." or own)
  local bin = find.dirname(sys.exe() or "tpl")
  local candidates = { bin .. "/lib", bin .. "/../lib/lua/5.1" }
  for _, lib in ipairs(candidates) do
    if sys.is_file(lib .. "/tpl/core.so") then return lua, bin, sys.realpath(lib) end
  end
  return lua, bin, candidates[1]
end

function M.run(ctx)
  local lua, bin, lib = folders()
  ctx.out:text("export PATH=%s:\"$PATH\"\n", quoted(bin))
  ctx.out:text("export LUA_PATH=%s\"${LUA_PATH:-;;}\"\n", quoted(lua .. "/?.lua;" .. lua .. "/?/init.lua;"))
  ctx.out:text("export LUA_CPATH=%s\"${LUA_CPATH:-;;}\"\n", quoted(lib .. "/?.so;"))
  return 0
end

return M
