-- SPDX-License-Identifier: Apache-2.0
--- Hold what a layout says: tpl.layout { split=, weights=, at=, .. } over named dims and mesh axes, with the words R and
--- S{dim=axis}. A layout object is a value with :extend{...}. Here only its form is checked; plan/bind ties its names to a
--- model and a mesh.
local err = require "tpl.err"
local script = require "tpl.script"
local util = require "tpl.util"

local M = {}

local Spec, Gqa, Layout = {}, {}, {}
Spec.__index, Gqa.__index = Spec, Gqa

local function refuse(where, text, ...)
  err.throw { code = "layout_error", message = text:format(...), where = where }
end

-- Words -------------------------------------------------------------------------------------------------------------

local function axes_text(axes)
  if getmetatable(axes) == Gqa then return ('tpl.gqa("%s")'):format(axes.axis) end
  if type(axes) ~= "table" then return type(axes) == "string" and ("%q"):format(axes) or tostring(axes) end
  return "{" .. table.concat(util.map(axes, function(a) return ("%q"):format(a) end), ", ") .. "}"
end

function Spec:__tostring()
  local out = {}
  for dim, axes in util.pairs(self.split) do out[#out + 1] = util.key_text(dim) .. "=" .. axes_text(axes) end
  return #out == 0 and "R" or "S{" .. table.concat(out, ", ") .. "}"
end

--- Split dims over axes: S{kvh="tp", tok={"dp","tp"}}. Axes that are not named hold the whole.
function M.S(t)
  local where = err.position(2)
  if type(t) ~= "table" then refuse(where, "S expects a table, as in S{tok=\"tp\"}") end
  local split = {}
  for dim, axes in util.pairs(t) do
    if type(dim) ~= "string" then refuse(where, "S{..}: %s is not a name for a dim", tostring(dim)) end
    if type(axes) ~= "string" and type(axes) ~= "table" then refuse(where, "S{%s=..} expects an axis or a list of axes", dim) end
    split[dim] = axes
  end
  return setmetatable({ split = split }, Spec)
end

--- Replicated on every axis.
M.R = setmetatable({ split = {} }, Spec)

--- Split KV heads over an axis, and where it has more ranks than there are KV heads, factor the axis in two: KV heads
--- over the outer part, the query heads of one KV head over the inner, so that KV heads repeat. For the dim kvh only.
function M.gqa(axis)
  if type(axis) ~= "string" then refuse(err.position(2), "tpl.gqa expects the name of an axis") end
  return setmetatable({ axis = axis }, Gqa)
end

local function is_spec(x) return getmetatable(x) == Spec end
M.is_spec = is_spec

--- Say whether a value came from tpl.gqa; its .axis names the axis.
function M.is_gqa(x) return getmetatable(x) == Gqa end

local function is_axes(x)
  if getmetatable(x) == Gqa or type(x) == "string" then return true end
  if type(x) ~= "table" or is_spec(x) then return false end
  for _, a in ipairs(x) do if type(a) ~= "string" then return false end end
  return #x > 0
end

-- Layout objects ----------------------------------------------------------------------------------------------------

-- What one entry of each field may be.
local entry = {
  split = function(v) return v == false or v == M.R or is_axes(v), "an axis, a list of axes, or R" end,
  weights = function(v) return v == false or is_spec(v), "R or S{..}" end,
  at = function(v) return v == false or is_spec(v) or type(v) == "function", "R or S{..}" end,
  kv = function(v) return v == false or is_axes(v), "an axis" end,
  shares = function(v) return v == false or type(v) == "table", "a list of numbers" end,
  map = function(v) return v == false or type(v) == "table", "a list of ranges per rank" end,
  replace = function(v) return v == false or type(v) == "function", "a function" end,
  phase = function(v) return type(v) == "table", "a table" end,
}
local whole = {
  input = function(v) return is_spec(v), "R or S{tok=..}" end,
  norm_stats = function(v) return type(v) == "boolean", "true or false" end,
  mesh = function() return true end,
}

local function check_fields(t, where, what)
  for k, v in util.pairs(t) do
    if whole[k] then
      local ok, want = whole[k](v)
      if not ok then refuse(where, "%s.%s expects %s", what, k, want) end
    elseif not entry[k] then
      refuse(where, "%s has no field '%s'", what, tostring(k))
    elseif type(v) ~= "table" or is_spec(v) then
      refuse(where, "%s.%s expects a table, got %s", what, k, type(v))
    else
      for name, x in util.pairs(v) do
        local ok, want = entry[k](x)
        if type(name) ~= "string" then refuse(where, "%s.%s: %s is not a name", what, k, tostring(name)) end
        if not ok then refuse(where, "%s.%s['%s'] expects %s", what, k, name, want) end
      end
    end
  end
  for name, sub in util.pairs(t.phase or {}) do
    if name ~= "prefill" and name ~= "decode" then refuse(where, "%s.phase: '%s' is neither prefill nor decode", what, name) end
    if getmetatable(sub) ~= Layout then check_fields(sub, where, what .. ".phase." .. name) end
  end
end

local info = setmetatable({}, { __mode = "k" }) -- layout object -> {where=}, apart so that the object holds fields only

local methods = {}
Layout.__index = methods

local function make(t, where)
  check_fields(t, where, "layout")
  local l = setmetatable(util.copy(t), Layout)
  info[l] = { where = where }
  return l
end

--- Make a layout from a table of fields.
function M.new(t, where)
  where = where or err.position(2)
  if type(t) ~= "table" then refuse(where, "tpl.layout expects a table, got %s", type(t)) end
  return make(t, where)
end

--- Say whether a value is a layout object.
function M.is(x) return getmetatable(x) == Layout end

--- Say where a layout was written, "file:line".
function M.where(l) return info[l] and info[l].where end

local function merge(base, patch)
  local out = util.copy(base or {})
  for k, v in pairs(patch) do
    if v == false then out[k] = nil else out[k] = v end
  end
  return out
end

--- Give a layout with the entries of `patch` put over these, field by field; the value false takes an entry away.
---@param patch table
function methods:extend(patch, where)
  where = where or err.position(2)
  if type(patch) ~= "table" then refuse(where, "extend expects a table, got %s", type(patch)) end
  check_fields(patch, where, "layout")
  local out = util.copy(self)
  for k, v in pairs(patch) do
    if whole[k] then out[k] = v
    elseif k == "phase" then
      out.phase = util.copy(out.phase or {})
      for name, sub in pairs(v) do
        local base = out.phase[name]
        out.phase[name] = base and (M.is(base) and base or make(base, where)):extend(sub, where) or sub
      end
    else
      out[k] = merge(out[k], v)
    end
  end
  return make(out, where)
end

--- Load a layout by name or path and put `patch` over it: tpl.use("megatron", {shares={tp={2,1}}}).
function M.use(name, patch)
  local where = err.position(2)
  local base = M.load(name)
  if not patch then return base end
  if type(base) ~= "function" then return base:extend(patch, where) end
  return function(ctx) return M.resolve(base, ctx):extend(patch, where) end
end

--- Load a layout file by name or path; its value is a layout object, or a function of ctx.
---@return any layout
---@return string file
function M.load(name, opts)
  local value, file, where = script.load("layouts", name, opts)
  if M.is(value) then info[value].where = where end
  if M.is(value) or type(value) == "function" then return value, file end
  if type(value) ~= "table" then refuse(where, "a layout file returns a layout, this one a %s", type(value)) end
  return make(value, where), file
end

--- Turn what a deployment gives as its layout (name, table, layout object, function of ctx) into a layout object.
---@param what any
---@param ctx table
---@param opts {dir: string?, path: string?}?
---@return table layout
---@return string? file  which file was taken, for a name
function M.resolve(what, ctx, opts)
  local file
  for _ = 1, 4 do
    if type(what) == "string" then what, file = M.load(what, opts)
    elseif type(what) == "function" then
      local out, e = err.try(what, ctx)
      if e then err.throw(e) end
      what = out
    else break end
  end
  if M.is(what) then return what, file end
  if type(what) ~= "table" then refuse(file, "a layout is a name, a table or a function, got %s", type(what)) end
  return make(what, file or opts and opts.where), file
end

-- Fix texts ---------------------------------------------------------------------------------------------------------

local function value_text(v)
  if is_spec(v) or v == false then return tostring(v) end
  if is_axes(v) then return axes_text(v) end
  if type(v) ~= "table" then return type(v) == "string" and ("%q"):format(v) or tostring(v) end
  local out = {}
  if v[1] ~= nil then
    for i, x in ipairs(v) do out[i] = value_text(x) end
  else
    for k, x in util.pairs(v) do out[#out + 1] = util.key_text(k) .. "=" .. value_text(x) end
  end
  return "{" .. table.concat(out, ", ") .. "}"
end

--- Write a patch as the Lua text that `extend` takes.
function M.text(patch) return value_text(patch) end

--- Read such a text back.
function M.parse(text) return script.evaluate(text) end

return setmetatable(M, { __call = function(_, t) return M.new(t, err.position(2)) end })
