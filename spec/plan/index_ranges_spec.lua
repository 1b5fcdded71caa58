-- SPDX-License-Identifier: Apache-2.0
-- Index lists of flattened and nested cuts. Expected values: by hand.
local index_ranges = require "tpl.plan.index_ranges"

describe("tpl.plan.index_ranges", function()
  it("flattens a cut outer dim into one run", function()
    -- heads 2..3 of 4, 8 elements each: elements 16..31
    assert.same({ { 16, 16 } }, index_ranges.flatten({ { { 2, 2 } }, { { 0, 8 } } }, { 4, 8 }))
  end)
  it("repeats a cut inner dim inside every index of the outer one", function()
    -- kvh 0..1, grp 1 of 3, hd 2: flat = (kvh * 3 + 1) * 2
    assert.same({ { 2, 2 }, { 8, 2 } }, index_ranges.flatten({ { { 0, 2 } }, { { 1, 1 } }, { { 0, 2 } } }, { 2, 3, 2 }))
  end)
  it("joins neighbours of a list with gaps", function()
    assert.same({ { 0, 2 }, { 6, 4 } }, index_ranges.flatten({ { { 0, 1 }, { 3, 2 } }, { { 0, 2 } } }, { 5, 2 }))
  end)
  it("says where a part lies within what a rank holds", function()
    -- held: 4..7 and 10..13, local 0..3 and 4..7; wanted: 6..7 and 10..11 -> local 2..5, one run
    assert.same({ { 2, 4 } }, index_ranges.localize({ { 6, 2 }, { 10, 2 } }, { { 4, 4 }, { 10, 4 } }))
  end)
end)
