-- SPDX-License-Identifier: Apache-2.0
-- Expected values: facts/models.md 0.3 (computed there from the published formula in double precision), and powers by hand.
local rope = require("tpl.config.rope")

local function near(expected, got)
  assert.is_true(math.abs(got - expected) <= 5e-9 * math.abs(expected), string.format("expected %.9g, got %.9g", expected, got))
end

describe("tpl.config.rope", function()
  it("gives theta^(-2i/dim)", function()
    local f = rope.plain(10000, 4)
    assert.equal(2, #f)
    near(1, f[1])
    near(0.01, f[2])
  end)

  it("divides by a linear factor and by a list", function()
    near(0.25, rope.linear({ 1 }, 4)[1])
    near(0.125, rope.divided({ 1, 1 }, { 4, 8 })[2])
  end)

  it("scales llama3 with factor 8 and dim 128 as published", function()
    local f = rope.llama3(rope.plain(5e5, 128), { factor = 8, low = 1, high = 4, original = 8192 })
    local expected = {
      [28] = 3.21144599e-3, [29] = 2.16657076e-3, [30] = 1.37189357e-3, [35] = 9.55621235e-5, [36] = 7.78465527e-5, [63] = 3.06892599e-7,
    }
    for i, x in pairs(expected) do near(x, f[i + 1]) end
  end)

  it("scales llama3 with factor 32 and dim 64 as published", function()
    local f = rope.llama3(rope.plain(5e5, 64), { factor = 32, low = 1, high = 4, original = 8192 })
    for i, x in pairs { [14] = 3.21144599e-3, [15] = 1.29054793e-3, [17] = 9.70828780e-5, [18] = 1.94616382e-5, [31] = 9.41830673e-8 } do
      near(x, f[i + 1])
    end
  end)
end)
