-- SPDX-License-Identifier: Apache-2.0
--- Random layouts over random small models: every one that the planner accepts gives what one rank gives, and every rule and reshard is
--- used often enough for that to mean something. Expected values: one rank, whose graph has no placements, slices or collectives at all.
local draw = require "tpl.fuzz.draw"
local fuzz = require "tpl.fuzz.run"
local typed = require "tpl.fuzz.typed"
local util = require "tpl.util"

local DRAWS, SEED, LEAST = 3000, 1, 20

local function show(title, counts)
  print(title)
  for name, n in util.pairs(counts) do print(("  %-42s %6d"):format(name, n)) end
end

describe("layout fuzz", function()
  it("finds every accepted layout equal to one rank", function()
    local r = fuzz.run { draws = DRAWS, seed = SEED }
    show("accepted layouts that used each rule", r.rules)
    show("accepted layouts that needed each reshard", r.reshards)
    show("typed only, for want of a kernel for", r.no_kernel)
    print(("seed %d, %d draws: %d accepted (%.1f %%, %d as programs too), %d refused, %d wrong, %.1f s"):format(r.seed, r.draws, r.accepted,
      100 * r.accepted / r.draws, r.lowered, r.refused, r.wrong, r.seconds))
    local f = r.failures[1]
    assert(not f, f and ("draw %d: %s\n%s\nsmallest: %s\n%s"):format(f.number, f.why, f.case, f.smallest_why or "", f.smallest))
    assert.equal(DRAWS, r.draws)
    assert.equal(0, r.wrong)
    assert.is_true(r.accepted >= 0.15 * DRAWS)
    assert.is_true(r.lowered >= 300)
    assert.same({}, fuzz.rare(r, LEAST))
  end)

  it("draws models of every kind, and layouts over axes of 2 and 3, uneven ones among them", function()
    local seen = {}
    for n = 1, 300 do
      local case = draw.case(SEED, n)
      for k, v in pairs(case.v) do seen[k .. "=" .. tostring(v)] = true end
      for i, a in ipairs(case.axes) do seen[("axis %d of %d"):format(i, a[2])], seen[a[3] or "inner"] = true, true end
      for _, list in pairs(case.layout.shares or {}) do seen[list[1] == list[2] and "even" or "uneven"] = true end
    end
    for _, what in ipairs { "pos=rope", "pos=learned", "pos=none", "norm=pre", "norm=post", "norm=none", "mlp=gated", "mlp=plain", "qk=head", "qk=all",
      "qk=false", "mix=twin", "mix=skip", "mix=gate", "par=true", "tied=true", "bias=true", "bias=false", "interleaved=true", "softcap=true",
      "axis 1 of 2", "axis 1 of 3", "axis 2 of 2", "axis 2 of 3", "batch", "inner", "uneven" } do
      assert.is_true(seen[what], what)
    end
  end)

  it("draws a case again from its seed and number alone", function()
    for _, n in ipairs { 1, 17, 2999 } do
      local a, b = draw.case(SEED, n), draw.case(SEED, n)
      assert.equal(draw.text(a), draw.text(b))
      assert.same(draw.feed(a), draw.feed(b))
      assert.not_equal(draw.text(a), draw.text(draw.case(SEED + 1, n)))
    end
  end)
end)

-- -- One rank -----------------------------------------------------------------------------------------------

describe("one rank of the fuzz", function()
  it("is changed by every token that a query may see and by no other", function() -- causal attention, apart by request
    local case = draw.case(SEED, 1)
    case.v = { pos = "rope", norm = "pre", mlp = "gated", qk = false, mix = false, par = false, tied = false, softcap = false, bias = false }
    case.axes, case.layout = { { "a", 2 } }, { split = {}, at = {}, weights = {} }
    local graph = assert(fuzz.type(case))
    local weights = draw.weights(case, draw.model(case).trace)
    local feed = { ids = { 1, 2, 3, 4, 5, 6 }, pos = { 0, 1, 2, 0, 1, 2 }, req = { 1, 1, 1, 2, 2, 2 }, out = { 0, 1, 2, 3, 4, 5 } }
    local function logits() return (typed.values(typed.run(graph, draw.model(case).config, weights, feed))).lm_head end
    local before, vocab = logits(), case.c.vocab
    feed.ids[2] = 7
    local after, changed = logits(), {}
    for o = 0, 5 do
      for i = 0, vocab - 1 do if before[o * vocab + i] ~= after[o * vocab + i] then changed[o] = true end end
    end
    assert.same({ [1] = true, [2] = true }, changed)
  end)
end)
