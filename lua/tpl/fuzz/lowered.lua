-- SPDX-License-Identifier: Apache-2.0
--- Run lowered ops on simulated ranks as kernels/ops.h describes them, in double precision: compact rows and columns, index lists, and
--- one arena for each rank at the planned offsets, so that a value that is overwritten too early shows. After every op its results are
--- compared with one rank's, through the same index lists as verify.
local ffi = require "ffi"
local index_ranges = require "tpl.plan.index_ranges"
local marks = require "tpl.plan.marks"
local memory = require "tpl.plan.memory"
local typed = require "tpl.fuzz.typed"

local M = {}

local nan = 0 / 0

local Walk = {}
Walk.__index = Walk

local function number(imm, r)
  local x = imm.i or imm.f
  return type(x) == "table" and x[r] or x
end

local function expand(ranges)
  local out = {}
  for _, g in ipairs(ranges) do
    for i = g[1], g[1] + g[2] - 1 do out[#out + 1] = i end
  end
  return out
end

local function check(ok, op, what)
  if not ok then error({ op = op.name, what = what }, 0) end
end

-- -- Memory -------------------------------------------------------------------------------------------------

--- Rows, columns and place of a value on a rank (1-based).
function Walk:view(v, r)
  return { rows = self.counts[v.sym] / v.div, cols = v.cols[r], at = self.memory.offset[v] / 4, mem = self.arena[r] }
end

function Walk:views(op, r)
  local ins, outs = {}, {}
  for i, v in ipairs(op.ins) do ins[i] = self:view(v, r) end
  for i, v in ipairs(op.outs) do outs[i] = self:view(v, r) end
  return ins, outs
end

local function copy_of(x)
  local n = x.rows * x.cols
  local mem = ffi.new("double[?]", math.max(1, n))
  for i = 0, n - 1 do mem[i] = x.mem[x.at + i] end
  return { rows = x.rows, cols = x.cols, at = 0, mem = mem }
end

-- This rank's shard: rows x cols, compact.
function Walk:shard(w, r)
  local per = self.shards[w] or {}
  self.shards[w] = per
  if per[r] then return per[r] end
  local rows, cols, whole = expand(w.row_index[r]), expand(w.col_index[r]), self.weights[w.name]
  local mem = ffi.new("double[?]", math.max(1, #rows * #cols))
  for i = 1, #rows do
    for j = 1, #cols do mem[(i - 1) * #cols + j - 1] = whole[rows[i] * w.cols + cols[j]] end
  end
  per[r] = { rows = #rows, cols = #cols, mem = mem }
  return per[r]
end

-- -- Kernels: f(self, op, r, ins, outs) on one rank -------------------------------------------------------------

local kernels = {}

function kernels.embed(self, op, r, _, outs)
  local y, w, part, row_of = outs[1], self:shard(op.ws[1], r), number(op.imm[2], r), {}
  for i, id in ipairs(expand(op.imm[1].index[r])) do row_of[id] = i - 1 end
  check(w.cols == y.cols, op, "the table has other columns than the result")
  for i = 0, y.rows - 1 do
    local row = row_of[self.feed.ids[part * y.rows + i + 1]]
    for c = 0, y.cols - 1 do y.mem[y.at + i * y.cols + c] = row and w.mem[row * w.cols + c] or 0 end
  end
end

local function norm_rows(op, x, y, w, eps)
  check(w.cols == x.cols, op, "the weight has other columns than x")
  for i = 0, x.rows - 1 do
    local s, from, to = 0, x.at + i * x.cols, y.at + i * y.cols
    for c = 0, x.cols - 1 do s = s + x.mem[from + c] ^ 2 end
    local scale = 1 / math.sqrt(s / x.cols + eps)
    for c = 0, x.cols - 1 do y.mem[to + c] = x.mem[from + c] * scale * w.mem[c] end
  end
end

function kernels.norm(self, op, r, ins, outs) norm_rows(op, ins[1], outs[1], self:shard(op.ws[1], r), op.imm[1].f) end

local function same_shape(op, a, b) check(a.rows == b.rows and a.cols == b.cols, op, "operands of different shapes") end

local function elementwise(f)
  return function(_, op, _, ins, outs)
    local a, b, y = ins[1], ins[2], outs[1]
    same_shape(op, a, b)
    same_shape(op, a, y)
    for i = 0, y.rows * y.cols - 1 do y.mem[y.at + i] = f(a.mem[a.at + i], b.mem[b.at + i]) end
  end
end

local function silu(x) return x / (1 + math.exp(-x)) end
kernels.add = elementwise(function(a, b) return a + b end)
kernels.silu_mul = elementwise(function(a, b) return silu(a) * b end)

function kernels.add_norm(self, op, r, ins, outs)
  kernels.add(self, op, r, ins, outs)
  norm_rows(op, outs[1], outs[2], self:shard(op.ws[1], r), op.imm[1].f)
end

local function product(op, x, w, y)
  check(x.cols == w.cols, op, "x and the weight contract different columns")
  check(y.cols == w.rows and y.rows == x.rows, op, "the result has another shape than the product")
  for i = 0, x.rows - 1 do
    for o = 0, w.rows - 1 do
      local s, a, b = 0, x.at + i * x.cols, o * w.cols
      for c = 0, x.cols - 1 do s = s + x.mem[a + c] * w.mem[b + c] end
      y.mem[y.at + i * y.cols + o] = s
    end
  end
end

function kernels.linear(self, op, r, ins, outs)
  local x = ins[1]
  if number(op.imm[1], r) ~= 1 then
    for k, w in ipairs(op.ws) do product(op, x, self:shard(w, r), outs[k]) end
    return
  end
  local y, g, u = outs[1], copy_of(outs[1]), copy_of(outs[1])
  product(op, x, self:shard(op.ws[1], r), g)
  product(op, x, self:shard(op.ws[2], r), u)
  for i = 0, y.rows * y.cols - 1 do y.mem[y.at + i] = silu(g.mem[i]) * u.mem[i] end
end

function kernels.bias(self, op, r, ins, outs)
  local x, y, w, on = ins[1], outs[1], self:shard(op.ws[1], r), number(op.imm[1], r)
  same_shape(op, x, y)
  check(w.cols == y.cols, op, "the bias has other columns than y")
  for i = 0, y.rows - 1 do
    for c = 0, y.cols - 1 do y.mem[y.at + i * y.cols + c] = x.mem[x.at + i * x.cols + c] + (on == 1 and w.mem[c] or 0) end
  end
end

local function turn_row(x, y, i, heads, hd, t, pos)
  local half = t.mode == 0
  for h = 0, heads - 1 do
    local from, to = x.at + i * x.cols + h * hd, y.at + i * y.cols + h * hd
    for k = 0, t.rot / 2 - 1 do
      local a, b = half and k or 2 * k, half and k + t.rot / 2 or 2 * k + 1
      local turn = pos * t.freqs[k + 1]
      local c, s = math.cos(turn) * t.scale, math.sin(turn) * t.scale
      local p, q = x.mem[from + a], x.mem[from + b]
      y.mem[to + a], y.mem[to + b] = p * c - q * s, p * s + q * c
    end
    for d = t.rot, hd - 1 do y.mem[to + d] = x.mem[from + d] end
  end
end

-- Immediates rot mode freqs mscale, from number k on.
local function rotary(self, op, k)
  return { rot = op.imm[k].i, mode = op.imm[k + 1].i, freqs = self.config[op.imm[k + 2].table].freqs, scale = op.imm[k + 3].f }
end

function kernels.rope(self, op, r, ins, outs)
  local x, y, heads, hd, part = ins[1], outs[1], number(op.imm[1], r), op.imm[2].i, number(op.imm[7], r)
  check(x.cols == heads * hd, op, "the columns are not heads")
  local t = rotary(self, op, 3)
  for i = 0, x.rows - 1 do turn_row(x, y, i, heads, hd, t, self.feed.pos[part * x.rows + i + 1]) end
end

function Walk:cache(state, r)
  local per = self.states[state] or {}
  self.states[state] = per
  per[r] = per[r] or {}
  return per[r]
end

local function write_rows(self, op, r, k, v, part)
  local cache = self:cache(op.state, r)
  check(k.cols == number({ i = op.state.kvh }, r) * op.state.hd and v.cols == k.cols, op, "keys and values do not fit the cache")
  k, v = copy_of(k), copy_of(v)
  for i = 0, k.rows - 1 do cache[part * k.rows + i] = { k = k, v = v, row = i * k.cols } end
end

function kernels.kv_write(self, op, r, ins) write_rows(self, op, r, ins[1], ins[2], number(op.imm[3], r)) end

function kernels.rope_kv(self, op, r, ins, outs)
  local heads, kvh, hd, part = number(op.imm[1], r), number(op.imm[2], r), op.imm[3].i, number(op.imm[8], r)
  local q, k, t = ins[1], copy_of(ins[2]), rotary(self, op, 4)
  check(q.cols == heads * hd and k.cols == kvh * hd, op, "the columns are not heads")
  for i = 0, q.rows - 1 do
    local pos = self.feed.pos[part * q.rows + i + 1]
    turn_row(q, outs[1], i, heads, hd, t, pos)
    turn_row(k, k, i, kvh, hd, t, pos)
  end
  write_rows(self, op, r, k, ins[3], part)
end

-- The tokens of a query that the rank has cached.
local function seen(feed, cache, tok)
  local out = {}
  for j = 0, #feed.ids - 1 do
    if cache[j] and feed.req[j + 1] == feed.req[tok + 1] and feed.pos[j + 1] <= feed.pos[tok + 1] then out[#out + 1] = cache[j] end
  end
  return out
end

local function attend_head(q, from, list, head, hd, scale, y, to)
  local most, scores, sum = -math.huge, {}, 0
  for i, e in ipairs(list) do
    local s, at = 0, e.row + head * hd
    for d = 0, hd - 1 do s = s + q.mem[from + d] * e.k.mem[at + d] end
    scores[i] = s * scale
    most = math.max(most, scores[i])
  end
  for i = 1, #list do
    scores[i] = math.exp(scores[i] - most)
    sum = sum + scores[i]
  end
  for d = 0, hd - 1 do
    local o = 0
    for i, e in ipairs(list) do o = o + scores[i] * e.v.mem[e.row + head * hd + d] end
    y.mem[to + d] = o / sum
  end
end

function kernels.attend(self, op, r, ins, outs)
  local q, y = copy_of(ins[1]), outs[1]
  local kvh, grp, hd, scale, part = number(op.imm[1], r), number(op.imm[2], r), op.imm[3].i, op.imm[4].f, number(op.imm[6], r)
  check(q.cols == kvh * grp * hd and kvh == number({ i = op.state.kvh }, r), op, "the queries do not fit the cache")
  for i = 0, q.rows - 1 do
    local list = seen(self.feed, self:cache(op.state, r), part * q.rows + i)
    for h = 0, kvh * grp - 1 do
      attend_head(q, i * q.cols + h * hd, list, math.floor(h / grp), hd, scale, y, y.at + i * y.cols + h * hd)
    end
  end
end

function kernels.rows(self, op, r, ins, outs)
  local x, y, cut, part = ins[1], outs[1], number(op.imm[1], r), number(op.imm[2], r)
  check(y.rows == #self.feed.out, op, "not every output row is there")
  for o = 0, y.rows - 1 do
    local i = self.feed.out[o + 1] - (cut == 1 and part * x.rows or 0)
    local is_mine = i >= 0 and i < x.rows
    for c = 0, y.cols - 1 do y.mem[y.at + o * y.cols + c] = is_mine and x.mem[x.at + i * x.cols + c] or 0 end
  end
end

-- -- Parts of rows: outer n inner index, from immediate k on ---------------------------------------------------

-- Which columns of the whole row a rank holds, in its order; nil where the rows are cut.
local function part_of(op, k, r)
  local index = op.imm[k + 3]
  if index.i == -1 then return nil end
  local outer, n, inner, out = number(op.imm[k], r), number(op.imm[k + 1], r), number(op.imm[k + 2], r), {}
  local entries = expand(index.index[r])
  for o = 0, outer - 1 do
    for _, i in ipairs(entries) do
      check(i < n, op, "an index list leaves its dim")
      for j = 0, inner - 1 do out[#out + 1] = (o * n + i) * inner + j end
    end
  end
  return out, outer * n * inner
end

function kernels.slice(_, op, r, ins, outs)
  local x, y = ins[1], outs[1]
  local cols, whole = part_of(op, 1, r)
  check(#cols == y.cols and whole == x.cols, op, "the cut has another shape")
  for i = 0, y.rows - 1 do
    for c, g in ipairs(cols) do y.mem[y.at + i * y.cols + c - 1] = x.mem[x.at + i * x.cols + g] end
  end
end

function kernels.slice_tok(_, op, r, ins, outs)
  local x, y = ins[1], outs[1]
  check(x.cols == y.cols, op, "the cut has other columns")
  local first = number(op.imm[1], r) * y.rows
  for i = 0, y.rows * y.cols - 1 do y.mem[y.at + i] = x.mem[x.at + first * x.cols + i] end
end

-- -- Collectives: f(self, op, group of 1-based ranks) ---------------------------------------------------------

local collectives = {}

local function blank(rows, cols)
  local mem = ffi.new("double[?]", math.max(1, rows * cols))
  for i = 0, rows * cols - 1 do mem[i] = nan end
  return { rows = rows, cols = cols, at = 0, mem = mem }
end

-- Puts member m's x into the whole value.
local function put(op, k, m, r, x, whole)
  local cols, n = part_of(op, k, r)
  check(cols and #cols == x.cols and n == whole.cols and x.rows == whole.rows or not cols and x.cols == whole.cols, op, "a member's part does not fit")
  local first = cols and 0 or (m - 1) * x.rows
  for i = 0, x.rows - 1 do
    for c = 0, x.cols - 1 do whole.mem[(first + i) * whole.cols + (cols and cols[c + 1] or c)] = x.mem[x.at + i * x.cols + c] end
  end
end

-- Takes member m's y out of the whole value.
local function take(op, k, m, r, whole, y)
  local cols, n = part_of(op, k, r)
  check(cols and #cols == y.cols and n == whole.cols and y.rows == whole.rows or not cols and y.cols == whole.cols, op, "a member's part does not fit")
  local first = cols and 0 or (m - 1) * y.rows
  for i = 0, y.rows - 1 do
    for c = 0, y.cols - 1 do y.mem[y.at + i * y.cols + c] = whole.mem[(first + i) * whole.cols + (cols and cols[c + 1] or c)] end
  end
end

local function sum_of(self, op, group)
  local total
  for _, r in ipairs(group) do
    local x = self:view(op.ins[1], r)
    total = total or { rows = x.rows, cols = x.cols, at = 0, mem = ffi.new("double[?]", math.max(1, x.rows * x.cols)) }
    same_shape(op, total, x)
    for i = 0, x.rows * x.cols - 1 do total.mem[i] = total.mem[i] + x.mem[x.at + i] end
  end
  return total
end

function collectives.all_reduce(self, op, group)
  local total = sum_of(self, op, group)
  for _, r in ipairs(group) do
    local y = self:view(op.outs[1], r)
    same_shape(op, total, y)
    for i = 0, y.rows * y.cols - 1 do y.mem[y.at + i] = total.mem[i] end
  end
end

function collectives.reduce_scatter(self, op, group)
  local total = sum_of(self, op, group)
  for m, r in ipairs(group) do take(op, 1, m, r, total, self:view(op.outs[1], r)) end
end

local function gathered(self, op, group, rows, cols)
  local whole = blank(rows, cols)
  for m, r in ipairs(group) do put(op, 1, m, r, self:view(op.ins[1], r), whole) end
  return whole
end

function collectives.all_gather(self, op, group)
  local copies = {}
  for i, r in ipairs(group) do
    local y = self:view(op.outs[1], r)
    copies[i] = gathered(self, op, group, y.rows, y.cols)
  end
  for i, r in ipairs(group) do
    local y = self:view(op.outs[1], r)
    for j = 0, y.rows * y.cols - 1 do y.mem[y.at + j] = copies[i].mem[j] end
  end
end

function collectives.gather(self, op, group)
  local y = self:view(op.outs[1], group[1])
  local whole = gathered(self, op, group, y.rows, y.cols)
  for j = 0, y.rows * y.cols - 1 do y.mem[y.at + j] = whole.mem[j] end
end

function collectives.all_to_all(self, op, group)
  local x, r1 = self:view(op.ins[1], group[1]), group[1]
  local cols, n = part_of(op, 1, r1)
  local rows = cols and x.rows or x.rows * #group
  local whole = gathered(self, op, group, rows, cols and n or x.cols)
  for m, r in ipairs(group) do take(op, 5, m, r, whole, self:view(op.outs[1], r)) end
end

-- -- Comparing ----------------------------------------------------------------------------------------------

-- Global columns of a rank's part of a value, in local order.
function Walk:columns(v, r)
  local key = self.placed[v] or {}
  self.placed[v] = key
  if not key[r] then
    local dims = {}
    for i = 2, #v.dims do dims[i - 1] = v.dims[i] end
    key[r] = expand(index_ranges.held_flat(self.graph, v.pl, dims, r - 1))
  end
  return key[r]
end

function Walk:differs(op, v)
  local name = v.base or v.name
  local want, sums, cols = self.whole[name], {}, 1
  if not want then error({ op = op.name, what = "one rank has no value '" .. name .. "'" }, 0) end
  for i = 2, #v.dims do cols = cols * self.graph.sizes[v.dims[i]] end
  for _, a in ipairs(self.mesh.axes) do if v.pl[a] and v.pl[a].k == "P" then sums[#sums + 1] = a end end
  local room = self.tolerance * typed.scale(want, self.n_whole[name])
  for _, group in ipairs(self.mesh:groups(sums)) do
    local r = group[1] + 1
    local columns, row_axes = self:columns(v, r), marks.axes_of(self.mesh, v.pl, v.dims[1])
    local x, parts = self:view(v, r), {}
    check(#columns == x.cols, op, "the result has other columns than its placement says")
    for i, member in ipairs(group) do parts[i] = self:view(v, member + 1) end
    local first = self.mesh:index(r - 1, row_axes) * x.rows
    for i = 0, (op.kind == "gather" and r ~= 1 and 0 or x.rows) - 1 do -- gathered logits are the first rank's only
      for c = 0, x.cols - 1 do
        local got, at = 0, (first + i) * cols + columns[c + 1]
        for _, p in ipairs(parts) do got = got + p.mem[p.at + i * p.cols + c] end
        local is_close = math.abs(got - want[at]) <= room -- false for NaN
        if not is_close then
          return { op = v.name, rank = group[1], index = at, got = got, want = want[at] }
        end
      end
    end
  end
end

-- The stage's first rank samples every output row.
function Walk:sampled(op)
  local x, want = self:view(op.ins[1], 1), self.whole.sample
  check(x.rows == #self.feed.out, op, "the sampling rank does not have every output row")
  check(x.cols == self.graph.sizes.vocab, op, "the sampling rank does not have the whole vocabulary")
  for i = 0, x.rows - 1 do
    local best = 0
    for c = 1, x.cols - 1 do if x.mem[x.at + i * x.cols + c] > x.mem[x.at + i * x.cols + best] then best = c end end
    if best ~= want[i] then return { op = op.name, rank = 0, index = i, got = best, want = want[i] } end
  end
end

---@class tpl.fuzz.WalkOpts
---@field lowered tpl.Lowered
---@field ops tpl.LowOp[]                     of it, perhaps fused
---@field weights table<string, ffi.cdata*>
---@field feed tpl.fuzz.Feed
---@field whole table<string, ffi.cdata*>     one rank's values by name, typed.values
---@field n_whole table<string, integer>
---@field tolerance number                    of a value's largest magnitude

--- Run a lowered program; gives the first entry that is not one rank's, {op, rank, index, got, want} or {op, what}, or nil.
---@param o tpl.fuzz.WalkOpts
---@return table? difference
function M.differs(o)
  local graph, counts = o.lowered.graph, { tok = #o.feed.ids, out = #o.feed.out }
  local self = setmetatable({ graph = graph, mesh = graph.mesh, config = o.lowered.config, weights = o.weights, feed = o.feed, whole = o.whole,
    n_whole = o.n_whole, tolerance = o.tolerance, counts = counts, memory = memory.plan(o.ops, counts), arena = {}, shards = {}, states = {},
    placed = {} }, Walk)
  for r = 1, self.mesh.n do self.arena[r] = blank(1, self.memory.arena / 4).mem end
  local function step(op)
    if op.kind == "sample" then return self:sampled(op) end
    if collectives[op.kind] then
      for _, group in ipairs(self.mesh:groups(op.axes)) do
        local ranks = {}
        for i, r in ipairs(group) do ranks[i] = r + 1 end
        collectives[op.kind](self, op, ranks)
      end
    else
      for r = 1, self.mesh.n do kernels[op.kind](self, op, r, self:views(op, r)) end
    end
    for _, v in ipairs(op.outs) do
      local d = self:differs(op, v)
      if d then return d end
    end
  end
  for _, op in ipairs(o.ops) do
    local ok, d = pcall(step, op)
    if not ok and type(d) ~= "table" then error(d, 0) end
    if d then return d end
  end
end

return M
