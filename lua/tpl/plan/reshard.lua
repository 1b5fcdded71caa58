-- SPDX-License-Identifier: Apache-2.0
--- Get a value from the placement it has to the one a mark wants (layout.md 2.5): the only automatic communication.
--- Axes that do the same thing share one collective; several things happen in a fixed order, the cheapest data first.
--- Of a dim cut by several axes only the innermost may change alone, because pieces nest from the outside in.
local conflict = require "tpl.plan.conflict"
local util = require "tpl.util"

local M = {}

local order = { "reduce_scatter", "all_reduce", "all_to_all", "all_gather", "slice" }

--- Refuse where `axes` change on `dim` while an axis inside them splits it.
function M.check_inner(st, pl, dim, axes, mark)
  local outer
  for _, a in ipairs(st.mesh.axes) do
    if util.has(axes, a) then outer = a
    elseif outer and pl[a] and pl[a].dim == dim then conflict.inner(st, mark, dim, outer, a) end
  end
end

local function with(pl, axes, dim)
  local out = util.copy(pl)
  for _, a in ipairs(axes) do out[a] = dim and { k = "S", dim = dim } or nil end
  return out
end

--- Keep only this rank's part of a value that is whole on an axis; no communication.
function M.slice(st, x, axis, dim, mark)
  M.check_inner(st, x.pl, dim, { axis }, mark)
  local y = st:term(x.dims, with(x.pl, { axis }, dim), x)
  if st.mesh.size[axis] == 1 then
    y.value = x.value
    return y
  end
  y.value = st:value(x.value.name, y)
  st:emit { kind = "slice", name = mark .. ".slice", ins = { x.value }, outs = { y.value }, attrs = { axis = axis, dim = dim } }
  return y
end

local function collective(st, kind, x, pl, axes, attrs, mark)
  local y = st:term(x.dims, pl, x)
  attrs.axes = st:wide(axes)
  if #attrs.axes == 0 then
    y.value = x.value
    return y
  end
  y.value = st:value(x.value.name, y)
  st:emit { kind = kind, name = mark .. "." .. kind, ins = { x.value }, outs = { y.value }, attrs = attrs, comm = true }
  return y
end

local function reduce(st, x, step, mark)
  local op = x.pl[step.axes[1]].op
  if step.dim then M.check_inner(st, x.pl, step.dim, step.axes, mark) end
  if op == "lse" then st.needs.lse = true end
  return collective(st, step.kind, x, with(x.pl, step.axes, step.dim), step.axes, { op = op, dim = step.dim }, mark)
end

local function gather(st, x, step, mark)
  M.check_inner(st, x.pl, step.from, step.axes, mark)
  return collective(st, "all_gather", x, with(x.pl, step.axes), step.axes, { dim = step.from, from = step.from }, mark)
end

-- The target dim must take the axes from the outside in, as a slice would, once the source dim has given them up.
local function swap(st, x, step, mark)
  M.check_inner(st, x.pl, step.from, step.axes, mark)
  local pl = with(x.pl, step.axes)
  for _, a in ipairs(step.axes) do
    M.check_inner(st, pl, step.dim, { a }, mark)
    pl[a] = { k = "S", dim = step.dim }
  end
  return collective(st, "all_to_all", x, pl, step.axes, { dim = step.dim, from = step.from }, mark)
end

--- Reshard x to the placement `want` at a mark.
---@param st table      the typing state
---@param x table       term
---@param want table    axis -> placement
---@param mark string   full name of the mark
---@param op table      the mark's record
---@return table term
function M.to(st, x, want, mark, op)
  local steps = {}
  local target = { dims = x.dims, pl = want, name = "wants" }
  for _, kind in ipairs(order) do steps[kind] = {} end
  for _, a in ipairs(st.mesh.axes) do
    local p, w = x.pl[a], want[a]
    local row = st:rule(p and p.op == "lse" and "mark_lse" or "mark", op, a, { x, target })
    local kind, dim, from = row.out, w and w.dim, p and p.dim
    if kind ~= "none" then
      local same
      for _, s in ipairs(steps[kind]) do if s.dim == dim and s.from == from and s.op == (p and p.op) then same = s end end
      if same then table.insert(same.axes, a)
      else table.insert(steps[kind], { kind = kind, axes = { a }, dim = dim, from = from, op = p and p.op }) end
    end
  end
  for _, kind in ipairs(order) do
    for _, s in ipairs(steps[kind]) do
      if s.op then x = reduce(st, x, s, mark)
      elseif kind == "all_gather" then x = gather(st, x, s, mark)
      elseif kind == "all_to_all" then x = swap(st, x, s, mark)
      else
        for _, a in ipairs(s.axes) do x = M.slice(st, x, a, s.dim, mark) end
      end
    end
  end
  return x
end

return M
