-- SPDX-License-Identifier: Apache-2.0
--- Tie a layout to a model and a mesh: every name in it is checked, globs are matched against the marks and weights, axes
--- and aliases are resolved, tpl.gqa is solved. What is unknown or matches nothing is refused, so a typo cannot pass.
local err = require "tpl.err"
local layouts = require "tpl.plan.layout"
local mesh_of = require "tpl.plan.mesh"
local util = require "tpl.util"

local M = {}

local Bound = {}
Bound.__index = Bound

local function refuse(where, text, ...)
  err.throw { code = "layout_error", message = text:format(...), where = where }
end

-- The state fields of a phase must be those of the layout; activations are put over it.
local function with_phase(l, phase)
  if not l.phase then return l end
  local where = layouts.where(l)
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
      if layouts.is_gqa(v) then
        if dim ~= "kvh" then refuse(layouts.where(l), "tpl.gqa is for dim kvh, not '%s'", dim) end
        axes[v.axis] = true
      end
    end
  end
  look(l.split)
  for _, f in ipairs { "weights", "at" } do
    for _, s in util.pairs(l[f] or {}) do if layouts.is_spec(s) then look(s.split) end end
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
    if axes == false or axes == layouts.R then return end
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
    if layouts.is_gqa(axes) then
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
  local where = layouts.where(layout) or opts.where
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

return M
