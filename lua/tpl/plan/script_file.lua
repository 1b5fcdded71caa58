-- SPDX-License-Identifier: Apache-2.0
--- Run layout, model and policy files that are found by name, with the globals tpl, R and S (interface.md section 1).
local err = require "tpl.err"
local find = require "tpl.find"

local M = {}

--- Make the environment of such a file: tpl (what is loaded of it, at least the plan vocabulary), R, S, and the globals.
local function environment()
  local layout = require "tpl.plan.layout"
  local words = {
    R = layout.R, S = layout.S, layout = layout, gqa = layout.gqa, use = layout.use, model = require "tpl.model",
    mesh = require("tpl.plan.mesh").new, pairs = require("tpl.util").pairs, partition = require "tpl.plan.partition",
  }
  local tpl = setmetatable({}, { __index = function(_, k)
    if words[k] ~= nil then return words[k] end
    local whole = package.loaded["tpl"]
    return type(whole) == "table" and whole[k] or nil
  end })
  return setmetatable({ tpl = tpl, R = layout.R, S = layout.S }, { __index = _G })
end

--- Run text as such a file is run.
---@param text string
---@param name string  chunk name, "@file" or "=what"
---@return any
function M.run(text, name)
  local chunk, why = loadstring(text, name)
  if not chunk then
    local where, message = why:match("^(.-:%d+): (.*)$")
    err.throw { code = "script", message = message or why, where = where }
  end
  setfenv(chunk, environment())
  local out, e = err.try(chunk)
  if e then err.throw(e) end
  return out
end

-- `return tpl.layout {..}` is a tail call, which leaves no frame to ask: the line comes from the text.
local function return_line(text)
  local n, found = 0, 1
  for line in (text .. "\n"):gmatch("(.-)\n") do
    n = n + 1
    if line:match("^return%f[^%w_]") then found = n end
  end
  return found
end

--- Find and run a file.
---@return any value
---@return string file
---@return string where  "file:line" of what it returns
function M.load(kind, name, opts)
  local hit, e = find.script(kind, name, opts and opts.dir, opts)
  if not hit then
    e.where = e.where or opts and opts.where or kind:gsub("ies$", "y"):gsub("s$", "")
    err.throw(e)
  end
  local file = hit.path
  local f, why = io.open(file, "r")
  if not f then err.throw { code = "io", message = why, where = file } end
  local text = f:read("*a")
  f:close()
  local where = file .. ":" .. return_line(text)
  local value, failure = err.try(M.run, text, "@" .. file)
  if failure then
    failure.where = failure.where or where -- a tail call leaves no frame to name
    err.throw(failure)
  end
  return value, file, where
end

return M
