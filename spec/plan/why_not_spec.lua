-- SPDX-License-Identifier: Apache-2.0
--- `tpl plan --why-not`: the rule or the price that lost, on machines where each of them is the reason.
local choices = require("tpl.plan.choices")
local err = require("tpl.err")
local machines = require("spec.support.machines")
local S = require("spec.place.support")

local function why_not(plan, text) return choices.why_not(plan, text) end

describe("--why-not", function()
  local pair = S.planned("llama-3.1-8b", S.switched("h100", 2))

  it("says taken for what the plan does", function()
    local w = why_not(pair, "tp=1")
    assert.is_true(w.taken)
    assert.equal("tp=1", w.asked)
    assert.matches("what this plan does", w.why)
    assert.is_true(why_not(S.planned("llama-3.3-70b", machines.topo { gpus = "a100_pcie", n = 4, link = "pairs" }), "tp=2 pp=2").taken)
  end)

  it("names the price that lost", function()
    local w = why_not(pair, "tp=2")
    assert.is_false(w.taken)
    assert.equal("price", w.rule)
    assert.matches("tok/s when full", w.why)
    assert.is_true(w.price.tok_s > 0 and w.price.itl_us > 0)
    -- faster for one request, less work done by both GPUs
    assert.is_true(w.price.itl_us < w.chosen.itl_us)
    assert.is_true(w.price.tok_s * w.price.replicas < w.chosen.tok_s * 2)
  end)

  it("names the memory, with the bytes", function()
    local w = why_not(S.planned("llama-3.3-70b-fp8", S.switched("h100", 4), { want = { context = 32768, concurrency = 20 } }), "tp=2 pp=1")
    assert.equal("memory", w.rule)
    assert.matches("need %d+ bytes .*KV 100.0 GiB", w.why)
  end)

  it("names the rule that forbids it", function()
    local w = why_not(S.planned("llama-3.3-70b-fp8", machines.topo { gpus = "l40s", n = 16, nodes = 2 }), "tp=16")
    assert.equal("forbidden", w.rule)
    assert.matches("more than the 8 groups of KV heads", w.why)
  end)

  it("names the devices that are missing", function()
    local w = why_not(pair, "pp=3")
    assert.equal("devices", w.rule)
    assert.matches("needs 3 devices, 2 may be used", w.why)
    w = why_not(pair, "tp=2 pp=2")
    assert.equal("devices", w.rule)
    assert.matches("needs 4 devices", w.why)
    assert.matches("needs 4 devices", why_not(pair, "tp=4").why)
  end)

  it("names a requirement that it would break", function()
    local plan = S.planned("llama-3.1-8b", S.switched("h100", 2), { require = { itl_ms = 8 } })
    local w = why_not(plan, "tp=1 pp=1")
    assert.equal("require", w.rule)
    assert.matches("require.itl_ms", w.why)
  end)

  it("refuses what it cannot be asked", function()
    for _, text in ipairs { "ep=4", "tp", "tp=two", "", "tp=2; pp=1" } do
      local w, e = err.try(choices.why_not, pair, text)
      assert.is_nil(w)
      assert.same({ "usage", 2 }, { e.code, e.exit })
    end
  end)
end)
