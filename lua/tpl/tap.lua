-- SPDX-License-Identifier: Apache-2.0
--- Put the pieces that ranks hold of a value together again: what tap shows and what verify compares. A value
--- is whole on an axis, cut along a dim, or a partial sum; pieces are placed by their index lists, partial sums
--- are added.
local ffi = require "ffi"
local index_ranges = require "tpl.plan.index_ranges"
local marks = require "tpl.plan.marks"

local M = {}

---@class tpl.TapPiece
---@field rank integer          global
---@field rows integer
---@field cols integer
---@field data ffi.cdata*       float *
---@field row0 integer          first global row
---@field index integer[][]     ranges of global columns, in local order
---@field counts boolean        it is one of the pieces that make up the whole

---@class tpl.TapValue
---@field name string
---@field op string
---@field layer integer
---@field mark string
---@field stage integer
---@field dims string[]
---@field sizes integer[]       global sizes of the dims but the first
---@field placement string      "[tok,kvh@tp,grp,hd]"
---@field pl table
---@field axis string?          an axis that cuts or sums it, or that its collective ran over
---@field rows integer          real rows, padding left out
---@field cols integer          global
---@field pieces tpl.TapPiece[]
---@field low_op table

local function index_of(plan)
  local by = {}
  for _, s in ipairs(plan.stages) do
    by[s.i] = {}
    for i, op in ipairs(s.lowered.ops) do by[s.i][i - 1] = { op = op, stage = s } end
  end
  return by
end

-- Global columns of this rank's piece.
local function columns(stage, v, rank)
  local dims = {}
  for i = 2, #v.dims do dims[i - 1] = v.dims[i] end
  return index_ranges.held_flat(stage.graph, v.pl, dims, rank)
end

-- On axes where the value is whole, only the ranks of coordinate 0 count.
local function makes_up(stage, v, rank)
  for _, a in ipairs(stage.mesh.axes) do
    if not v.pl[a] and stage.mesh:coord(rank, a) > 0 then return false end
  end
  return true
end

local function piece(stage, v, t)
  local rank = t.rank - stage.first_rank
  local row_axes = marks.axes_of(stage.mesh, v.pl, v.dims[1])
  return { rank = t.rank, rows = t.rows, cols = t.cols, data = ffi.cast("const float *", t.data),
    row0 = stage.mesh:index(rank, row_axes) * t.rows,
    index = columns(stage, v, rank), counts = makes_up(stage, v, rank) }
end

local function some_axis(stage, op, v)
  if op.axes then return op.axes[1] end
  for _, a in ipairs(stage.mesh.axes) do if v.pl[a] then return a end end
  return stage.mesh.axes[1]
end

local function describe(stage, op, v, t)
  local sizes, cols = {}, 1
  for i = 2, #v.dims do
    sizes[i - 1] = stage.graph.sizes[v.dims[i]]
    cols = cols * sizes[i - 1]
  end
  return { name = v.name, base = v.base or v.name, op = op.name,
    layer = op.layer, mark = op.mark, stage = stage.i, dims = v.dims, sizes = sizes, pl = v.pl,
      axis = some_axis(stage, op, v),
    placement = marks.show(stage.mesh, v.dims, v.pl), rows = t.real_rows, cols = cols, pieces = {}, low_op = op,
      step = t.step, mesh = stage.mesh }
end

--- Sort what ranks left behind into values, in op order, a value of each step apart.
---@param plan table
---@param tapped table[]   of core.engine tap_end
---@return tpl.TapValue[]
function M.values(plan, tapped)
  local by, values, known = index_of(plan), {}, {}
  for _, t in ipairs(tapped) do
    local at = by[t.stage][t.op]
    local v = at.op.outs[t.i_out + 1]
    local key = ("%d/%d/%d/%d"):format(t.step, t.stage, t.op, t.i_out)
    if not known[key] then
      known[key] = describe(at.stage, at.op, v, t)
      known[key].order = { t.step, t.stage, t.op, t.i_out }
      values[#values + 1] = known[key]
    end
    -- the gathered logits exist on the first member of each group only
    if at.op.kind ~= "gather" or t.rank == at.stage.first_rank then table.insert(known[key].pieces,
      piece(at.stage, v, t)) end
  end
  table.sort(values, function(a, b)
    for i = 1, 4 do if a.order[i] ~= b.order[i] then return a.order[i] < b.order[i] end end
    return false
  end)
  for _, v in ipairs(values) do table.sort(v.pieces, function(a, b) return a.rank < b.rank end) end
  return values
end

--- Call f(local index, global index) for every element of a piece that is not padding.
function M.each(value, p, f)
  for r = 0, p.rows - 1 do
    local row = p.row0 + r
    if row < value.rows then
      local at = r * p.cols
      for _, g in ipairs(p.index) do
        for c = g[1], g[1] + g[2] - 1 do
          f(at, row * value.cols + c)
          at = at + 1
        end
      end
    end
  end
end

--- The whole of a value as doubles [rows][cols].
---@param value tpl.TapValue
---@return ffi.cdata* data  double array
function M.whole(value)
  local data = ffi.new("double[?]", math.max(1, value.rows * value.cols))
  for _, p in ipairs(value.pieces) do
    if p.counts then M.each(value, p, function(i, g) data[g] = data[g] + p.data[i] end) end
  end
  return data
end

--- Values of all steps joined along the rows, recombined, for `tap`.
---@param plan table
---@param tapped table[]
---@return table[]
function M.recombine(plan, tapped)
  local out, by = {}, {}
  for _, v in ipairs(M.values(plan, tapped)) do
    local key = v.stage .. "/" .. v.name
    local into = by[key]
    if not into then
      local shapes = {}
      for i, p in ipairs(v.pieces) do shapes[i] = { p.rows, p.cols } end
      into = { name = v.name, op = v.op, stage = v.stage, dims = v.dims, sizes = v.sizes,
        placement = v.placement, rows = 0, cols = v.cols, parts = {}, rank_shapes = shapes }
      by[key] = into
      out[#out + 1] = into
    end
    into.parts[#into.parts + 1] = { rows = v.rows, data = M.whole(v) }
    into.rows = into.rows + v.rows
  end
  for _, v in ipairs(out) do
    v.data = ffi.new("double[?]", math.max(1, v.rows * v.cols))
    local at = 0
    for _, p in ipairs(v.parts) do
      ffi.copy(v.data + at, p.data, p.rows * v.cols * 8)
      at = at + p.rows * v.cols
    end
    v.parts, v.shape = nil, { v.rows, unpack(v.sizes) }
  end
  return out
end

return M
