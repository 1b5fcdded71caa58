-- SPDX-License-Identifier: Apache-2.0
--- A printed move, applied, gives the tokens that were printed. Expected values: a second plan with the stages as moved.
local machines = require "spec.support.machines"
local make = require "tpl.plan.make"
local models = require "spec.support.models"

local GIB = 2 ^ 30

local function small_gpus()
  return machines.topo { gpus = "l40s", n = 2, change = function(devices)
    for _, d in ipairs(devices) do d.mem_bytes, d.free_bytes = 3 * GIB, math.floor(2.2 * GIB) end
  end }
end

local function plan(path, topo, cut)
  local uids = topo:ids { kind = "gpu" }
  return assert(make.make({ model = path, want = { context = 8192, concurrency = 64 },
    stages = { { layers = { 0, cut - 1 }, devices = { uids[1] } }, { layers = { cut, 29 }, devices = { uids[2] } } } }, { topo = topo }))
end

describe("tpl.plan.moves", function()
  it("says what moving layers gains, to the token", function()
    local path, missing = models.smollm2()
    if not path then return pending(missing) end
    local topo = small_gpus()
    local before = plan(path, topo, 20)
    assert.is_true(#before.report.moves >= 2)
    for _, move in ipairs(before.report.moves) do
      local n = tonumber(move.what:match("^(%d+) layers? from stage 0 to 1:"))
      local after = plan(path, topo, 20 - n)
      assert.equal(move.kv_tokens_gain, after.kv.tokens - before.kv.tokens)
    end
  end)

  it("says what another share of the KV heads gains, to the token", function()
    local path, missing = models.smollm2()
    if not path then return pending(missing) end
    local topo = machines.topo { gpus = "l40s", n = 2, change = function(devices)
      for i, d in ipairs(devices) do d.mem_bytes, d.free_bytes = 4 * GIB, math.floor((i == 1 and 1.6 or 3.4) * GIB) end
    end }
    local function with(shares)
      return assert(make.make({ model = path, mesh = "tp=2", shares = { tp = shares }, want = { context = 8192, concurrency = 64 } }, { topo = topo }))
    end
    local before = with { 2, 1 } -- of 3 KV heads
    local move = before.report.moves[1]
    assert.matches("^1 KV head group from rank 0 to 1: .* %(shares 1,2%)$", move.what)
    assert.equal(move.kv_tokens_gain, with({ 1, 2 }).kv.tokens - before.kv.tokens)
  end)

  it("says nothing where memory does not limit", function()
    local path, missing = models.smollm2()
    if not path then return pending(missing) end
    local p = assert(make.make(path, { topo = machines.topo { gpus = "l40s", n = 2 } }, { pp = "2", ["want.concurrency"] = "2" }))
    assert.same({}, p.report.moves)
  end)
end)
