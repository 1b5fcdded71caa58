-- SPDX-License-Identifier: Apache-2.0
--- Draw a model, a mesh and a layout at random, as plain data: most layouts start near what people write and are then bent. A case
--- depends on its seed and number only, so that any of them can be drawn again alone, on any machine.
--- In a case a spec is {dim = axis | "all"}, {} being R; "all" is an alias of every axis.
local layouts = require "tpl.plan.layout"
local meshes = require "tpl.plan.mesh"
local model_of = require "tpl.fuzz.model"
local trace = require "tpl.plan.trace"
local util = require "tpl.util"

local M = {}

---@class tpl.fuzz.Case
---@field seed integer
---@field number integer
---@field shape string          which starting point
---@field v tpl.fuzz.Variant
---@field c tpl.fuzz.Sizes
---@field axes table[]          {name, size, "batch"?}
---@field layout table          plain data: split, at, weights, input, pos, norm_stats, shares, map

-- -- Random numbers -----------------------------------------------------------------------------------------

local Random = {}
Random.__index = Random

--- Make a generator (Park and Miller 1988).
---@param seed integer
---@param number integer?
function M.random(seed, number)
  local state = (seed % 2147483647 * 48271 + (number or 0) * 69621 + 1) % 2147483647
  local self = setmetatable({ state = state == 0 and 1 or state }, Random)
  for _ = 1, 4 do self:below(2) end
  return self
end

--- A whole number from 0 to n - 1.
function Random:below(n)
  self.state = self.state * 48271 % 2147483647
  return self.state % n
end
function Random:chance(percent) return self:below(100) < percent end
function Random:pick(list) return list[self:below(#list) + 1] end
--- A number from -1 to 1.
function Random:real() return self:below(2000001) / 1e6 - 1 end

-- -- Model and mesh -----------------------------------------------------------------------------------------

-- Most models have only what the engine has kernels for, so that their layouts can be lowered and run.
local function draw_variant(r, shape)
  local v = { norm = shape == "partial" and "none" or r:pick { "pre", "pre", "pre", "post", "none" },
    mix = r:pick { false, false, false, "twin", "skip", "gate" }, par = r:chance(20), tied = r:chance(20), bias = r:chance(shape == "mixed" and 60 or 35),
    interleaved = r:chance(30) }
  local has_kernels = r:chance(80)
  v.pos = r:pick(has_kernels and { "rope", "rope", "none" } or { "rope", "learned", "learned", "none" })
  v.mlp = r:pick(has_kernels and { "gated" } or { "gated", "plain" })
  v.qk = r:pick(has_kernels and { false, false, false, "all" } or { false, "head", "all" })
  v.softcap = not has_kernels and r:chance(25)
  return v
end

local function draw_sizes(r)
  return { vocab = r:pick { 8, 11, 13 }, vu = r:pick { 1, 2, 4 }, embd = r:pick { 4, 6 }, kvh = r:pick { 2, 3, 4 }, grp = r:pick { 2, 3 },
    hd = r:pick { 2, 4 }, ffn = r:pick { 4, 6, 7 }, fu = r:pick { 1, 2, 4 }, npos = r:pick { 4, 5 }, block = r:chance(10) and r:pick { 2, 4 } or nil }
end

local function draw_axes(r)
  local axes = { { "a", r:pick { 2, 2, 3 }, r:chance(25) and "batch" or nil } }
  if r:chance(55) then axes[2] = { "b", r:pick { 2, 2, 3 }, r:chance(15) and "batch" or nil } end
  return axes
end

-- -- Starting points ----------------------------------------------------------------------------------------

local function only(dims, spec)
  local out = {}
  for _, d in ipairs(dims) do out[d] = spec[d] end
  return out
end

local function spec_over(r, dims, axes, percent)
  local out = {}
  for _, a in ipairs(axes) do
    if r:chance(percent) then
      local d = r:pick(dims)
      out[d] = out[d] and "all" or a[1]
    end
  end
  return out
end

local starts = {}

-- Heads, FFN and vocabulary over an axis or over all; between the blocks whole, or cut by tokens.
function starts.tensor(r, l, axes, names)
  local t = r:pick(axes)[1]
  local wide = r:chance(30) and "all" or t
  l.split = { [r:chance(6) and "hd" or "kvh"] = t, ffn = wide, vocab = wide }
  if axes[2] and r:chance(40) then l.split.grp = t == "a" and "b" or "a" end
  local is_sequence = r:chance(40)
  for _, m in ipairs(names.mark_list) do
    if m:find("%.out$") then l.at[m] = is_sequence and { tok = t } or {} end
    if m:find("%.in$") then l.at[m] = {} end
  end
  l.at.logits = r:chance(70) and { vocab = wide } or {}
end

-- Tokens over one axis (requests, or positions with gathered or swapped keys), the rest over the other.
function starts.tokens(r, l, axes, names)
  local d, t = axes[1][1], axes[2] and axes[2][1]
  l.input = { tok = d }
  if t then l.split = { kvh = t, ffn = t, vocab = t } end
  local want = { tok = d, kvh = t, ffn = t, vocab = t, out = axes[1][3] and d or nil }
  for _, m in ipairs(names.mark_list) do l.at[m] = only(names.marks[m], want) end
  if axes[1][3] or r:chance(20) then return end
  if r:chance(50) then l.at["attn.kv"] = { kvh = t }
  else
    l.at["attn.q"], l.at["attn.kv"] = { kvh = d }, { kvh = d }
    l.weights["*_proj"] = { ffn = t }
  end
end

-- The residual over one axis, heads and FFN over the other.
function starts.grid(r, l, axes, names)
  local y, x = axes[#axes][1], axes[2] and axes[1][1]
  l.split, l.norm_stats = { embd = y, kvh = x, ffn = x, vocab = x }, true
  if r:chance(50) then l.weights["*norm"] = {} end
  for _, m in ipairs(names.mark_list) do
    l.at[m] = (m:find("%.in$") or m:find("%.out$")) and { embd = y } or only(names.marks[m], { kvh = x, ffn = x, vocab = x })
  end
end

-- The KV cache cut by position.
function starts.cache(r, l, axes, names)
  starts.tensor(r, l, axes, names)
  local c = r:pick { axes[1][1], axes[#axes][1], "all" }
  l.pos = c
  for _, d in ipairs { "kvh", "grp" } do if c == "all" or l.split[d] == c then l.split[d] = nil end end
  l.at["attn.q"], l.at["attn.kv"] = only({ "kvh", "grp" }, l.split), only({ "kvh" }, l.split)
  local heads = only({ "kvh", "grp" }, l.split)
  local free = heads.kvh and "grp" or r:pick { "kvh", "grp" }
  if r:chance(70) and not heads[free] then heads[free] = c end
  l.at["attn.core"], l.weights["*o_proj"] = heads, heads
end

-- No norm: the residual stays a partial sum to the end.
function starts.partial(r, l, axes)
  local t = r:pick(axes)[1]
  l.split = { kvh = t, ffn = t, vocab = t }
  l.at = { ["attn.q"] = { kvh = t }, ["attn.kv"] = { kvh = t }, ["mlp.up"] = { ffn = t }, logits = r:pick { {}, { vocab = t } } }
  for _, w in ipairs { "q_proj", "k_proj", "v_proj", "up_proj", "gate_proj", "attn_gate", "skip_proj", "q_proj2", "k_proj2", "v_proj2", "lm_head", ".bias" } do
    l.weights["*" .. w] = {}
  end
  if r:chance(20) then l.at["mlp.up"], l.weights["*down_proj"] = nil, {} end -- a gate on partial sums, to be refused
end

-- One operand of an elementwise op, of a bias or of a norm whole, the other cut.
function starts.mixed(r, l, axes, names)
  starts.tensor(r, l, axes, names)
  for _, w in ipairs { "*gate_proj", "*up_proj", "*attn_gate", "*skip_proj", "*.bias" } do
    if r:chance(w == "*.bias" and 55 or 35) then l.weights[w] = {} end
  end
  for _, m in ipairs { "mlp.up", "attn.q", "embd.out", "attn.core", "logits" } do
    if r:chance(25) then l.at[m] = nil end
  end
end

-- Every dim and mark on its own.
function starts.any(r, l, axes, names)
  for _, d in ipairs { "kvh", "grp", "ffn", "vocab", "embd", "hd", "npos" } do
    if r:chance((d == "embd" or d == "hd") and 8 or 35) then l.split[d] = r:chance(10) and "all" or r:pick(axes)[1] end
  end
  for _, m in ipairs(names.mark_list) do
    if r:chance(90) then l.at[m] = r:chance(60) and {} or spec_over(r, names.marks[m], axes, 50) end
  end
end

local shapes = { "tensor", "tensor", "tokens", "tokens", "grid", "cache", "cache", "partial", "mixed", "mixed", "any" }

-- -- Bending ------------------------------------------------------------------------------------------------

local function edit(r, l, axes, names, c)
  local what, m, a = r:below(10) + 1, r:pick(names.mark_list), r:pick(axes)[1]
  if what <= 3 then l.at[m] = spec_over(r, names.marks[m], axes, 60)
  elseif what == 4 then l.at[m] = nil
  elseif what <= 6 then l.split[r:pick { "kvh", "grp", "ffn", "vocab", "hd", "embd" }] = r:pick { a, a, "all", false } or nil
  elseif what == 7 then
    local w = r:pick(names.weights)
    l.weights["*" .. w.name:gsub("^blk%.%d+%.", "")] = spec_over(r, w.dims, axes, 50)
  elseif what == 8 then l.norm_stats = not l.norm_stats
  elseif what == 9 then l.input = r:chance(70) and { tok = r:pick { a, "all" } } or nil
  elseif not c.block then
    local n = axes[a == "a" and 1 or 2][2]
    if n == 2 and c.kvh == 3 then l.map = { ["kvh@" .. a] = { { { 0, 1 }, { 2, 1 } }, { { 1, 1 } } } } end
  end
end

local function dims_of(pattern, by_name)
  local matches, have = util.glob(pattern), nil
  for name, dims in pairs(by_name) do
    if matches(name) then
      have = have or {}
      for _, d in ipairs(dims) do have[d] = true end
    end
  end
  return have
end

-- What fits no mark, weight or dim of this model is taken out: that it is refused has a spec of its own.
local function prune(l, names)
  for _, f in ipairs { { l.at, names.marks }, { l.weights, names.weight_dims } } do
    for _, pattern in ipairs(util.keys(f[1])) do
      local have = dims_of(pattern, f[2])
      local kept = have and {}
      for d, a in pairs(have and f[1][pattern] or {}) do if have[d] then kept[d] = a end end
      f[1][pattern] = kept
    end
  end
  for d in pairs(l.split) do if not names.sizes[d] then l.split[d] = nil end end
end

local traced = setmetatable({}, { __mode = "k" }) -- case -> {model, config, trace}

--- Give the model of a case, its config and its trace.
---@param case tpl.fuzz.Case
---@return {model: tpl.Model, config: table, trace: tpl.Trace}
function M.model(case)
  if not traced[case] then
    local model, config = model_of.make(case.v, case.c), model_of.config(case.v, case.c)
    traced[case] = { model = model, config = config, trace = trace.run(model, config) }
  end
  return traced[case]
end

local function names_of(case)
  local t = M.model(case).trace
  local names = { marks = {}, mark_list = util.keys(t.mark_dims), weights = t.weight_list, weight_dims = {}, sizes = t.sizes }
  for m, dims in pairs(t.mark_dims) do names.marks[m] = dims[1] end
  for _, w in ipairs(t.weight_list) do names.weight_dims[w.name] = w.dims end
  return names
end

--- Take out of a case's layout what fits nothing in its model.
---@param case tpl.fuzz.Case
function M.fit(case) prune(case.layout, names_of(case)) end

local function draw_shares(r, axes)
  local shares = {}
  for _, a in ipairs(axes) do
    shares[a[1]] = {}
    for i = 1, a[2] do shares[a[1]][i] = r:pick { 1, 1, 2, 3 } end
  end
  return shares
end

--- Draw a case.
---@param seed integer
---@param number integer
---@return tpl.fuzz.Case
function M.case(seed, number)
  local r = M.random(seed, number)
  local shape = r:pick(shapes)
  local case = { seed = seed, number = number, shape = shape, v = draw_variant(r, shape), c = draw_sizes(r), axes = draw_axes(r),
    layout = { split = {}, at = {}, weights = {}, norm_stats = r:chance(60) } }
  local names = names_of(case)
  starts[shape](r, case.layout, case.axes, names)
  for _ = 1, r:pick { 0, 0, 1, 1, 2, 3 } do edit(r, case.layout, case.axes, names, case.c) end
  if r:chance(30) then case.layout.shares = draw_shares(r, case.axes) end
  prune(case.layout, names)
  return case
end

-- -- What a case stands for ---------------------------------------------------------------------------------

--- Give the mesh of a case.
---@return tpl.Mesh
function M.mesh(case)
  local list = {}
  for i, a in ipairs(case.axes) do list[i] = a[1] end
  return meshes.new(case.axes, { all = list })
end

--- Give the layout of a case in the product's words.
---@return table layout
function M.words(case)
  local l = case.layout
  local function spec(s) return next(s) and layouts.S(s) or layouts.R end
  local out = { split = l.split, at = {}, weights = {}, norm_stats = l.norm_stats, shares = l.shares, map = l.map,
    kv = l.pos and { pos = l.pos } or nil, input = l.input and spec(l.input) }
  for k, s in pairs(l.at) do out.at[k] = spec(s) end
  for k, s in pairs(l.weights) do out.weights[k] = spec(s) end
  return out
end

-- Requests one after the other in a block of `n` tokens; a request of batch axes lies within a block.
local function draw_requests(r, c, n, feed)
  while n > 0 do
    local length = math.min(n, r:below(c.npos) + 1)
    feed.n_req = feed.n_req + 1
    for i = 1, length do
      local t = #feed.ids + 1
      feed.ids[t], feed.pos[t], feed.req[t] = r:below(c.vocab), i - 1, feed.n_req
    end
    n = n - length
  end
end

--- Draw a step for a case: counts divide by every cut of the mesh, and what batch axes keep apart are different requests.
---@return tpl.fuzz.Feed
function M.feed(case)
  local r, n, blocks = M.random(case.seed + 1, case.number), 1, 1
  for _, a in ipairs(case.axes) do
    n = n * a[2]
    if a[3] then blocks = blocks * a[2] end
  end
  local feed = { ids = {}, pos = {}, req = {}, out = {}, n_req = 0 }
  local tok = n * (n < 4 and 2 or 1)
  for b = 0, blocks - 1 do
    draw_requests(r, case.c, tok / blocks, feed)
    for _ = 1, n / blocks do feed.out[#feed.out + 1] = b * tok / blocks + r:below(tok / blocks) end
  end
  return feed
end

--- Draw the weights of a case: name -> doubles in the order of the weight's dims.
---@param case tpl.fuzz.Case
---@param t tpl.Trace
---@return table<string, ffi.cdata*>
function M.weights(case, t)
  local ffi, r, out = require "ffi", M.random(case.seed + 2, case.number), {}
  for _, w in ipairs(t.weight_list) do
    local n, cols = 1, 1
    for i, d in ipairs(w.dims) do
      n = n * t.sizes[d]
      if i > w.n_out then cols = cols * t.sizes[d] end
    end
    local data = ffi.new("double[?]", n)
    local is_norm = w.uses.norm
    local size = w.kind == "matrix" and 2 / math.sqrt(cols) or 1
    for i = 0, n - 1 do data[i] = is_norm and 1 + r:real() / 2 or r:real() * size end
    out[w.name] = data
  end
  return out
end

-- -- Showing ------------------------------------------------------------------------------------------------

local function flags(t)
  local out = {}
  for k, v in util.pairs(t) do if v then out[#out + 1] = v == true and k or k .. "=" .. tostring(v) end end
  return table.concat(out, " ")
end

--- Write a case for people: model, mesh, and the layout as Lua text.
---@return string
function M.text(case)
  return ("model:  %s; %s\nmesh:   %s\nlayout: %s"):format(flags(case.v), flags(case.c), tostring(M.mesh(case)), layouts.text(M.words(case)))
end

return M
