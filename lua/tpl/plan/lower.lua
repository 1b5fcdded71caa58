-- SPDX-License-Identifier: Apache-2.0
--- Turn a typed graph into ops on buffers: placements become columns and index lists of each rank, marks are
--- gone, kinds are those of kernels/ops.h. Nothing is fused and nothing is placed in memory yet. Pure.
local err = require "tpl.err"
local index_ranges = require "tpl.plan.index_ranges"
local marks = require "tpl.plan.marks"
local partition = require "tpl.plan.partition"

local M = {}

---@class tpl.LowValue
---@field name string      name of the op that makes it
---@field act string       how its rows are stored: "f32", "q8", "bf16", "q8_bf16" (kernels/ops.h)
---@field sym string       "tok" or "out"
---@field div integer      rows on a rank = rows of the step / div
---@field cols integer[]   columns on each rank (1-based list of the stage's ranks)
---@field dims string[]
---@field pl table         placement, for taps
---@field base string?     of a value that was only moved or cut: the name of what it holds

---@class tpl.LowOp
---@field kind string      as in kernels/ops.h
---@field outs tpl.LowValue[]
---@field ins tpl.LowValue[]
---@field ws table[]       low weights
---@field imm table[]      in order: {i=number|list per rank}, {f=number}, {index=list of ranges per rank}, {table=name}
---@field axes string[]?   of a collective
---@field state table?     {name, layer, kvh=list, hd=number}
---@field root boolean?    only on the stage's first rank
---@field inplace integer? outs[1] is stored where ins[inplace] was

local Low = {}
Low.__index = Low

-- -- Local shapes -------------------------------------------------------------------------------------------

local function is_rows(dim) return dim == "tok" or dim == "out" end

-- The ranges of a dim that a 0-based rank holds of a tensor placed as `pl`.
function Low:ranges(pl, dim, rank)
  return index_ranges.held(self.graph, pl, dim, rank)
end

function Low:each_rank(f)
  local out = {}
  for r = 0, self.mesh.n - 1 do out[r + 1] = f(r) end
  return out
end

-- What a placement says of each axis, as a key: layers of a model are placed alike.
function Low:key(pl, dims)
  local words = {}
  for i, a in ipairs(self.mesh.axes) do
    local p = pl[a]
    words[i] = p and p.k .. (p.dim or "") or "-"
  end
  return table.concat(dims, ".") .. "|" .. table.concat(words, ",")
end

-- Gives f(rank) of all ranks; lists made for the same key are one table, which nobody changes.
function Low:once(what, pl, dims, f)
  local key = what .. self:key(pl, dims)
  self.known[key] = self.known[key] or self:each_rank(f)
  return self.known[key]
end

-- Product of the local sizes of some dims.
function Low:count(pl, dims, rank)
  local n = 1
  for _, d in ipairs(dims) do n = n * partition.count(self:ranges(pl, d, rank)) end
  return n
end

local function tail(dims, first, last)
  local out = {}
  for i = first, last or #dims do out[#out + 1] = dims[i] end
  return out
end

function Low:value(v, name)
  local axes = marks.axes_of(self.mesh, v.pl, v.dims[1])
  local low = { name = name, act = "f32", sym = v.dims[1], div = self.mesh:pieces(axes), dims = v.dims, pl = v.pl,
    cols = self:once("cols", v.pl, v.dims, function(r) return self:count(v.pl, tail(v.dims, 2), r) end) }
  self.values[v.id] = low
  return low
end

-- The result of moving a value between ranks, or of cutting it: `base` names what it holds, for whoever
-- compares layouts.
function Low:moved(op, ins)
  local low = self:value(op.outs[1], op.name)
  low.base = ins[1].base or ins[1].name
  return low
end

-- This rank's piece of the rows of a value, 0 where they are not cut.
function Low:part(v)
  local axes = marks.axes_of(self.mesh, v.pl, v.dims[1])
  return { i = self:each_rank(function(r) return self.mesh:index(r, axes) end) }
end

function Low:flat(pl, dims, rank)
  return index_ranges.held_flat(self.graph, pl, dims, rank)
end

-- -- Weights ------------------------------------------------------------------------------------------------

local function product(sizes, dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * sizes[d] end
  return n
end

-- A vector is one row; what of it a rank holds follows from its placement in the graph.
function Low:weight(w)
  if self.weights[w.name] then return self.weights[w.name] end
  local is_vector = w.kind == "vector"
  local rows, cols = tail(w.dims, 1, w.n_out), tail(w.dims, w.n_out + 1)
  if is_vector then rows, cols = {}, w.dims end
  local low = { name = w.name, kind = is_vector and "vector" or "matrix", tensor = self.tensor(w.name),
    dtype = w.dtype, layer = w.layer,
    rows = product(self.graph.sizes, rows), cols = product(self.graph.sizes, cols),
    row_index = self:once("flat", w.pl, rows, function(r) return self:flat(w.pl, rows, r) end),
    col_index = self:once("flat", w.pl, cols, function(r) return self:flat(w.pl, cols, r) end) }
  self.weights[w.name] = low
  self.weight_list[#self.weight_list + 1] = low
  return low
end

-- -- Ops ----------------------------------------------------------------------------------------------------

function Low.refuse(_, op, what)
  err.throw { code = "unsupported", exit = 6, where = op.src,
    message = ("op '%s' (%s): no kernel for %s in this version"):format(op.name, op.kind, what) }
end

function Low:emit(op, kind, outs, ins, fields)
  local low = { kind = kind, name = op.name, layer = op.layer, mark = op.mark ~= "" and op.mark or "-",
    src = op.src, outs = outs, ins = ins,
    ws = {}, imm = {} }
  for k, v in pairs(fields or {}) do low[k] = v end
  self.ops[#self.ops + 1] = low
  return low
end

function Low:operands(op)
  local out = {}
  for i, v in ipairs(op.ins) do out[i] = self.values[v.id] end
  return out
end

local lower = {}

function lower.embed(self, op)
  if op.attrs.ids ~= "tok" then self:refuse(op, "learned positions") end
  local v, w = op.outs[1], op.ws[1]
  self:emit(op, "embed", { self:value(v, op.name) }, {}, { ws = { self:weight(w) },
    imm = { { index = self:each_rank(function(r) return self:ranges(w.pl, op.attrs.vocab, r) end) }, self:part(v) } })
end

function lower.norm(self, op)
  if op.attrs.stats then self:refuse(op, "a norm over a split dim (norm_stats)") end
  local over = op.attrs.over
  if #over ~= #op.ins[1].dims - 1 then self:refuse(op, "a norm over part of a row") end
  local ins = self:operands(op)
  self:emit(op, "norm", { self:value(op.outs[1], op.name) }, ins, { ws = { self:weight(op.ws[1]) },
    imm = { { f = op.attrs.eps } } })
end

function lower.linear(self, op)
  local ins = self:operands(op)
  self:emit(op, "linear", { self:value(op.outs[1], op.name) }, ins, { ws = { self:weight(op.ws[1]) },
    imm = { { i = 0 } } })
end

function lower.bias(self, op)
  local ins = self:operands(op)
  local on = self:each_rank(function(r)
    for _, a in ipairs(op.attrs.first_only) do if self.mesh:coord(r, a) > 0 then return 0 end end
    return 1
  end)
  self:emit(op, "bias", { self:value(op.outs[1], op.name) }, ins, { ws = { self:weight(op.ws[1]) },
    imm = { { i = on } }, inplace = 1 })
end

local function binary(kind, inplace)
  return function(self, op)
    local ins = self:operands(op)
    self:emit(op, kind, { self:value(op.outs[1], op.name) }, ins, { inplace = inplace })
  end
end
lower.add, lower.silu_mul = binary("add", 1), binary("silu_mul")

-- Rotary immediates after the head counts: hd rot mode freqs mscale.
function Low:rotary(name)
  local t = self.config[name]
  return { i = self.graph.sizes.hd }, { i = t.dim }, { i = t.mode == "interleaved" and 1 or 0 },
    { table = name }, { f = t.mscale or 1 }
end

local function heads(self, v)
  local dims = tail(v.dims, 2, #v.dims - 1)
  return { i = self:each_rank(function(r) return self:count(v.pl, dims, r) end) }
end

function lower.rope(self, op)
  local v = op.ins[1]
  if v.dims[#v.dims] ~= "hd" then self:refuse(op, "rope of a value without 'hd' last") end
  local ins = self:operands(op)
  local hd, rot, mode, freqs, mscale = self:rotary(op.attrs.table)
  self:emit(op, "rope", { self:value(op.outs[1], op.name) }, ins,
    { imm = { heads(self, v), hd, rot, mode, freqs, mscale, self:part(v) }, inplace = 1 })
end

-- Keys and values go to the cache of the layer, then queries meet the cache.
function lower.attend(self, op)
  local q, k, v = op.ins[1], op.ins[2], op.ins[3]
  for _, p in pairs(op.outs[1].pl) do if p.k == "P" then self:refuse(op, "attention partials") end end
  local ins = self:operands(op)
  local kvh, hd = heads(self, k), self.graph.sizes.hd
  local state = { name = op.name .. ".kv", layer = op.layer, kvh = kvh.i, hd = hd }
  local write = self:emit(op, "kv_write", {}, { ins[2], ins[3] }, { imm = { kvh, { i = hd }, self:part(v) },
    state = state })
  write.name = op.name .. ".kv_write"
  local grp = { i = self:each_rank(function(r) return self:count(q.pl, { "grp" }, r) end) }
  self:emit(op, "attend", { self:value(op.outs[1], op.name) }, { ins[1] },
    { imm = { kvh, grp, { i = hd }, { f = op.attrs.scale }, { i = op.attrs.window }, self:part(q), { i = self.is_exact and 1 or 0 } },
      state = state })
end

function lower.rows(self, op)
  local x, ins = op.ins[1], self:operands(op)
  local axes = marks.axes_of(self.mesh, x.pl, "tok")
  for _, a in ipairs(axes) do if self.mesh.kind[a] == "batch" then self:refuse(op, "batch axes") end end
  self:emit(op, "rows", { self:value(op.outs[1], op.name) }, ins,
    { imm = { { i = #axes > 0 and 1 or 0 }, self:part(x) } })
end

-- The stage's first rank samples every output row.
function lower.sample(self, op)
  if #marks.axes_of(self.mesh, op.ins[1].pl, "out") > 0 then self:refuse(op, "output rows that are cut") end
  self:emit(op, "sample", {}, self:operands(op), { root = true })
end

-- Where a dim lies in a row: local counts before it, and after it, of value v with `dim` counted by `pl`.
function Low:around(v, dim)
  local at
  for i, d in ipairs(v.dims) do if d == dim then at = i end end
  local before, after = tail(v.dims, 2, at - 1), tail(v.dims, at + 1)
  return { i = self:each_rank(function(r) return self:count(v.pl, before, r) end) },
    { i = self:each_rank(function(r) return self:count(v.pl, after, r) end) }
end

-- outer n inner index of a column dim: `whole` holds more of the dim than `part`; index = where part lies in whole.
function Low:cut(whole, part, dim)
  local outer, inner = self:around(whole, dim)
  return outer, { i = self:each_rank(function(r) return partition.count(self:ranges(whole.pl, dim, r)) end) }, inner,
    { index = self:each_rank(function(r) return index_ranges.localize(self:ranges(part.pl, dim, r),
      self:ranges(whole.pl, dim, r)) end) }
end

local by_rows = { { i = 1 }, { i = 0 }, { i = 1 }, { i = -1 } } -- outer n inner index: the rows themselves are cut

function lower.slice(self, op)
  local x, y, ins = op.ins[1], op.outs[1], self:operands(op)
  local a, dim = op.attrs.axis, op.attrs.dim
  if is_rows(dim) then
    local part = { i = self:each_rank(function(r) return self.mesh:coord(r, a) end) }
    self:emit(op, "slice_tok", { self:moved(op, ins) }, ins, { imm = { part } })
  else
    self:emit(op, "slice", { self:moved(op, ins) }, ins, { imm = { self:cut(x, y, dim) } })
  end
end

function lower.all_reduce(self, op)
  if op.attrs.op ~= "sum" then self:refuse(op, "merging attention partials") end
  local ins = self:operands(op)
  self:emit(op, "all_reduce", { self:moved(op, ins) }, ins, { axes = op.attrs.axes })
end

function lower.reduce_scatter(self, op)
  if op.attrs.op ~= "sum" then self:refuse(op, "merging attention partials") end
  local ins = self:operands(op)
  local imm = is_rows(op.attrs.dim) and by_rows or { self:cut(op.ins[1], op.outs[1], op.attrs.dim) }
  self:emit(op, "reduce_scatter", { self:moved(op, ins) }, ins, { axes = op.attrs.axes, imm = imm })
end

function lower.all_gather(self, op)
  local ins = self:operands(op)
  local imm = is_rows(op.attrs.from) and by_rows or { self:cut(op.outs[1], op.ins[1], op.attrs.from) }
  self:emit(op, "all_gather", { self:moved(op, ins) }, ins, { axes = op.attrs.axes, imm = imm })
end

-- The candidates meet on the first member only, and only the stage's first rank samples.
function lower.gather(self, op)
  local ins = self:operands(op)
  self:emit(op, "gather", { self:moved(op, ins) }, ins, { axes = op.attrs.axes,
    imm = { self:cut(op.outs[1], op.ins[1], op.attrs.dim) } })
end

-- Each rank gives up its cut of `from` and takes one of `dim`: described against the value that is whole on both.
function lower.all_to_all(self, op)
  local x, y, ins = op.ins[1], op.outs[1], self:operands(op)
  local whole = { dims = x.dims, pl = {} }
  for a, p in pairs(x.pl) do whole.pl[a] = p end
  for _, a in ipairs(op.attrs.axes) do whole.pl[a] = nil end
  local imm = {}
  for _, side in ipairs { { x, op.attrs.from }, { y, op.attrs.dim } } do
    local list = is_rows(side[2]) and by_rows or { self:cut(whole, side[1], side[2]) }
    for _, v in ipairs(list) do imm[#imm + 1] = v end
  end
  self:emit(op, "all_to_all", { self:moved(op, ins) }, ins, { axes = op.attrs.axes, imm = imm })
end

function lower.input(self, op)
  self:emit(op, "recv", { self:value(op.outs[1], op.name) }, {}, { imm = { { i = 0 } } })
end

function lower.output(self, op)
  self:emit(op, "send", {}, self:operands(op), { imm = { { i = 0 } } })
end

---@class tpl.Lowered
---@field ops tpl.LowOp[]
---@field weights table[]
---@field mesh tpl.Mesh
---@field graph tpl.Graph
---@field config table
---@field values table<integer, tpl.LowValue>  by graph value id

--- Lower a typed graph.
---@param graph tpl.Graph
---@param config table                      normalised config (rotary tables)
---@param tensor fun(weight: string): string  the checkpoint's name of a weight
---@return tpl.Lowered
function M.graph(graph, config, tensor, is_exact)
  local self = setmetatable({ graph = graph, mesh = graph.mesh, config = config, tensor = tensor, is_exact = is_exact, ops = {},
    values = {}, weights = {}, weight_list = {}, known = {} }, Low)
  for _, op in ipairs(graph.ops) do
    if not lower[op.kind] then self:refuse(op, "'" .. op.kind .. "'") end
    lower[op.kind](self, op)
  end
  return { ops = self.ops, weights = self.weight_list, mesh = self.mesh, graph = graph, config = config,
    values = self.values }
end

return M
