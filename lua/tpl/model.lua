-- SPDX-License-Identifier: Apache-2.0
--- Hold a model definition: Lua functions over named dims, and what its weights are called in checkpoints.
--- tpl.model { dims=, embed=, block=, head=, names= } checks the fields; running it is the planner's work (plan/trace).
--- A definition never mentions a layout, a mesh or a device.
local err = require "tpl.err"
local script = require "tpl.script"
local util = require "tpl.util"

local M = {}

---@class tpl.Model
---@field dims fun(c: table): table         dim -> size, or {size, soft=unit}
---@field embed fun(m: table, ids: table): table
---@field block fun(m: table, x: table, i: integer): table
---@field head fun(m: table, x: table): table  ends in the logits [out, vocab]
---@field names table<string, table<string, string>>  style ("hf", "gguf") -> weight -> tensor name, {i} = layer
---@field archs string[]?                   architecture names of checkpoints that this definition reads
---@field where string                      file:line of the definition

local fields = { dims = "function", embed = "function", block = "function", head = "function", names = "table", archs = "table" }

local Model = {}
Model.__index = Model

--- Make a model definition from its parts.
---@param t table
---@return tpl.Model
function M.new(t)
  local where = err.position(2)
  local function refuse(text, ...) err.throw { code = "model_error", message = "model: " .. text:format(...), where = where } end
  if type(t) ~= "table" then refuse("expected a table, got %s", type(t)) end
  for k in util.pairs(t) do if not fields[k] then refuse("no field '%s' is known", tostring(k)) end end
  for k, kind in util.pairs(fields) do
    if t[k] == nil and k ~= "archs" and k ~= "names" then refuse("field '%s' is missing", k) end
    if t[k] ~= nil and type(t[k]) ~= kind then refuse("field '%s' is a %s, expected a %s", k, type(t[k]), kind) end
  end
  local m = util.copy(t)
  m.names, m.where = m.names or {}, where
  return setmetatable(m, Model)
end

--- Load a model definition by name or path.
---@param name string
---@param opts {dir: string?, path: string?}?
---@return tpl.Model
---@return string file
function M.load(name, opts)
  local m, file, where = script.load("models", name, opts)
  if not M.is(m) then err.throw { code = "model_error", message = "model: the file does not return a tpl.model", where = where } end
  m.where = where
  return m, file
end

--- Say whether a value is a model definition.
function M.is(x) return getmetatable(x) == Model end

--- Give the checkpoint's name of a weight; nil if the definition does not say.
---@param style string   "hf" or "gguf"
---@param weight string  "blk.3.q_proj", "norm", "blk.3.q_proj.bias"
---@return string?
function Model:tensor(style, weight)
  local layer, base = weight:match("^blk%.(%d+)%.(.+)$")
  local pattern = (self.names[style] or {})[base or weight]
  if not pattern then return nil end
  return (pattern:gsub("{i}", layer or ""))
end

return setmetatable(M, { __call = function(_, t) return M.new(t) end })
