-- SPDX-License-Identifier: Apache-2.0
--- Find layout, model and policy files by name, and run them with the globals tpl, R and S (interface.md section 1).
--- The text itself if it has a '/' or ends in .lua; then KIND/NAME.lua beside deploy.lua; then the folders of TPL_PATH;
--- then the built-in ones, which lie on package.path as tpl/KIND/NAME.lua.
local err = require "tpl.err"

local M = {}

local function exists(path)
  local f = io.open(path, "r")
  if f then f:close() end
  return f ~= nil
end

local function join(dir, name)
  if name:sub(1, 1) == "/" or dir == nil or dir == "" or dir == "." then return name end
  return dir .. "/" .. name
end

--- Find the file of a name. opts.dir: folder of deploy.lua (nil: the working folder); opts.path: instead of TPL_PATH.
---@param kind string  "layouts", "models" or "policies"
---@param name string
---@param opts {dir: string?, path: string?}?
---@return string? file
---@return string[] looked  where it was looked for
function M.file(kind, name, opts)
  opts = opts or {}
  local looked = {}
  local function try(path)
    looked[#looked + 1] = path
    return exists(path) and path or nil
  end
  if name:find("/", 1, true) or name:match("%.lua$") then return try(join(opts.dir, name)), looked end
  local found = try(join(opts.dir, kind .. "/" .. name .. ".lua"))
  if found then return found, looked end
  for dir in (opts.path or os.getenv("TPL_PATH") or ""):gmatch("[^:]+") do
    found = try(dir .. "/" .. kind .. "/" .. name .. ".lua") or try(dir .. "/" .. name .. ".lua")
    if found then return found, looked end
  end
  looked[#looked + 1] = "the built-in " .. kind
  return package.searchpath("tpl." .. kind .. "." .. name, package.path), looked
end

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
  local file, looked = M.file(kind, name, opts)
  if not file then
    local what = kind:gsub("ies$", "y"):gsub("s$", "")
    err.throw { code = what == "layout" and "layout_error" or "unknown_" .. what, exit = what == "model" and 2 or 3,
      message = ("no %s '%s'"):format(what, name), hint = "looked for " .. table.concat(looked, ", ") }
  end
  local f, why = io.open(file, "r")
  if not f then err.throw { code = "io", message = why, where = file } end
  local text = f:read("*a")
  f:close()
  return M.run(text, "@" .. file), file, file .. ":" .. return_line(text)
end

return M
