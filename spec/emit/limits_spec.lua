-- SPDX-License-Identifier: Apache-2.0
-- What other engines cannot do. The rules are theirs: vLLM 0.33.0 config/model.py (heads % tp), facts/peers.md table 1a.
local S = dofile("spec/emit/support.lua")
local emit = require("tpl.emit")
local limits = require("tpl.emit.limits")

local U = S.uuid

describe("sizes of TP that heads allow", function()
  -- 64 heads over 8 KV heads (Llama 3.3 70B): 1, 2, 4, 8 divide both; 16, 32, 64 divide the heads and are multiples of 8.
  it("are the divisors of both, and multiples with KV heads copied", function()
    local even, copied = limits.tp_sizes(64, 8)
    assert.same({ 1, 2, 4, 8 }, even)
    assert.same({ 16, 32, 64 }, copied)
  end)

  it("of 28 heads over 4 KV heads (Qwen2 7B) have no 8", function()
    local even, copied = limits.tp_sizes(28, 4)
    assert.same({ 1, 2, 4 }, even)
    assert.same({ 28 }, copied)
  end)

  it("follow the KV heads where the attention heads are not known", function()
    assert.same({ 1, 2, 4, 8 }, (limits.tp_sizes(nil, 8)))
  end)
end)

describe("a plan that an engine cannot hold", function()
  for _, target in ipairs { "vllm", "sglang", "trtllm" } do
    it("tp=3 on 64/8 heads is refused by " .. target .. " and prints the possible sizes", function()
      local e, err = emit.make(target, S.report({ { { U(0), U(1), U(2) } } }, { kvh = { 3, 3, 2 }, n_head = 64, n_kv = 8 }), S.machine(4))
      assert.is_nil(e)
      assert.equal("not_expressible", err.code)
      assert.equal(3, err.exit)
      assert.equal(1, #err.not_expressible)
      assert.truthy(err.not_expressible[1]:find("1, 2, 4, 8", 1, true))
      assert.truthy(err.message:find("tp=3", 1, true))
    end)
  end

  it("knows the KV heads from the shards when the report says nothing of heads", function()
    local _, err = emit.make("vllm", S.report({ { { U(0), U(1), U(2) } } }, { kvh = { 3, 3, 2 } }), S.machine(4))
    assert.truthy(err.not_expressible[1]:find("possible sizes: 1, 2, 4, 8", 1, true))
  end)

  it("uneven shares of a size that divides", function()
    -- 80 + 40 GB: 5 of 8 KV heads on the large card
    local _, err = emit.make("vllm", S.report({ { { U(0), U(1) } } }, { kvh = { 5, 3 }, n_head = 64, n_kv = 8 }), S.machine(2))
    assert.equal("not_expressible", err.code)
    assert.truthy(err.not_expressible[1]:find("5/3", 1, true))
  end)

  it("another TP per stage", function()
    local _, err = emit.make("vllm", S.report({ { { U(0), U(1) }, { U(2) } } }, { tp = 2, n_head = 64, n_kv = 8 }), S.machine(4))
    assert.equal("not_expressible", err.code)
    assert.truthy(err.not_expressible[1]:find("another TP per stage (2, 1)", 1, true))
  end)

  it("lists everything, not the first only", function()
    local _, err = emit.make("vllm", S.report({ { { U(0), U(1), U(2) }, { U(3) } } }, { tp = 3, n_head = 64, n_kv = 8 }), S.machine(4))
    assert.equal(2, #err.not_expressible)
  end)

  it("a group of MIG slices; one slice alone is fine", function()
    local t = S.reference_host()
    local _, err = emit.make("vllm", S.report({ { { S.mig_uuid(2, 0), S.mig_uuid(3, 0) } } }), t)
    assert.equal("not_expressible", err.code)
    assert.truthy(err.not_expressible[1]:find("MIG", 1, true))
    assert.truthy(emit.make("vllm", S.report({ { { S.mig_uuid(2, 0) } } }), t))
  end)

  it("CPU ranks", function()
    local t = S.topo { devices = { { uid = "cpu0", kind = "cpu", numa = 0 } } }
    local _, err = emit.make("vllm", S.report({ { { "cpu0" } } }), t)
    assert.equal("not_expressible", err.code)
  end)

  it("memory below 0.9 of the largest in a group: SGLang refuses it, vLLM does not", function()
    local t = S.machine(2)
    t.devices[2].mem_bytes = 40 * 2 ^ 30
    local report = S.report({ { { U(0), U(1) } } }, { n_head = 64, n_kv = 8 })
    local _, err = emit.make("sglang", report, t)
    assert.equal("not_expressible", err.code)
    assert.truthy(emit.make("vllm", report, t))
  end)

  it("different models in a group: TensorRT-LLM refuses it", function()
    local t = S.machine(2)
    t.devices[2].name = "NVIDIA A100-SXM4-80GB"
    local _, err = emit.make("trtllm", S.report({ { { U(0), U(1) } } }), t)
    assert.truthy(err.not_expressible[1]:find("A100", 1, true))
  end)

  it("hosts with unequal numbers of GPUs", function()
    local t = S.topo { hosts = { { id = "a" }, { id = "b" } },
      devices = { S.gpu(0, { host = "a" }), S.gpu(1, { host = "a" }), S.gpu(2, { host = "a" }), S.gpu(3, { host = "b" }) } }
    local _, err = emit.make("vllm", S.report({ { { U(0), U(1), U(2), U(3) } } }), t)
    assert.truthy(err.not_expressible[1]:find("unequal numbers of devices on the hosts (3, 1)", 1, true))
  end)
end)

describe("emit", function()
  it("refuses an unknown target as a usage error and names the nearest", function()
    local _, err = emit.make("vlm", S.report({ { { U(0) } } }), S.machine(1))
    assert.equal(2, err.exit)
    assert.truthy(tostring(err):find("vllm", 1, true))
  end)

  it("refuses a report that places nothing", function()
    local _, err = emit.make("vllm", { ranks = {}, replicas = {}, degrees = {} }, S.machine(1))
    assert.equal("format", err.code)
  end)

  it("warns that an engine does not follow another layout than megatron", function()
    local report = S.report({ { { U(0), U(1) } } }, { n_head = 64, n_kv = 8 })
    report.stages[1].layout = "/usr/share/tpl/lua/tpl/layouts/megatron_sp.lua"
    assert.same({}, assert(emit.make("vllm", report, S.machine(2))).warnings)
    report.stages[1].layout = "layouts/rows_only.lua"
    assert.equal("layout", assert(emit.make("vllm", report, S.machine(2))).warnings[1].code)
  end)

  it("takes the placement's replicas where a report has no ranks", function()
    local report = S.report({ { { U(0), U(1) } } }, { n_head = 64, n_kv = 8 })
    report.ranks, report.replicas = {}, { { devices = { U(2), U(3) } } }
    local e = assert(emit.make("vllm", report, S.machine(4)))
    assert.truthy(e.text:find("indices " .. U(2) .. " " .. U(3), 1, true))
  end)
end)
