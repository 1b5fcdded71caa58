-- SPDX-License-Identifier: Apache-2.0
-- Fusion passes on small op lists: what must merge, and what must not. Expected lists: by hand from layout.md 2.9.
local fuse = require "tpl.plan.fuse"

local function value(name) return { name = name, act = "f32", sym = "tok", div = 1, cols = { 32 } } end
local function op(kind, name, outs, ins, more)
  local o = { kind = kind, name = name, layer = 0, outs = outs, ins = ins, ws = {}, imm = {} }
  for k, v in pairs(more or {}) do o[k] = v end
  return o
end
local function linear(name, x, dtype)
  local y = value(name)
  return op("linear", name, { y }, { x }, { ws = { { name = name, dtype = dtype or "f32" } }, imm = { { i = 0 } } }), y
end
local function kinds(ops)
  local out = {}
  for i, o in ipairs(ops) do out[i] = o.kind end
  return out
end

describe("tpl.plan.fuse", function()
  it("merges products of one input, in order", function()
    local x = value "x"
    local q, k, v = linear("q", x), linear("k", x), linear("v", x)
    local ops = fuse.run({ q, k, v })
    assert.equal(1, #ops)
    assert.same({ "q", "k", "v" }, { ops[1].outs[1].name, ops[1].outs[2].name, ops[1].outs[3].name })
  end)
  it("does not merge products of different inputs", function()
    local a, b = linear("a", value "x"), linear("b", value "y")
    assert.equal(2, #fuse.run { a, b })
  end)
  it("turns gate, up and silu_mul into one op", function()
    local x, h = value "x", value "h"
    local g, gv = linear("g", x)
    local u, uv = linear("u", x)
    local ops = fuse.run { g, u, op("silu_mul", "s", { h }, { gv, uv }) }
    assert.equal(1, #ops)
    assert.equal(1, ops[1].imm[1].i)
    assert.equal(h, ops[1].outs[1])
  end)
  it("leaves gate and up alone when something else reads one of them", function()
    local x, h = value "x", value "h"
    local g, gv = linear("g", x)
    local u, uv = linear("u", x)
    local ops = fuse.run { g, u, op("silu_mul", "s", { h }, { gv, uv }), op("add", "a", { value "z" }, { gv, h }) }
    assert.same({ "linear", "silu_mul", "add" }, kinds(ops))
  end)
  it("joins an add with the norm of its result only", function()
    local a, b, s, n = value "a", value "b", value "s", value "n"
    local ops = fuse.run { op("add", "add", { s }, { a, b }), op("norm", "norm", { n }, { s }, { ws = { {} }, imm = { { f = 1e-5 } } }) }
    assert.same({ "add_norm" }, kinds(ops))
    assert.same({ s, n }, ops[1].outs)
    ops = fuse.run { op("add", "add", { s }, { a, b }), op("norm", "norm", { n }, { a }, { ws = { {} }, imm = { { f = 1e-5 } } }) }
    assert.same({ "add", "norm" }, kinds(ops))
  end)
  it("leaves out the passes it is told to", function()
    local x = value "x"
    assert.equal(2, #fuse.run({ (linear("q", x)), (linear("k", x)) }, { merge_linear = true }))
    assert.equal(2, #fuse.run({ (linear("q", x)), (linear("k", x)) }, "all"))
  end)
  it("rounds an input once for all readers of a form, and only where every weight of the op wants the same", function()
    local x = value "x"
    local q, k, v, both = linear("q", x, "q4_1"), linear("k", x, "f16"), linear("v", x, "q4_1"), linear("b", x, "q4_1")
    both.ws[2] = { dtype = "f32" }
    local forms = { q4_1 = "q8", f16 = "bf16", f32 = "f32" }
    local ops = fuse.quantise({ q, k, v, both }, function(dtype) return forms[dtype] end)
    assert.same({ "quant", "linear", "quant", "linear", "linear", "linear" }, kinds(ops))
    assert.equal("q8", q.ins[1].act)
    assert.equal("bf16", k.ins[1].act)
    assert.equal(q.ins[1], v.ins[1])
    assert.equal(x, both.ins[1])
  end)
end)
