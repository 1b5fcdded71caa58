-- SPDX-License-Identifier: Apache-2.0
--- Run a Lua file with the library at hand: `tpl lua FILE [argument ...]`.
local err = require("tpl.err")
local script = require("tpl.script")

local M = {}

function M.run(ctx)
  local names = ctx.args.names
  local path = names[1]
  if path == "--help" or path == "-h" then
    require("tpl.cli.help").print(ctx, "lua")
    return 0
  end
  if not path then
    err.throw { code = "usage", where = "tpl lua", message = "needs a FILE", hint = "see tpl help lua" }
  end
  local arg = { [0] = path }
  for i = 2, #names do arg[i - 1] = names[i] end
  rawset(_G, "arg", arg)
  script.main(path, arg)
  return 0
end

return M
