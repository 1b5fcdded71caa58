-- SPDX-License-Identifier: Apache-2.0
--- Rewrite lowered ops into fewer: an ordered list of passes, each with a pattern, a guard and its unfused
--- meaning. A pass never changes what is computed but for rounding. `--no-fuse=name` leaves a pass out, so that
--- a wrong one can be found by bisection.
local M = {}

-- value -> the ops that read it
local function readers(ops)
  local by = {}
  for _, op in ipairs(ops) do
    for _, v in ipairs(op.ins) do
      by[v] = by[v] or {}
      table.insert(by[v], op)
    end
  end
  return by
end

local function only_reader(by, v, op) return by[v] and #by[v] == 1 and by[v][1] == op end

local function same_list(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for i = 1, math.max(#a, #b) do if a[i] ~= b[i] then return false end end
  return true
end

local function without(ops, gone)
  local out = {}
  for _, op in ipairs(ops) do if not gone[op] then out[#out + 1] = op end end
  return out
end

--- linear(x, q), linear(x, k), linear(x, v) -> linear(x, {q, k, v}): one pass over x, one list of panels for
--- the threads.
local function merge_linear(ops)
  local gone = {}
  for i, op in ipairs(ops) do
    if op.kind == "linear" and not gone[op] then
      for j = i + 1, math.min(#ops, i + 8) do
        local next_op = ops[j]
        local is_same = next_op.kind == "linear" and not gone[next_op] and next_op.ins[1] == op.ins[1]
          and next_op.layer == op.layer
        if is_same and #op.ws < 4 then
          op.ws[#op.ws + 1], op.outs[#op.outs + 1] = next_op.ws[1], next_op.outs[1]
          gone[next_op] = true
        end
      end
    end
  end
  return without(ops, gone)
end

--- silu_mul(linear(x, gate), linear(x, up)) -> linear with epilogue 1.
local function silu_epilogue(ops)
  local by, gone = readers(ops), {}
  for _, op in ipairs(ops) do
    if op.kind == "linear" and #op.outs == 2 then
      local g, u = op.outs[1], op.outs[2]
      local mul = by[g] and by[g][1]
      local fits = mul and mul.kind == "silu_mul" and mul.ins[1] == g and mul.ins[2] == u
        and only_reader(by, g, mul) and only_reader(by, u, mul)
      if fits and same_list(g.cols, u.cols) and op.ws[1].dtype == op.ws[2].dtype then
        op.outs, op.imm = { mul.outs[1] }, { { i = 1 } }
        gone[mul] = true
      end
    end
  end
  return without(ops, gone)
end

--- x = a + b; y = norm(x) -> add_norm: the row is read once.
local function add_norm(ops)
  local gone = {}
  for i, op in ipairs(ops) do
    local n = ops[i + 1]
    if op.kind == "add" and n and n.kind == "norm" and n.ins[1] == op.outs[1] then
      op.kind, op.ws, op.imm, op.name = "add_norm", n.ws, n.imm, n.name
      op.outs = { op.outs[1], n.outs[1] }
      gone[n] = true
    end
  end
  return without(ops, gone)
end

--- rope(q), rope(k), kv_write(k, v) -> rope_kv.
local function rope_kv(ops)
  local by, gone, made = readers(ops), {}, {}
  for _, op in ipairs(ops) do
    for _, v in ipairs(op.outs) do made[v] = op end
    local rk = op.kind == "kv_write" and made[op.ins[1]]
    if rk and rk.kind == "rope" and only_reader(by, op.ins[1], op) then
      local rq
      for _, o in ipairs(ops) do -- the rope of the queries that meet this cache
        if o.kind == "attend" and o.state == op.state then rq = made[o.ins[1]] end
      end
      local fits = rq and rq.kind == "rope" and rq ~= rk
      for k = 2, 7 do -- hd rot mode freqs mscale part
        local a, b = fits and rq.imm[k], fits and rk.imm[k]
        fits = fits and same_list(a.i, b.i) and a.f == b.f and a.table == b.table
      end
      if fits then
        local m = rq.imm
        op.kind, op.name = "rope_kv", rq.name
        op.outs, op.ins, op.inplace = rq.outs, { rq.ins[1], rk.ins[1], op.ins[2] }, 1
        op.imm = { m[1], rk.imm[1], m[2], m[3], m[4], m[5], m[6], m[7] }
        gone[rq], gone[rk] = true, true
      end
    end
  end
  return without(ops, gone)
end

M.passes = {
  { name = "merge_linear", run = merge_linear },
  { name = "silu_epilogue", run = silu_epilogue },
  { name = "add_norm", run = add_norm },
  { name = "rope_kv", run = rope_kv },
}

--- Run the passes in order. skip: "all", or a set of names of passes to leave out.
---@param ops tpl.LowOp[]
---@param skip string|table<string, boolean>?
---@return tpl.LowOp[]
function M.run(ops, skip)
  if skip == "all" then return ops end
  for _, pass in ipairs(M.passes) do
    if not (skip and skip[pass.name]) then ops = pass.run(ops) end
  end
  return ops
end

-- The form in which an op takes its operand: that which all its weights want, else floats.
local function form_of(op, wants)
  if op.kind ~= "linear" then return "f32" end
  local form = wants(op.ws[1].dtype)
  for _, w in ipairs(op.ws) do if wants(w.dtype) ~= form then return "f32" end end
  return form
end

--- Insert the rounding of activations before matrix products that want it: once for each value and form, shared by
--- its readers. Not a fusion: it decides the arithmetic (act = "auto" and "bf16").
---@param ops tpl.LowOp[]
---@param wants fun(dtype: string): string   the form of rows (tpl_act_names of kernels/ops.h) for weights of that type
---@return tpl.LowOp[]
function M.quantise(ops, wants)
  local out, made = {}, {}
  for _, op in ipairs(ops) do
    local form = form_of(op, wants)
    if form ~= "f32" then
      local x = op.ins[1]
      made[x] = made[x] or {}
      local q = made[x][form]
      if not q then
        q = { name = x.name .. "." .. form, act = form, sym = x.sym, div = x.div, cols = x.cols, dims = x.dims, pl = x.pl }
        made[x][form] = q
        out[#out + 1] = { kind = "quant", name = q.name, layer = op.layer, mark = op.mark, src = op.src,
          outs = { q }, ins = { x }, ws = {}, imm = {} }
      end
      op.ins = { q, x } -- in a step of few rows nobody makes q: linear takes x (kernels/ops.h)
    end
    out[#out + 1] = op
  end
  return out
end

return M
