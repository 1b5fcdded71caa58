-- SPDX-License-Identifier: Apache-2.0
-- Cutting layers into stages. Expected values: by hand.
local err = require "tpl.err"
local stages = require "tpl.plan.stages"

local function costs(n, c)
  local out = {}
  for i = 1, n do out[i] = c end
  return out
end

describe("tpl.plan.stages", function()
  it("halves equal layers", function() assert.same({ { 0, 14 }, { 15, 29 } }, stages.cut(costs(30, 1), 2, 0)) end)
  it("gives the last stage fewer layers when the head costs", function()
    -- 10 layers of 1 and a head of 4: 7 | 3 + 4
    assert.same({ { 0, 6 }, { 7, 9 } }, stages.cut(costs(10, 1), 2, 4))
  end)
  it("never leaves a stage empty", function() assert.same({ { 0, 0 }, { 1, 1 }, { 2, 2 } }, stages.cut(costs(3, 1), 3, 100)) end)
  it("follows uneven costs", function() assert.same({ { 0, 0 }, { 1, 3 } }, stages.cut({ 3, 1, 1, 1 }, 2, 0)) end)
  it("refuses a list that leaves a layer out, naming it", function()
    local _, e = err.try(stages.given, { stages = { { layers = { 0, 0 } }, { layers = { 2, 3 } } }, origin = { file = "d.lua" } }, { n_layer = 4 })
    assert.equal(3, e.exit)
    assert.matches("stage 1 has layers {2, 3}, expected to start at 1", e.message)
  end)
  it("refuses more stages than layers", function()
    local _, e = err.try(stages.given, { pp = 3 }, { n_layer = 2, cost = { 1, 1 }, head_cost = 0 })
    assert.equal(3, e.exit)
  end)
end)
