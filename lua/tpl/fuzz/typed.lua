-- SPDX-License-Identifier: Apache-2.0
--- Run a typed graph on simulated ranks, in double precision. Every rank keeps each tensor at its global size with NaN where its
--- placement gives it nothing, so that an op which reads what a rank does not hold shows at once. What an op computes follows
--- layout.md 2.4; which entries it computes follows from the placement of its result alone.
local ffi = require "ffi"
local index_ranges = require "tpl.plan.index_ranges"
local marks = require "tpl.plan.marks"

local M = {}

local nan = 0 / 0
local exp, log, sqrt, floor = math.exp, math.log, math.sqrt, math.floor

local Run = {}
Run.__index = Run

-- -- What a rank holds --------------------------------------------------------------------------------------

-- Global indices of a dim that a 0-based rank holds under a placement. tok and out are cut evenly.
function Run:held(pl, dim, rank)
  local mesh = self.mesh
  local axes = marks.axes_of(mesh, pl, dim)
  local at = mesh:index(rank, axes)
  local key = dim .. "@" .. table.concat(axes, "+") .. "/" .. at
  local list = self.lists[key]
  if list then return list end
  list = {}
  if dim == "tok" or dim == "out" then
    local n = self.sizes[dim] / mesh:pieces(axes)
    assert(n % 1 == 0, "the step does not divide")
    for i = 1, n do list[i] = at * n + i - 1 end
  else
    for _, g in ipairs(index_ranges.held(self.graph, pl, dim, rank)) do
      for i = g[1], g[1] + g[2] - 1 do list[#list + 1] = i end
    end
  end
  self.lists[key] = list
  return list
end

local function flat(lists, strides)
  local out = { 0 }
  for k, list in ipairs(lists) do
    local s, longer, n = strides[k], {}, 0
    for i = 1, #out do
      local b = out[i]
      for j = 1, #list do
        n = n + 1
        longer[n] = b + list[j] * s
      end
    end
    out = longer
  end
  return out
end

function Run:strides(dims)
  local by, n = {}, 1
  for i = #dims, 1, -1 do
    by[dims[i]] = n
    n = n * self.sizes[dims[i]]
  end
  return by, n
end

-- Offsets into a tensor over `dims`, of the entries of the dims `some` that a rank holds under `pl`.
function Run:offsets(dims, some, pl, rank)
  local by, lists, strides = self:strides(dims), {}, {}
  for i, d in ipairs(some) do lists[i], strides[i] = self:held(pl, d, rank), by[d] end
  return flat(lists, strides)
end

function Run:owned(v, rank) return self:offsets(v.dims, v.dims, v.pl, rank) end

local function filled(n)
  local data = ffi.new("double[?]", n)
  for i = 0, n - 1 do data[i] = nan end
  return data
end

-- A tensor on every rank: [rank + 1] = {x=, lse=}; lse is there for attention partials, one for each head of a row.
function Run:make(v)
  local _, n = self:strides(v.dims)
  local t = {}
  for r = 1, self.mesh.n do t[r] = { x = filled(n) } end
  self.data[v.id] = t
  return t
end

-- A rank's copy of a weight with NaN outside its shard.
function Run:weight(w, rank)
  local per = self.shards[w.name] or {}
  self.shards[w.name] = per
  if per[rank] then return per[rank] end
  local whole, _, n = self.weights[w.name], self:strides(w.dims)
  local data = filled(n)
  for _, o in ipairs(self:offsets(w.dims, w.dims, w.pl, rank)) do data[o] = whole[o] end
  per[rank] = data
  return data
end

local function without(dims, gone)
  local out = {}
  for _, d in ipairs(dims) do
    local keep = true
    for _, g in ipairs(gone) do keep = keep and d ~= g end
    if keep then out[#out + 1] = d end
  end
  return out
end

-- -- Ops ----------------------------------------------------------------------------------------------------

local ops = {}

-- f(x of the operands on this rank, y, offsets of y) for each rank.
local function each_rank(self, op, f)
  local v = op.outs[1]
  local y = self:make(v)
  for rank = 0, self.mesh.n - 1 do
    local ins = {}
    for i, x in ipairs(op.ins) do ins[i] = self.data[x.id][rank + 1].x end
    f(rank, y[rank + 1].x, v, ins)
  end
end

-- Where the token ids lie is the layout's input; positions are known everywhere.
local function ids_placement(self, op)
  local pl = {}
  for _, a in ipairs(op.attrs.ids == "tok" and self.graph.bound.input.tok or {}) do pl[a] = { k = "S", dim = "tok" } end
  return pl
end

function ops.embed(self, op)
  local w, feed, ids_pl = op.ws[1], self.feed, ids_placement(self, op)
  each_rank(self, op, function(rank, y, v)
    local rows_of, rows, known = self:weight(w, rank), {}, {}
    local ids = op.attrs.ids == "pos" and feed.pos or feed.ids
    for _, i in ipairs(self:held(w.pl, op.attrs.vocab, rank)) do rows[i] = true end
    for _, t in ipairs(self:held(ids_pl, "tok", rank)) do known[t] = true end
    local embd = self:held(v.pl, "embd", rank)
    for _, t in ipairs(self:held(v.pl, "tok", rank)) do
      local id, n = ids[t + 1], self.sizes.embd
      for _, e in ipairs(embd) do y[t * n + e] = not known[t] and nan or rows[id] and rows_of[id * n + e] or 0 end
    end
  end)
end

function ops.linear(self, op)
  local x_dims, w, con, out = op.ins[1].dims, op.ws[1], op.attrs.con, op.attrs.out
  each_rank(self, op, function(rank, y, v, ins)
    local x, weight, x_pl = ins[1], self:weight(w, rank), op.ins[1].pl
    local pass = without(x_dims, con)
    local xb, xc = self:offsets(x_dims, pass, v.pl, rank), self:offsets(x_dims, con, x_pl, rank)
    local wo, wc = self:offsets(w.dims, out, v.pl, rank), self:offsets(w.dims, con, x_pl, rank)
    local yb, yo = self:offsets(v.dims, pass, v.pl, rank), self:offsets(v.dims, out, v.pl, rank)
    for i = 1, #yb do
      for o = 1, #yo do
        local sum, b, r = 0, xb[i], wo[o]
        for c = 1, #xc do sum = sum + x[b + xc[c]] * weight[r + wc[c]] end
        y[yb[i] + yo[o]] = sum
      end
    end
  end)
end

function ops.bias(self, op)
  local w = op.ws[1]
  each_rank(self, op, function(rank, y, v, ins)
    local on = true
    for _, a in ipairs(op.attrs.first_only) do on = on and self.mesh:coord(rank, a) == 0 end
    local weight, pass = self:weight(w, rank), without(v.dims, op.attrs.out)
    local yb, yo = self:offsets(v.dims, pass, v.pl, rank), self:offsets(v.dims, op.attrs.out, v.pl, rank)
    local wo = self:offsets(w.dims, op.attrs.out, v.pl, rank)
    for i = 1, #yb do
      for o = 1, #yo do y[yb[i] + yo[o]] = ins[1][yb[i] + yo[o]] + (on and weight[wo[o]] or 0) end
    end
  end)
end

local function silu(x) return x / (1 + exp(-x)) end

local function elementwise(f)
  return function(self, op)
    each_rank(self, op, function(rank, y, v, ins)
      local a, b = ins[1], ins[2]
      for _, o in ipairs(self:owned(v, rank)) do y[o] = f(a[o], b and b[o]) end
    end)
  end
end
ops.add = elementwise(function(a, b) return a + b end)
ops.silu_mul = elementwise(function(a, b) return silu(a) * b end)
ops.act = elementwise(silu) -- any function that is not linear does

function ops.norm(self, op)
  local x_v, w, over = op.ins[1], op.ws[1], op.attrs.over
  local pass, sums, n = without(x_v.dims, over), {}, 1
  for _, d in ipairs(over) do n = n * self.sizes[d] end
  for rank = 0, self.mesh.n - 1 do -- the sum over what a rank holds, by the row's offset
    local x, mine = self.data[x_v.id][rank + 1].x, {}
    local xo = self:offsets(x_v.dims, over, x_v.pl, rank)
    for _, b in ipairs(self:offsets(x_v.dims, pass, x_v.pl, rank)) do
      local s = 0
      for _, o in ipairs(xo) do s = s + x[b + o] ^ 2 end
      mine[b] = s
    end
    sums[rank] = mine
  end
  local total = sums
  if op.attrs.stats then
    total = {}
    for _, group in ipairs(self.mesh:groups(op.attrs.stats)) do
      local all = {}
      for _, r in ipairs(group) do for b, s in pairs(sums[r]) do all[b] = (all[b] or 0) + s end end
      for _, r in ipairs(group) do total[r] = all end
    end
  end
  each_rank(self, op, function(rank, y, v, ins)
    local weight = self:weight(w, rank)
    local xo, wo = self:offsets(v.dims, over, v.pl, rank), self:offsets(w.dims, over, v.pl, rank)
    for _, b in ipairs(self:offsets(v.dims, pass, v.pl, rank)) do
      local scale = 1 / sqrt((total[rank][b] or nan) / n + op.attrs.eps)
      for i, o in ipairs(xo) do y[b + o] = ins[1][b + o] * scale * weight[wo[i]] end
    end
  end)
end

function ops.rope(self, op)
  local t, hd = self.config[op.attrs.table], self.sizes.hd
  local half = t.mode == "half"
  each_rank(self, op, function(rank, y, v, ins)
    local x, stride = ins[1], self:strides(v.dims).tok
    local heads = without(v.dims, { "tok", "hd" })
    local at, mine = self:offsets(v.dims, heads, v.pl, rank), {}
    for _, d in ipairs(self:held(v.pl, "hd", rank)) do mine[d] = true end
    for _, tok in ipairs(self:held(v.pl, "tok", rank)) do
      for _, h in ipairs(at) do
        local base = tok * stride + h
        for i = 0, t.dim / 2 - 1 do
          local a, b = half and i or 2 * i, half and i + t.dim / 2 or 2 * i + 1
          local turn = self.feed.pos[tok + 1] * t.freqs[i + 1]
          local c, s = math.cos(turn), math.sin(turn)
          if mine[a] then y[base + a] = x[base + a] * c - x[base + b] * s end
          if mine[b] then y[base + b] = x[base + a] * s + x[base + b] * c end
        end
        for d = t.dim, hd - 1 do if mine[d] then y[base + d] = x[base + d] end end
      end
    end
  end)
end

-- The tokens of one query among `list`, and which of them this rank's part of the cache holds.
local function visible(feed, tok, list, owner, pieces)
  local out = {}
  for _, j in ipairs(list) do
    local sees = feed.req[j + 1] == feed.req[tok + 1] and feed.pos[j + 1] <= feed.pos[tok + 1]
    if sees and (pieces == 1 or feed.pos[j + 1] % pieces == owner) then out[#out + 1] = j end
  end
  return out
end

function ops.attend(self, op)
  local q_v, k_v = op.ins[1], op.ins[2]
  local hd, scale, cached = self.sizes.hd, op.attrs.scale, {}
  for _, a in ipairs(self.mesh.axes) do if self.graph.bound.cache[a] and self.mesh.size[a] > 1 then cached[#cached + 1] = a end end
  local pieces, is_partial = self.mesh:pieces(cached), false
  for _, p in pairs(op.outs[1].pl) do is_partial = is_partial or p.op == "lse" end
  local ks, qs = self:strides(k_v.dims), self:strides(q_v.dims)
  each_rank(self, op, function(rank, y, v, ins)
    local q, k, val, lse = ins[1], ins[2], ins[3], nil
    if is_partial then
      lse = {}
      self.data[v.id][rank + 1].lse = lse
    end
    local dims, keys = self:held(q_v.pl, "hd", rank), self:held(k_v.pl, "tok", rank)
    for _, tok in ipairs(self:held(v.pl, "tok", rank)) do
      local list = visible(self.feed, tok, keys, self.mesh:index(rank, cached), pieces)
      for _, h in ipairs(self:held(v.pl, "kvh", rank)) do
        for _, g in ipairs(self:held(v.pl, "grp", rank)) do
          local base, most, scores = tok * qs.tok + h * qs.kvh + g * qs.grp, -math.huge, {}
          for i, j in ipairs(list) do
            local s, at = 0, j * ks.tok + h * ks.kvh
            for _, d in ipairs(dims) do s = s + q[base + d] * k[at + d] end
            scores[i] = s * scale
            most = (scores[i] > most or scores[i] ~= scores[i]) and scores[i] or most
          end
          local sum = 0
          for i = 1, #list do
            scores[i] = exp(scores[i] - most)
            sum = sum + scores[i]
          end
          for _, d in ipairs(self:held(v.pl, "hd", rank)) do
            local o = 0
            for i, j in ipairs(list) do o = o + scores[i] * val[j * ks.tok + h * ks.kvh + d] end
            y[base + d] = sum > 0 and o / sum or sum ~= sum and nan or 0
          end
          if lse then lse[base / hd] = sum > 0 and most + log(sum) or -math.huge end
        end
      end
    end
  end)
end

function ops.rows(self, op)
  local x_v = op.ins[1]
  each_rank(self, op, function(rank, y, v, ins)
    local n, mine = self.sizes.embd, {}
    for _, t in ipairs(self:held(x_v.pl, "tok", rank)) do mine[t] = true end
    for _, o in ipairs(self:held(v.pl, "out", rank)) do
      local t = self.feed.out[o + 1]
      for _, e in ipairs(self:held(v.pl, "embd", rank)) do y[o * n + e] = mine[t] and ins[1][t * n + e] or 0 end
    end
  end)
end

function ops.sample(self, op)
  each_rank(self, op, function(rank, y, v, ins)
    local n = self.sizes.vocab
    for _, o in ipairs(self:held(v.pl, "out", rank)) do
      local best = 0
      for i = 0, n - 1 do
        local x = ins[1][o * n + i]
        if x ~= x then best = nan end
        if best == best and x > ins[1][o * n + best] then best = i end
      end
      y[o] = best
    end
  end)
end

-- -- Reshards -----------------------------------------------------------------------------------------------

local function carry(hd, from, to, o)
  to.x[o] = from.x[o]
  if from.lse then to.lse[floor(o / hd)] = from.lse[floor(o / hd)] end
end

-- Several members' attention partials of one entry: value and log-sum-exp.
local function merge(hd, parts, o)
  local most, sum, value, h = -math.huge, 0, 0, floor(o / hd)
  for _, p in ipairs(parts) do
    local l = p.lse[h]
    if l == nil then return nan, nan end
    if l > most then most = l end
  end
  for _, p in ipairs(parts) do
    local weight = p.lse[h] == -math.huge and 0 or exp(p.lse[h] - most)
    sum, value = sum + weight, value + (weight > 0 and weight * p.x[o] or 0)
  end
  if sum == 0 then return 0, -math.huge end
  return value / sum, most + log(sum)
end

function ops.slice(self, op)
  local x, v = self.data[op.ins[1].id], op.outs[1]
  local y = self:make(v)
  for rank = 0, self.mesh.n - 1 do
    local from, to = x[rank + 1], y[rank + 1]
    if from.lse then to.lse = {} end
    for _, o in ipairs(self:owned(v, rank)) do carry(self.sizes.hd, from, to, o) end
  end
end

local function members(x, group)
  local out = {}
  for i, r in ipairs(group) do out[i] = x[r + 1] end
  return out
end

local function reduce(self, op)
  local x, v = self.data[op.ins[1].id], op.outs[1]
  local y, is_lse, still = self:make(v), op.attrs.op == "lse", false
  for _, p in pairs(v.pl) do still = still or p.op == "lse" end
  for _, group in ipairs(self.mesh:groups(op.attrs.axes)) do
    local parts = members(x, group)
    for _, r in ipairs(group) do
      local to = y[r + 1]
      if still then to.lse = {} end
      for _, o in ipairs(self:owned(v, r)) do
        if is_lse then
          local value, l = merge(self.sizes.hd, parts, o)
          to.x[o] = value
          if still then to.lse[floor(o / self.sizes.hd)] = l end
        else
          local sum = 0
          for _, p in ipairs(parts) do sum = sum + p.x[o] end
          to.x[o] = sum
        end
      end
    end
  end
end
ops.all_reduce, ops.reduce_scatter = reduce, reduce

-- What a group holds together; each member keeps the part that its new placement names.
local function exchange(self, op)
  local x_v, v = op.ins[1], op.outs[1]
  local x, y = self.data[x_v.id], self:make(v)
  local _, n = self:strides(v.dims)
  for _, group in ipairs(self.mesh:groups(op.attrs.axes)) do
    local union = { x = filled(n), lse = x[group[1] + 1].lse and {} }
    for _, r in ipairs(group) do
      for _, o in ipairs(self:owned(x_v, r)) do carry(self.sizes.hd, x[r + 1], union, o) end
    end
    for _, r in ipairs(group) do
      y[r + 1].lse = union.lse and {}
      for _, o in ipairs(self:owned(v, r)) do carry(self.sizes.hd, union, y[r + 1], o) end
    end
  end
end
ops.all_gather, ops.all_to_all, ops.gather = exchange, exchange, exchange

-- -- Running and comparing ----------------------------------------------------------------------------------

---@class tpl.fuzz.Feed
---@field ids integer[]  token ids of a step
---@field pos integer[]  position of each
---@field req integer[]  request of each
---@field out integer[]  0-based tokens whose logits are wanted

--- Run a graph. Raises where the graph itself makes no sense.
---@param graph tpl.Graph
---@param config table
---@param weights table<string, ffi.cdata*>  whole weights, doubles in the order of their dims
---@param feed tpl.fuzz.Feed
---@return table run  {graph, data: value id -> per rank {x: double array, lse: table?}, sizes}
function M.run(graph, config, weights, feed)
  local sizes = { tok = #feed.ids, out = #feed.out }
  for d, n in pairs(graph.sizes) do sizes[d] = n end
  local self = setmetatable({ graph = graph, mesh = graph.mesh, config = config, weights = weights, feed = feed, sizes = sizes,
    data = {}, lists = {}, shards = {} }, Run)
  for _, op in ipairs(graph.ops) do assert(ops[op.kind], op.kind)(self, op) end
  return self
end

--- Give the values of a run on one rank: name -> double array, and how many entries each has.
---@return table<string, ffi.cdata*>
---@return table<string, integer>
function M.values(run)
  local out, n = {}, {}
  for _, v in ipairs(run.graph.values) do
    local _, count = run:strides(v.dims)
    out[v.name], n[v.name] = run.data[v.id][1].x, count
  end
  return out, n
end

--- Largest magnitude of an array, at least 1: what a difference is measured against.
function M.scale(data, n)
  local most = 1
  for i = 0, n - 1 do most = math.max(most, math.abs(data[i])) end
  return most
end

-- The value that a group of ranks holds together at an offset.
local function joined(run, parts, is_lse, o)
  if is_lse then return (merge(run.sizes.hd, parts, o)) end
  local sum = 0
  for _, p in ipairs(parts) do sum = sum + p.x[o] end
  return sum
end

--- Find the first entry of a cut run that is not that of one rank: {op, rank, index, got, want}, or nil.
---@param run table
---@param whole table<string, ffi.cdata*>  of one rank, by name
---@param count table<string, integer>
---@param tolerance number                 of the largest magnitude
function M.differs(run, whole, count, tolerance)
  for _, v in ipairs(run.graph.values) do
    local want, sums, is_lse = whole[v.name], {}, false
    for _, a in ipairs(run.mesh.axes) do
      local p = v.pl[a]
      if p and p.k == "P" then
        sums[#sums + 1] = a
        is_lse = is_lse or p.op == "lse"
      end
    end
    local room = tolerance * M.scale(want, count[v.name])
    for _, group in ipairs(run.mesh:groups(sums)) do
      local parts = members(run.data[v.id], group)
      for _, o in ipairs(run:owned(v, group[1])) do
        local got = joined(run, parts, is_lse, o)
        local is_close = math.abs(got - want[o]) <= room -- false for NaN
        if not is_close then
          return { op = v.name, rank = group[1], index = o, got = got, want = want[o] }
        end
      end
    end
  end
end

return M
