-- SPDX-License-Identifier: Apache-2.0
-- The planner's block sizes against those that C reads files with (core/base/dtype.h, which the checkpoint specs check against
-- files written by other programs).
local storage = require "tpl.plan.storage"

describe("tpl.plan.storage", function()
  it("has the figures of core/base/dtype.h, i32 apart, which no weight is stored as", function()
    local f = assert(io.open("core/base/dtype.h"))
    local header, want = f:read("*a"), {}
    f:close()
    for name, elements, bytes in header:gmatch('X%([%w_]+, "([%w_]+)", (%d+), (%d+), %-?%d+%)') do
      want[name] = { elements = tonumber(elements), bytes = tonumber(bytes) }
    end
    assert.same({ elements = 1, bytes = 4 }, want.i32)
    want.i32 = nil
    assert.same(want, storage.types)
  end)
  it("gives bytes of whole blocks, and one element per block of what it does not know", function()
    assert.equal(36, storage.bytes("q4_0", 64)) -- two blocks of 18 bytes
    assert.equal(1, storage.elements("iq9_z"))
  end)
end)
