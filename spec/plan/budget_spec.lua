-- SPDX-License-Identifier: Apache-2.0
-- How many tokens the KV cache holds. Expected values: by hand from interface.md section 1.
local budget = require "tpl.plan.budget"
local err = require "tpl.err"

local function kv(wish, fixed, per_token, available)
  wish.page, wish.context, wish.concurrency = wish.page or 16, wish.context or 100, wish.concurrency or 4
  local room = available and available * budget.USABLE
  return err.try(budget.kv, wish, { { name = "memory", fixed = fixed, per_token = per_token, room = room } })
end

describe("tpl.plan.budget", function()
  it("takes context times concurrency, in whole pages", function()
    local tokens, pages = kv({}, 0, 1, 1e9)
    assert.same({ 400, 25 }, { tokens, pages })
    tokens, pages = kv({ context = 101 }, 0, 1, 1e9)
    assert.same({ 416, 26 }, { tokens, pages }) -- 404 -> 26 pages of 16
  end)
  it("takes what fits if that is less", function()
    -- 0.9 * 1000 - 500 = 400 bytes, 2 a token: 200 tokens, 12 whole pages
    local tokens, pages = kv({}, 500, 2, 1000)
    assert.same({ 192, 12 }, { tokens, pages })
  end)
  it("refuses what cannot hold one request, with exit 4 and a hint", function()
    local _, e = kv({}, 800, 2, 1000)
    assert.equal(4, e.exit)
    assert.matches("room for 48 tokens", e.message)
    assert.matches("want.context = 48", e.hint)
  end)
  it("keeps a number that was asked for, also where it is no whole page", function()
    local tokens, pages = kv({ tokens = 70 }, 0, 1, 1e9)
    assert.same({ 70, 5 }, { tokens, pages })
  end)
  it("refuses a number that does not fit", function()
    local _, e = kv({ tokens = 1000 }, 0, 1, 1000)
    assert.equal(4, e.exit)
  end)
  it("refuses nothing when the machine's memory is unknown", function() assert.equal(400, (kv({}, 1e15, 1, nil))) end)
end)
