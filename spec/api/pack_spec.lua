-- SPDX-License-Identifier: Apache-2.0
-- Expected packings: by hand, largest first onto the least loaded rank (layout.md 3.8).
local pack = require "tpl.pack"

local function weights(packed)
  local out = {}
  for i, items in ipairs(packed) do
    out[i] = {}
    for k, item in ipairs(items) do out[i][k] = item.w end
  end
  return out
end

describe("tpl.pack", function()
  it("puts the largest first, each onto the least loaded rank", function()
    local items = { { w = 1 }, { w = 5 }, { w = 3 }, { w = 3 } }
    assert.same({ { 5, 1 }, { 3, 3 } }, weights(pack(items, { "a", "b" }, 2)))
  end)
  it("keeps copies of one thing apart", function()
    local items = { { e = 1, w = 4 }, { e = 1, w = 4 }, { e = 2, w = 9 } }
    assert.same({ { 9, 4 }, { 4 } }, weights(pack(items, { "a", "b" }, 2, { apart = "e" })))
  end)
  it("says when there is no room", function()
    local packed, why = pack({ { w = 1 }, { w = 1 } }, { "a" }, 1)
    assert.is_nil(packed)
    assert.matches("item 2", why)
  end)
end)
