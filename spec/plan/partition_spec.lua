-- SPDX-License-Identifier: Apache-2.0
-- Expected cuts: layout.md 2.3 and the sizes it quotes, worked out by hand (units and largest remainder in the comments).
local mesh = require "tpl.plan.mesh"
local partition = require "tpl.plan.partition"
local units = require "tpl.plan.units"

local function counts(size, n, opt)
  local out = {}
  for i, ranges in ipairs(partition.cut({ { 0, size } }, n, opt)) do out[i] = partition.count(ranges) end
  return table.concat(out, "/")
end

-- A trace with one weight is enough for units.
local function units_for(sizes, weights, dtype, soft)
  return units.collect({ sizes = sizes, soft = soft or {}, weight_list = weights }, function() return dtype end)
end

describe("partition.cut", function()
  it("gives the figures of layout.md for Llama 70B over three ranks", function()
    assert.are.equal("3/3/2", counts(8, 3))                                    -- 8 = 2+2+2, two left to the first
    assert.are.equal("9600/9600/9472", counts(28672, 3, { soft = 128 }))       -- 224 units: 75/75/74
    assert.are.equal("42752/42752/42752", counts(128256, 3, { soft = 64 }))    -- 2004 units: 668 each
    assert.are.equal("9728/9472/9472", counts(28672, 3, { soft = 128, hard = 256 })) -- 112 units of 256: 38/37/37
  end)

  it("cuts SmolLM2 over two", function()
    assert.are.equal("2/1", counts(3, 2))
    assert.are.equal("768/768", counts(1536, 2, { soft = 128 }))
    assert.are.equal("24576/24576", counts(49152, 2, { soft = 64 }))
  end)

  it("follows shares", function()
    assert.are.equal("4/2/2", counts(8, 3, { shares = { 2, 1, 1 } }))
    assert.are.equal("2/1", counts(3, 2, { shares = { 2, 1 } }))
    assert.are.equal("2/0", counts(2, 2, { shares = { 9, 1 } }))
  end)

  it("lets the last unit be short", function()
    assert.are.equal("12608/12608/12544/12497", counts(50257, 4, { soft = 64 })) -- 786 units: 197/197/196/196, 47 short
    assert.are.equal("768/768/768/576", counts(2880, 4, { soft = 128, hard = 32 }))  -- 23 units: 6/6/6/5, 64 short
    assert.are.equal("2816/2816/2688/2624", counts(10944, 4, { soft = 128, hard = 128 }))
  end)

  it("halves the soft unit until nobody is far above its part", function()
    assert.are.equal("6/6", counts(12, 2, { soft = 8 }))   -- 8: 8/4 is a third too much; 4: 8/4 again; 2: 6/6
    assert.are.equal("7/6", counts(13, 2, { soft = 64 }))  -- down to 1; with 2 it would be 8/5, 8 > 7 * 1.125
  end)

  it("covers everything once, in order", function()
    for n = 1, 7 do
      local at = 0
      for _, ranges in ipairs(partition.cut({ { 0, 100 } }, n, { hard = 3, soft = 4 })) do
        for _, r in ipairs(ranges) do
          assert.are.equal(at, r[1])
          assert.is_true(r[1] % 3 == 0)
          at = r[1] + r[2]
        end
      end
      assert.are.equal(100, at)
    end
  end)

  it("cuts pieces with gaps", function()
    assert.are.same({ { { 0, 2 } }, { { 6, 2 } } }, partition.cut({ { 0, 2 }, { 6, 2 } }, 2))
  end)
end)

describe("partition.map_fault", function()
  local fault = partition.map_fault
  it("takes a partition in any order", function()
    assert.is_nil(fault({ { { 0, 1 }, { 3, 1 } }, { { 1, 1 } }, { { 2, 1 } } }, 3, 4, 1))
  end)
  it("names what is wrong", function()
    assert.are.equal("has 1 entries for 2 ranks", fault({ { { 0, 4 } } }, 2, 4, 1))
    assert.are.equal("names index 1 twice", fault({ { { 0, 2 } }, { { 1, 3 } } }, 2, 4, 1))
    assert.are.equal("covers 3 of 4", fault({ { { 0, 2 } }, { { 3, 1 } } }, 2, 4, 1))
    assert.are.equal("cuts inside a unit of 2", fault({ { { 0, 1 } }, { { 1, 3 } } }, 2, 4, 2))
    assert.is_truthy(fault({ { { 0, 2 } }, { { 2, 3 } } }, 2, 4, 1):find("inside 0..3", 1, true))
    assert.is_truthy(fault({ { { 0, "x" } }, {} }, 2, 4, 1))
  end)
end)

describe("units", function()
  local smol = { kvh = 3, grp = 3, hd = 64, ffn = 1536, embd = 576 }
  local o_proj = { { name = "o", dims = { "embd", "kvh", "grp", "hd" }, n_out = 1 } }
  it("keeps quantisation blocks whole", function()
    local q4 = units_for(smol, o_proj, "q4_1")
    assert.are.equal(3, q4:count("kvh"))
    assert.are.equal(3, q4:count("grp"))
    assert.are.equal(32, q4.hard.hd)
    -- 3.3.64 in blocks of 256: 192u % 256 == 0 first at u = 4, so kvh is one unit, and grp repeats every 192 (layout.md 2.3)
    local k = units_for(smol, o_proj, "q4_k")
    assert.are.equal(4, k.hard.kvh)
    assert.are.equal(1, k:count("kvh"))
    assert.are.equal(1, k:count("grp"))
    assert.is_truthy(k.whole.grp.why:find("repeats every 192", 1, true))
    assert.are.equal(6, units_for(smol, { { name = "d", dims = { "embd", "ffn" }, n_out = 1 } }, "q4_k"):count("ffn"))
    assert.are.equal(1536, units_for(smol, { { name = "d", dims = { "embd", "ffn" }, n_out = 1 } }, "bf16"):count("ffn"))
    assert.are.equal(0, q4:count("nope"))
  end)
end)

describe("partition.tables", function()
  local function tables(mesh_text, sizes, opt)
    opt = opt or {}
    return partition.tables { mesh = mesh.new(mesh_text), shares = opt.shares, map = opt.map,
      units = units_for(sizes, opt.weights or {}, opt.dtype or "f32", opt.soft) }
  end
  it("nests: the outer axis cuts first, the inner one cuts each piece", function()
    -- 5 over a=2: 3/2; each over b=2: 2/1 and 1/1
    assert.are.same({ { { 0, 2 } }, { { 2, 1 } }, { { 3, 1 } }, { { 4, 1 } } }, tables("a=2,b=2", { d = 5 }):get("d", { "a", "b" }))
  end)
  it("says what would work where a share is empty", function()
    local e = select(2, pcall(function() tables("tp=5", { kvh = 3, grp = 3 }):get("kvh", { "tp" }) end))
    assert.are.equal("layout_conflict", e.code)
    assert.are.equal("kvh", e.dim)
    assert.are.equal("tp", e.axis)
    assert.is_nil(e.op)
    assert.are.equal("dim 'kvh' (3 units) cannot feed 5 ranks on axis tp: rank 3 would be empty", e.message)
    assert.are.equal("at most 3 ranks on 'kvh'; or two axes, 'kvh' on the first and 'grp' on the second, so KV heads repeat: "
      .. "4 = 2x2, 6 = 3x2, 9 = 3x3", e.hint)
    e = select(2, pcall(function() tables("tp=8", { kvh = 4, grp = 4 }):get("kvh", { "tp" }) end))
    assert.is_truthy(e.hint:find("8 = 4x2", 1, true))
    e = select(2, pcall(function() tables("tp=2", { ffn = 4 }, { shares = { tp = { 9, 1 } } }):get("ffn", { "tp" }) end))
    assert.are.equal("more even shares", e.hint)
  end)
  it("leaves tok and out to the step, and wants batch axes outside", function()
    local t = tables({ { "tp", 2 }, { "dp", 2, "batch" } }, { d = 4 })
    assert.is_nil(t:get("tok", { "tp" }))
    assert.is_nil(t:get("tok", { "dp" }))
    local e = select(2, pcall(function() t:get("tok", { "tp", "dp" }) end))
    assert.are.equal("dim 'tok': batch axis 'dp' is inside 'tp', which cuts inside requests", e.message)
    assert.are.equal("list batch axes first in the mesh", e.hint)
  end)
  it("takes a map for one axis", function()
    local map = { ["kvh@tp"] = { { { 0, 1 }, { 3, 1 } }, { { 1, 1 } }, { { 2, 1 } } } }
    assert.are.same(map["kvh@tp"], tables("tp=3", { kvh = 4 }, { map = map }):get("kvh", { "tp" }))
    assert.has_error(function() tables("tp=2", { kvh = 4 }, { map = map }):get("kvh", { "tp" }) end)
  end)
  it("does not cut what a block would straddle", function()
    local t = tables("tp=3", { kvh = 3, grp = 3, hd = 64, embd = 576 }, { dtype = "q4_k",
      weights = { { name = "o", dims = { "embd", "kvh", "grp", "hd" }, n_out = 1 } } })
    local e = select(2, pcall(function() t:get("grp", { "tp" }) end))
    assert.is_truthy(e.message:find("a block would lie on two ranks", 1, true))
    e = select(2, pcall(function() t:get("kvh", { "tp" }) end))
    assert.is_truthy(e.message:find("(1 units of 4, for whole quantisation blocks)", 1, true))
    assert.is_truthy(e.hint:find("smaller blocks", 1, true))
  end)
end)
