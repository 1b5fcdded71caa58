-- SPDX-License-Identifier: Apache-2.0
--- The sizes that sites rely on when they order machines. Expected values by hand: usable are 0.90 x 81559 MiB = 71.7 GiB of an H100 and
--- 0.90 x 46068 MiB = 40.5 GiB of an L40S. gpt-oss-120b weighs 60.8 GiB (its card) and keeps 2 x 8 x 64 elements in each of 36 layers, of which
--- 18 have a window of 128; Llama 3.3 70B in FP8 weighs 67.7 GiB and keeps 2 x 8 x 128 elements in each of 80.
local S = require("spec.place.support")

local GIB = 2 ^ 30

local function wanted(context) return { want = { context = context, concurrency = 20 } } end

-- The bytes that the first rank would need, of the text that refuses: {all, weights, KV, usable}, in GiB.
local function refused_bytes(why)
  local all, weights, kv, usable = why:match("need %d+ bytes %(([%d.]+) GiB: weights ([%d.]+) GiB, KV ([%d.]+) GiB.-are usable %(([%d.]+) GiB%)")
  return { tonumber(all), tonumber(weights), tonumber(kv), tonumber(usable) }
end

local function rank_bytes(plan) return plan.report.ranks[1].bytes end

describe("gpt-oss-120b in MXFP4 on 4 x H100 80 GB, 20 requests,", function()
  local topo = S.switched("h100", 4)

  it("takes TP=4 for 131072 tokens, TP=2 is refused with its bytes", function()
    local plan = S.planned("gpt-oss-120b", topo, wanted(131072))
    assert.equal("tp=4 pp=1", S.degrees(plan))
    assert.equal(20 * 131072, plan.kv.tokens)
    -- 2 ranks: 60.8 / 2 of weights, 20 x 131072 x 18 x 2048 / 2 = 45.0 GiB of KV
    local bytes = refused_bytes(S.alternative(plan, "tp=2 pp=1 x2").why)
    assert.is_true(math.abs(bytes[2] - 30.4) <= 0.05 and math.abs(bytes[3] - 45.0) <= 0.1, table.concat(bytes, " "))
    assert.is_true(bytes[1] > bytes[4] and bytes[4] == 71.7)
  end)

  it("lists TP=3 with the price that lost", function()
    local plan = S.planned("gpt-oss-120b", topo, wanted(131072))
    local three = S.alternative(plan, "tp=3 pp=1")
    assert.matches("^%d+ tok/s when full, [%d.]+ ms a token", three.why)
    assert.is_true(three.score < tonumber(S.reasons(plan):match("(%d+) tok/s")))
  end)

  for _, context in ipairs { 32768, 65536 } do
    it("takes TP=2 for " .. context .. " tokens, twice", function()
      local plan = S.planned("gpt-oss-120b", topo, wanted(context))
      assert.equal("tp=2 pp=1 x2", S.degrees(plan))
      assert.equal(20 * context, plan.kv.tokens)
      -- 18 layers keep all, the others 128 positions of 20 requests
      assert.is_true(math.abs(rank_bytes(plan).kv - (20 * context + 20 * 128) * 18 * 2048 / 2) < 2 ^ 20)
      assert.is_truthy(S.alternative(plan, "tp=1 pp=1 x4").why:match("need %d+ bytes"), "one GPU holds the weights, not the KV")
    end)
  end

  it("would not take TP=2 for 65536 tokens if windows were not credited", function()
    local plan = S.planned("gpt-oss-120b", topo, wanted(65536))
    local b = rank_bytes(plan)
    local uncredited = b.total - b.kv + 20 * 65536 * 36 * 2048 / 2
    assert.is_true(uncredited > b.capacity, ("%.1f GiB"):format(uncredited / GIB))
    assert.is_true(b.total <= b.capacity)
  end)

  it("on two of them holds what is left for 131072 tokens, and says what is wanted", function()
    local plan = S.planned("gpt-oss-120b", S.switched("h100", 2), wanted(131072))
    assert.equal("tp=2 pp=1", S.degrees(plan))
    assert.is_true(plan.kv.tokens > 17 * 131072 and plan.kv.tokens < 20 * 131072)
    assert.truthy(S.reasons(plan):find("131072 x want.concurrency 20", 1, true))
  end)
end)

describe("Llama 3.3 70B in FP8 on 4 x H100 80 GB, 20 requests,", function()
  local topo = S.switched("h100", 4)

  it("takes TP=2 for 8192 tokens, twice", function()
    local plan = S.planned("llama-3.3-70b-fp8", topo, wanted(8192))
    assert.equal("tp=2 pp=1 x2", S.degrees(plan))
    assert.equal(20 * 8192, plan.kv.tokens)
    assert.equal(20 * 8192 * 80 * 2048 * 2 / 2, rank_bytes(plan).kv)
    -- one GPU: 67.7 and 50.0 GiB
    local bytes = refused_bytes(S.alternative(plan, "tp=1 pp=1 x4").why)
    assert.same({ 67.7, 50.0, 71.7 }, { bytes[2], bytes[3], bytes[4] })
  end)

  it("takes TP=4 for 32768 tokens, TP=2 and TP=3 are refused with their bytes", function()
    local plan = S.planned("llama-3.3-70b-fp8", topo, wanted(32768))
    assert.equal("tp=4 pp=1", S.degrees(plan))
    assert.equal(20 * 32768, plan.kv.tokens)
    local two, three = refused_bytes(S.alternative(plan, "tp=2 pp=1 x2").why), refused_bytes(S.alternative(plan, "tp=3 pp=1").why)
    assert.equal(100.0, two[3]) -- 200 GiB on two
    assert.equal(75.0, three[3]) -- 3 of 8 heads
    assert.is_true(two[1] > 71.7 and three[1] > 71.7)
  end)
end)

describe("gpt-oss-120b in AWQ on L40S", function()
  local plans = {}
  for n = 2, 4 do plans[n] = S.planned("gpt-oss-120b-awq", S.pcie("l40s", n, { nodes = 1 }), { want = { context = 65536, concurrency = 20 } }) end

  local function tokens_per_second(plan) return tonumber(S.reasons(plan):match("(%d+) tok/s")) end

  it("does not fit one", function()
    local plan, e = S.plan("gpt-oss-120b-awq", S.pcie("l40s", 1), { want = { context = 8192, concurrency = 1 } })
    assert.is_nil(plan)
    assert.equal(4, e.exit)
    assert.equal(40.5, refused_bytes(e.message)[4])
  end)

  it("fits two, but not 20 requests of 65536 tokens", function()
    assert.equal("tp=2 pp=1", S.degrees(plans[2]))
    assert.is_true(plans[2].kv.tokens < 20 * 65536)
    assert.truthy(S.reasons(plans[2]):find("nothing holds", 1, true))
  end)

  it("says what the third and the fourth buy", function()
    assert.equal(20 * 65536, plans[3].kv.tokens)
    assert.equal(20 * 65536, plans[4].kv.tokens)
    local two, three, four = tokens_per_second(plans[2]), tokens_per_second(plans[3]), tokens_per_second(plans[4])
    assert.is_true(two < three and three < four)
    -- the plan for four lists what two and three would do, at their price
    local on_two, on_three = S.alternative(plans[4], "tp=2 pp=1 x2"), S.alternative(plans[4], "dp=3 ep=3 pp=1")
    assert.matches("need %d+ bytes", on_two.why)
    assert.equal(three, math.floor(on_three.score + 0.5))
  end)

  it("for short requests makes two replicas of four", function()
    local plan = S.planned("gpt-oss-120b-awq", S.pcie("l40s", 4), { want = { context = 8192, concurrency = 16 } })
    assert.equal("tp=2 pp=1 x2", S.degrees(plan))
    assert.equal("0+1, 2+3", S.where(plan))
    assert.is_truthy(S.alternative(plan, "tp=4 pp=1"))
  end)
end)
