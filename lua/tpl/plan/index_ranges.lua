-- SPDX-License-Identifier: Apache-2.0
--- Index lists as ranges {first, count}: which a rank holds of a dim, of several dims flattened, and where some lie within others.
local marks = require "tpl.plan.marks"

local M = {}

--- Give the ranges of a dim that a rank holds of a value or weight.
---@param graph tpl.Graph   typed
---@param pl table          placement: axis -> what it does
---@param dim string
---@param rank integer      0-based, of the stage
---@return integer[][]      {first, count} in ascending order; whole where nothing cuts the dim
function M.held(graph, pl, dim, rank)
  local axes = marks.axes_of(graph.mesh, pl, dim)
  if #axes == 0 then return { { 0, graph.sizes[dim] } } end
  return graph.parts(dim, axes)[graph.mesh:index(rank, axes) + 1]
end

--- Give what a rank holds of several dims, outermost first, as ranges of the flattened index.
function M.held_flat(graph, pl, dims, rank)
  local lists, sizes = {}, {}
  for i, d in ipairs(dims) do lists[i], sizes[i] = M.held(graph, pl, d, rank), graph.sizes[d] end
  return M.flatten(lists, sizes)
end

--- Flatten the ranges of several dims, outermost first, into ranges of the flattened index.
function M.flatten(lists, sizes)
  local flat, inner = { { 0, 1 } }, 1
  for k = #lists, 1, -1 do
    local out = {}
    local function push(first, count)
      local last = out[#out]
      if last and last[1] + last[2] == first then last[2] = last[2] + count else out[#out + 1] = { first, count } end
    end
    local whole = #flat == 1 and flat[1][1] == 0 and flat[1][2] == inner
    for _, g in ipairs(lists[k]) do
      if whole then push(g[1] * inner, g[2] * inner)
      else
        for i = g[1], g[1] + g[2] - 1 do
          for _, f in ipairs(flat) do push(i * inner + f[1], f[2]) end
        end
      end
    end
    flat, inner = out, inner * sizes[k]
  end
  return flat
end

--- Say where the indices of `sub` lie within `super`, as ranges of local positions. Every index of sub is in super.
function M.localize(sub, super)
  local out = {}
  for _, s in ipairs(sub) do
    local at = 0
    for _, g in ipairs(super) do
      local lo, hi = math.max(s[1], g[1]), math.min(s[1] + s[2], g[1] + g[2])
      if lo < hi then
        local first, last = at + lo - g[1], out[#out]
        if last and last[1] + last[2] == first then last[2] = last[2] + hi - lo else out[#out + 1] = { first,
          hi - lo } end
      end
      at = at + g[2]
    end
  end
  return out
end

return M
