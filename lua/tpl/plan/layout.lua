-- SPDX-License-Identifier: Apache-2.0
--- Hold what a layout says: tpl.layout { split=, weights=, at=, .. } over named dims and mesh axes, with the words R and
--- S{dim=axis}. A layout object is a value with :extend{...}. `bind` ties it to a model and a mesh: every name in it is
--- checked, axes and aliases are resolved, and what matches nothing is refused.
local err = require "tpl.err"
local find = require "tpl.plan.find"
local mesh_of = require "tpl.plan.mesh"
local util = require "tpl.util"

local M = {}

local Spec, Gqa, Layout, Bound = {}, {}, {}, {}
Spec.__index, Gqa.__index, Bound.__index = Spec, Gqa, Bound

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
  local value, file, where = find.load("layouts", name, opts)
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

-- Binding to a model and a mesh -------------------------------------------------------------------------------------

-- The state fields of a phase must be those of the layout; activations are put over it.
local function with_phase(l, phase)
  if not l.phase then return l end
  local where = M.where(l)
  for name, sub in util.pairs(l.phase) do
    for _, f in ipairs { "split", "weights", "kv", "shares", "map", "mesh" } do
      local empty = type(sub[f]) == "table" and next(sub[f]) == nil
      if sub[f] ~= nil and not empty and not util.same(sub[f], l[f]) then
        refuse(where, "layout.phase.%s.%s: state is placed alike in all phases, a phase changes activations only", name, f)
      end
    end
  end
  local sub = phase and l.phase[phase]
  if not sub then return l end
  return l:extend({ at = sub.at, input = sub.input, norm_stats = sub.norm_stats, replace = sub.replace }, where)
end

-- Finds how gqa{axis} is spelled on this mesh: the mesh, maybe factored, and the axes of kvh and grp.
local function solve_gqa(mesh, axis, units, where)
  local n = mesh.size[axis]
  if not n then refuse(where, "tpl.gqa: the mesh has no axis '%s' (axes: %s)", axis, table.concat(mesh.axes, ",")) end
  for tk = math.min(n, units:count("kvh")), 1, -1 do
    local tg = n / tk
    if n % tk == 0 and tg <= units:count("grp") then
      if tg == 1 then break end
      local k, g = axis:gsub("p$", "") .. "k", axis:gsub("p$", "") .. "g"
      if mesh.size[k] or mesh.size[g] then refuse(where, "tpl.gqa: the mesh already has an axis '%s' or '%s'", k, g) end
      return mesh:factor(axis, { { k, tk }, { g, tg } }), { kvh = k, grp = g }
    end
  end
  return mesh, { kvh = axis }
end

local function gqa_uses(l)
  local axes = {}
  local function look(split)
    for dim, v in util.pairs(split or {}) do
      if getmetatable(v) == Gqa then
        if dim ~= "kvh" then refuse(M.where(l), "tpl.gqa is for dim kvh, not '%s'", dim) end
        axes[v.axis] = true
      end
    end
  end
  look(l.split)
  for _, f in ipairs { "weights", "at" } do
    for _, s in util.pairs(l[f] or {}) do if is_spec(s) then look(s.split) end end
  end
  return util.keys(axes)
end

local function short_of(mark) return mark:match("^blk%.%d+%.(.+)$") or mark end

-- What a glob matches among the marks (by short or full name) or the weights of a model: names, and the dims seen there.
-- Kept with the trace, because the search for fixes binds many layouts that differ in one entry.
local function matched(trace, kind, pattern)
  local key = kind .. " " .. pattern
  local hit = trace.globs[key]
  if hit then return hit end
  hit = { names = {}, dims = {} }
  local matches = util.glob(pattern)
  local function take(name, dims)
    hit.names[name] = true
    for _, d in ipairs(dims) do hit.dims[d] = true end
  end
  if kind == "at" then
    for _, full in ipairs(trace.mark_names) do
      if matches(full) or matches(short_of(full)) then
        for _, dims in ipairs(trace.mark_dims[short_of(full)]) do take(full, dims) end
      end
    end
  else
    for _, w in ipairs(trace.weight_list) do if matches(w.name) then take(w.name, w.dims) end end
  end
  trace.globs[key] = hit
  return hit
end

-- dim -> axes in mesh order, with every name checked. `dims`: dim -> true where it may appear.
local function resolve_spec(b, split, what, dims)
  local out = {}
  local function put(dim, axes)
    if axes == false or axes == M.R then return end
    if dim == "req" then dim = "out" end
    if not dims[dim] then
      local known = b.trace.sizes[dim] or dim == "tok" or dim == "out"
      refuse(b.where, known and "%s: nothing there has dim '%s' (dims: %s)" or "%s: the model has no dim '%s' (dims: %s)", what, dim,
        table.concat(util.keys(dims), ","))
    end
    local list, unknown = b.mesh:expand(axes)
    if not list then
      refuse(b.where, "%s: the mesh has no axis '%s' (axes: %s)", what, unknown, table.concat(b.mesh.axes, ","))
    end
    out[dim] = list
  end
  for dim, axes in util.pairs(split) do
    if getmetatable(axes) == Gqa then
      local to = b.gqa[axes.axis]
      put("kvh", to.kvh)
      if to.grp and dims.grp then put("grp", to.grp) end
    else put(dim, axes) end
  end
  return out
end

-- Places each name by the longest glob that matches it; two of one length that both match are refused.
local function place_all(b, kind, entries, names)
  local list, found = {}, {}
  for pattern, spec in util.pairs(entries or {}) do
    local hit, what = matched(b.trace, kind, pattern), ("layout.%s['%s']"):format(kind, pattern)
    if next(hit.names) == nil then
      local known = kind == "at" and " (marks: " .. table.concat(util.keys(b.trace.mark_dims), " ") .. ")" or ""
      refuse(b.where, "%s matches no %s%s", what, kind == "at" and "mark" or "weight", known)
    end
    if type(spec) == "function" then refuse(b.where, "%s: functions at marks are not in this version", what) end
    list[#list + 1] = { pattern = pattern, names = hit.names, placed = resolve_spec(b, spec.split, what, hit.dims) }
  end
  table.sort(list, function(x, y)
    if #x.pattern ~= #y.pattern then return #x.pattern > #y.pattern end
    return x.pattern < y.pattern
  end)
  for _, name in ipairs(names) do
    local best
    for _, e in ipairs(list) do
      if best and #e.pattern < #best.pattern then break end
      if e.names[name] then
        if best then
          refuse(b.where, "layout.%s: '%s' and '%s' both match '%s' and are equally long", kind, best.pattern, e.pattern, short_of(name))
        end
        best = e
      end
    end
    found[name] = best and best.placed
  end
  return found
end

local function check_shares(b, shares)
  for axis, list in util.pairs(shares or {}) do
    local what = ("layout.shares['%s']"):format(axis)
    if b.mesh.alias[axis] then
      refuse(b.where, "%s: '%s' is an alias, give shares for its axes %s", what, axis, table.concat(b.mesh.alias[axis], ", "))
    end
    local n = b.mesh.size[axis]
    if not n then refuse(b.where, "%s: the mesh has no axis '%s' (axes: %s)", what, axis, table.concat(b.mesh.axes, ",")) end
    if #list ~= n then refuse(b.where, "%s has %d shares for %d ranks", what, #list, n) end
    for _, x in ipairs(list) do
      if type(x) ~= "number" or not (x > 0 and x < math.huge) then refuse(b.where, "%s: a share is a number above 0", what) end
    end
  end
  return shares or {}
end

local function check_map(b, map)
  for key in util.pairs(map or {}) do
    local dim, axis = key:match("^([%w_]+)@([%w_]+)$")
    if not dim then refuse(b.where, "layout.map['%s']: a key is dim@axis", key) end
    if not b.trace.sizes[dim] then refuse(b.where, "layout.map['%s']: the model has no dim '%s' that a map could cut", key, dim) end
    if b.mesh.alias[axis] then refuse(b.where, "layout.map['%s']: '%s' is an alias, a map is for one axis", key, axis) end
    if not b.mesh.size[axis] then refuse(b.where, "layout.map['%s']: the mesh has no axis '%s'", key, axis) end
  end
  return map or {}
end

---@class tpl.BoundLayout
---@field mesh tpl.Mesh       maybe factored by tpl.gqa
---@field split table         dim -> axes
---@field input table         dim -> axes
---@field cache table         axis -> true where the KV cache is cut by position
---@field norm_stats boolean

--- Tie a layout to a model, a mesh and the units; raises on every name that is unknown or matches nothing.
---@param layout table
---@param trace tpl.Trace
---@param mesh tpl.Mesh?  the deployment's; the layout's own mesh wins and must have as many ranks
---@param units tpl.Units
---@param opts {phase: string?, shares: table?, where: string?}?
---@return tpl.BoundLayout
function M.bind(layout, trace, mesh, units, opts)
  opts = opts or {}
  local where = M.where(layout) or opts.where
  local l = with_phase(layout, opts.phase)
  local b = setmetatable({ trace = trace, where = where, gqa = {}, layout = layout, cache = {} }, Bound)
  local own = l.mesh and mesh_of.new(l.mesh)
  if own and mesh and own.n ~= mesh.n then
    refuse(where, "layout.mesh %s has %d ranks, the deployment's mesh %s has %d", tostring(own), own.n, tostring(mesh), mesh.n)
  end
  b.mesh = own or mesh or mesh_of.new {}
  for _, axis in ipairs(gqa_uses(l)) do b.mesh, b.gqa[axis] = solve_gqa(b.mesh, axis, units, where) end
  for name in util.pairs(l.replace or {}) do refuse(where, "layout.replace.%s: not in this version", name) end
  for k in util.pairs(l.kv or {}) do if k ~= "pos" then refuse(where, "layout.kv: only 'pos' is known, not '%s'", k) end end
  if l.kv and l.kv.pos then
    local axes, unknown = b.mesh:expand(l.kv.pos)
    if not axes then refuse(where, "layout.kv.pos: the mesh has no axis '%s'", unknown) end
    for _, a in ipairs(axes) do b.cache[a] = true end
  end
  b.shares = check_shares(b, opts.shares or l.shares)
  b.map, b.norm_stats = check_map(b, l.map), l.norm_stats or false
  b.input = resolve_spec(b, l.input and l.input.split or {}, "layout.input", { tok = true })
  local dims = {}
  for d in pairs(trace.sizes) do dims[d] = true end
  b.split = resolve_spec(b, l.split or {}, "layout.split", dims)
  b.weight_found = place_all(b, "weights", l.weights, util.map(trace.weight_list, function(w) return w.name end))
  b.at_found = place_all(b, "at", l.at, trace.mark_names)
  return b
end

--- Give what the layout says of a mark: dim -> axes, or nil where it says nothing.
---@param full string  "blk.3.attn.in"
function Bound:at(full) return self.at_found[full] end

--- Give where a weight lies: dim -> axes.
function Bound:weight(name) return self.weight_found[name] or self.split end

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
function M.parse(text) return find.run("return " .. text, "=layout") end

return setmetatable(M, { __call = function(_, t) return M.new(t, err.position(2)) end })
