-- SPDX-License-Identifier: Apache-2.0
-- The arena and the barriers of small op lists. Expected values: by hand.
local memory = require "tpl.plan.memory"

local function value(name, cols) return { name = name, act = "f32", sym = "tok", div = 1, cols = { cols } } end
local function op(kind, outs, ins, more)
  local o = { kind = kind, name = kind, outs = outs, ins = ins, ws = {}, imm = {} }
  for k, v in pairs(more or {}) do o[k] = v end
  return o
end
local caps = { tok = 4, out = 1 }

describe("tpl.plan.memory", function()
  it("gives a q8 row its scales and sums, rounded up to 64 bytes", function()
    -- twice 64 int8 + 2 * (4 + 4) = 144 -> 192
    assert.equal(192, memory.row_bytes("q8", 64))
    assert.equal(256, memory.row_bytes("f32", 64))
  end)
  it("gives a bf16 row an odd number of 64-byte lines", function()
    assert.equal(64, memory.row_bytes("bf16", 5))
    assert.equal(192, memory.row_bytes("bf16", 64)) -- 128, then one line more
    assert.equal(192, memory.row_bytes("bf16", 96))
  end)
  it("gives a row of every form the bytes that the kernels take", function()
    local kernels = require "tpl.core".kernels
    for _, act in ipairs { "f32", "q8", "bf16", "q8_bf16" } do
      for _, cols in ipairs { 32, 64, 96, 128, 576, 1536, 4096 } do
        assert.equal(kernels.row_bytes(act, cols), memory.row_bytes(act, cols))
      end
    end
    assert.equal(kernels.row_bytes("bf16", 77), memory.row_bytes("bf16", 77))
  end)
  it("lets a value lie where a dead one lay", function()
    local a, b, c = value("a", 16), value("b", 16), value("c", 16)
    local plan = memory.plan({ op("embed", { a }, {}), op("norm", { b }, { a }), op("norm", { c }, { b }) }, caps)
    assert.equal(2 * 4 * 64, plan.arena) -- two values of 4 rows x 16 floats live at once
    assert.equal(plan.offset[a], plan.offset[c])
    assert.not_equal(plan.offset[a], plan.offset[b])
  end)
  it("computes in place where the operand is not read again", function()
    local a, b, c = value("a", 16), value("b", 16), value("c", 16)
    local plan = memory.plan({ op("embed", { a }, {}), op("embed", { b }, {}), op("add", { c }, { a, b }, { inplace = 1 }) }, caps)
    assert.equal(plan.offset[a], plan.offset[c])
  end)
  it("keeps an operand that is read again", function()
    local a, b, c, d = value("a", 16), value("b", 16), value("c", 16), value("d", 16)
    local plan = memory.plan({ op("embed", { a }, {}), op("embed", { b }, {}), op("add", { c }, { a, b }, { inplace = 1 }), op("add", { d }, { c, a }) }, caps)
    assert.not_equal(plan.offset[a], plan.offset[c])
  end)
  it("puts a barrier before an op that reads what another wrote, and none between independent ones", function()
    local a, b, c = value("a", 16), value("b", 16), value("c", 16)
    local ops = { op("embed", { a }, {}), op("embed", { b }, {}), op("add", { c }, { a, b }) }
    memory.plan(ops, caps)
    assert.is_false(ops[2].barrier)
    assert.is_true(ops[3].barrier)
  end)
  it("needs none after a collective, which meets at both ends", function()
    local a, b, c = value("a", 16), value("b", 16), value("c", 16)
    local ops = { op("embed", { a }, {}), op("all_reduce", { b }, { a }, { axes = { "tp" } }), op("norm", { c }, { b }) }
    memory.plan(ops, caps)
    assert.is_nil(ops[2].barrier)
    assert.is_false(ops[3].barrier)
  end)
  it("puts one between writing a cache and reading it", function()
    local q, k, v, o = value("q", 16), value("k", 16), value("v", 16), value("o", 16)
    local state = {}
    local ops = { op("linear", { q, k, v }, {}), op("kv_write", {}, { k, v }, { state = state }), op("attend", { o }, { q }, { state = state }) }
    memory.plan(ops, caps)
    assert.is_true(ops[2].barrier)
    assert.is_true(ops[3].barrier)
  end)
end)
