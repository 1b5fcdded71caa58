-- SPDX-License-Identifier: Apache-2.0
--- What `auto` does with which machine: the strategy table of the project's topology design, one row a case. The shape of each
--- answer (TP inside NVLink, PP over slow links, replicas of what fits) is what the makers of the engines advise: vLLM's
--- "Parallelism and Scaling", Megatron-LM's "TP within a node". Prices decide between neighbours, so rows also name what lost.
local emit = require("tpl.emit")
local json = require("tpl.json")
local machines = require("spec.support.machines")
local S = require("spec.place.support")

local function two_hosts(network) return S.switched("h100", 8, { hosts = 2, network = network }) end

-- what, machine, model, fields of deploy.lua -> degrees, where (devices by number), lost (alternatives that were priced),
-- says (in the reasons), without (devices that were left out, and why)
local table_of_strategies = {
  { "fits one GPU: a replica each", S.switched("h100", 4), "llama-3.1-8b", {}, "tp=1 pp=1 x4", "0, 1, 2, 3", lost = { "tp=2 pp=1 x2", "tp=4 pp=1" } },
  { "NVLink pair, fits one GPU, throughput: still replicas", S.switched("h100", 2), "llama-3.1-8b", {}, "tp=1 pp=1 x2", "0, 1", lost = { "tp=2 pp=1" } },
  { "NVLink pair, goal=latency: TP=2", S.switched("h100", 2), "llama-3.1-8b", { want = { goal = "latency" } }, "tp=2 pp=1", "0+1",
    lost = { "tp=1 pp=1 x2" }, says = "nvlink" },
  { "a bridge between two of four: the pair of the bridge", machines.topo { gpus = "a100_pcie", n = 4, link = { { 1, 3, 12 } } }, "llama-3.3-70b-fp8",
    { want = { context = 4096, concurrency = 8, goal = "latency" }, mesh = "tp=2", replicas = 1 }, "tp=2 pp=1", "1+3", says = "nvlink x12" },
  { "NVLink 4, goal=latency: TP=4", S.switched("h100", 4), "llama-3.3-70b", { want = { goal = "latency" } }, "tp=4 pp=1", "0+1+2+3",
    lost = { "tp=2 pp=2" } },
  { "NVLink 8, goal=latency: TP=8", S.switched("h100", 8), "llama-3.3-70b", { want = { goal = "latency" } }, "tp=8 pp=1", "0+1+2+3+4+5+6+7",
    lost = { "tp=4 pp=2", "tp=4 pp=1 x2" } },
  { "NVLink pairs: TP in pairs, PP across", machines.topo { gpus = "a100_pcie", n = 4, link = "pairs", nodes = 2 }, "llama-3.3-70b", {}, "tp=2 pp=2", "0+1|2+3",
    lost = { "tp=4 pp=1", "tp=1 pp=4" }, says = "nvlink x12" },
  { "eight in NVLink pairs: two such pipelines", machines.topo { gpus = "a100_pcie", n = 8, link = "pairs", nodes = 2 }, "llama-3.3-70b", {}, "tp=2 pp=2 x2",
    "0+1|2+3, 4+5|6+7", lost = { "tp=4 pp=2", "tp=4 pp=1 x2" } },
  { "L40S on PCIe: PP", S.pcie("l40s", 4), "llama-3.3-70b-fp8", { want = { context = 4096, concurrency = 8 } }, "tp=1 pp=4", "0|1|2|3",
    lost = { "tp=2 pp=2", "tp=2 pp=1 x2" } },
  { "L40S on PCIe, fits one: replicas", S.pcie("l40s", 4), "llama-3.1-8b", {}, "tp=1 pp=1 x4", "0, 1, 2, 3", lost = { "tp=1 pp=4", "tp=2 pp=1 x2" } },
  { "70B on 3 GPUs by PCIe: PP is cheaper", S.pcie("a100_pcie", 3), "llama-3.3-70b", {}, "tp=1 pp=3", "0|1|2", lost = { "tp=3 pp=1" } },
  { "70B on 3 GPUs by NVLink: uneven TP is cheaper", S.switched("h100", 3), "llama-3.3-70b", { want = { context = 4096, concurrency = 16 } },
    "tp=3 pp=1", "0+1+2", lost = { "tp=1 pp=3" }, shares = "3/3/2", says = "3/3/2" },
  { "2 hosts by InfiniBand: TP inside, PP across", two_hosts(S.IB), "llama-3.1-405b-fp8", { want = { context = 32768, concurrency = 32 } }, "tp=8 pp=2",
    "0+1+2+3+4+5+6+7|8+9+10+11+12+13+14+15", lost = { "tp=4 pp=4" } },
  { "2 hosts by Ethernet: TP inside, PP across", two_hosts(S.ETHERNET), "llama-3.1-405b-fp8", { want = { context = 32768, concurrency = 32 } }, "tp=8 pp=2",
    "0+1+2+3+4+5+6+7|8+9+10+11+12+13+14+15", lost = { "tp=4 pp=4" } },
  { "MoE with small latent KV: EP with DP attention", two_hosts(S.IB), "deepseek-v3", { want = { context = 8192, concurrency = 64 } }, "dp=8 ep=8 pp=2",
    "0+1+2+3+4+5+6+7|8+9+10+11+12+13+14+15", lost = { "tp=4 pp=4", "dp=16 ep=16 pp=1" } },
  { "MoE whose attention weights would be held four times: TP", S.switched("h100", 8), "qwen3-235b-a22b", { want = { context = 8192, concurrency = 64 } },
    "tp=4 pp=2", "0+1+2+3|4+5+6+7", lost = { "dp=4 ep=4 pp=2" } },
  { "MoE that gains nothing by EP: TP", S.switched("h100", 4), "gpt-oss-120b", { want = { context = 32768, concurrency = 20 } }, "tp=2 pp=1 x2", "0+1, 2+3",
    lost = { "dp=2 ep=2 pp=1 x2" } },
  { "mixed models: one kind, if that is enough", S.pcie({ "a100_pcie", "l40s", "a100_pcie", "a100_pcie", "l40s", "a100_pcie" }, 6), "llama-3.3-70b-fp8",
    { want = { context = 4096, concurrency = 8 } }, "tp=1 pp=2 x2", "0|2, 3|5", without = { [1] = "another model", [4] = "another model" } },
  { "mixed models, none is enough alone: one group with uneven shares", machines.topo { gpus = { "a100", "a100_40", "a100_40" } }, "llama-3.3-70b-fp8",
    { want = { context = 8192, concurrency = 24 } }, "tp=3 pp=1", "0+1+2", lost = { "tp=1 pp=3" }, shares = "4/2/2", says = "mixed models" },
  { "80 + 40 + 40 GB at tp=3: 4, 2 and 2 of 8 KV heads", machines.topo { gpus = { "a100", "a100_40", "a100_40" } }, "llama-3.3-70b-fp8",
    { want = { context = 8192, concurrency = 16 }, mesh = "tp=3" }, "tp=3 pp=1", "0+1+2", lost = { "tp=3 pp=1" }, shares = "4/2/2", says = "4/2/2" },
  { "tp=3 on 64/8 heads: 3, 3 and 2", S.switched("h100", 4), "llama-3.3-70b", { want = { context = 4096 }, mesh = "tp=3" }, "tp=3 pp=1", "0+1+2",
    shares = "3/3/2", says = "3/3/2" },
}

describe("the strategy of auto:", function()
  for _, row in ipairs(table_of_strategies) do
    it(row[1], function()
      local plan = S.planned(row[3], row[2], row[4])
      assert.equal(row[5], S.degrees(plan))
      assert.equal(row[6], S.where(plan))
      assert.equal("auto", plan.report.choice.policy)
      for _, name in ipairs(row.lost or {}) do
        local a = S.alternative(plan, name)
        assert.is_truthy(a, "not among the alternatives: " .. name)
        assert.matches("tok/s", a.why)
      end
      if row.shares then assert.equal(row.shares, S.shares(plan)) end
      if row.says then assert.truthy(S.reasons(plan):find(row.says, 1, true), S.reasons(plan)) end
      for number, why in pairs(row.without or {}) do assert.matches(why, S.excluded(plan)[number] or "not excluded") end
    end)
  end

  it("takes smaller replicas where larger ones are priced higher by less than an estimate may be off, and says so", function()
    local plan = S.planned("gpt-oss-120b", S.switched("h100", 4), { want = { context = 32768, concurrency = 20 } })
    local priced_higher = S.alternative(plan, "tp=4 pp=1").score / tonumber(S.reasons(plan):match("(%d+) tok/s"))
    assert.is_true(priced_higher > 1 and priced_higher < 1.25)
    assert.truthy(S.reasons(plan):find("smaller replicas were taken", 1, true))
    local latency = S.planned("gpt-oss-120b", S.switched("h100", 4), { want = { context = 32768, concurrency = 20, goal = "latency" } })
    assert.equal("tp=4 pp=1", S.degrees(latency))
  end)

  it("takes of PP and uneven TP on 3 GPUs the cheaper one by its own prices", function()
    for _, topo in ipairs { S.pcie("a100_pcie", 3), S.switched("h100", 3) } do
      local plan = S.planned("llama-3.3-70b", topo, { want = { context = 4096, concurrency = 16 } })
      local is_pp = plan.report.degrees.pp == 3
      local other = S.alternative(plan, is_pp and "tp=3 pp=1" or "tp=1 pp=3")
      assert.is_true(tonumber(S.reasons(plan):match("(%d+) tok/s")) > other.score)
    end
  end)

  it("puts TP groups in one host: no stage lies on two", function()
    for _, network in ipairs { S.IB, S.ETHERNET } do
      local topo = two_hosts(network)
      local plan = S.planned("llama-3.1-405b-fp8", topo, { want = { context = 32768, concurrency = 32 } })
      for i, s in ipairs(plan.placed.replicas[1].stages) do
        for _, uid in ipairs(s.devices) do assert.equal("host" .. i - 1, topo:dev(uid).host) end
      end
    end
  end)

  it("prints the bytes that uneven memory leaves stranded", function()
    -- Usable are 36 GiB of each small card and 72 GiB of the large one: 2 : 1 : 1. Shares of 4/2/2 fill all three. With 3/3/2 the small
    -- cards are full first, while the large one, with the same 3 eighths as one of them, keeps its other half.
    local plan = S.planned("llama-3.3-70b-fp8", machines.topo { gpus = { "a100", "a100_40", "a100_40" } },
      { want = { context = 8192, concurrency = 16 }, mesh = "tp=3" })
    local even = S.planned("llama-3.3-70b-fp8", machines.topo { gpus = { "a100", "a100_40", "a100_40" } },
      { want = { context = 8192, concurrency = 8 }, stages = { { layers = "all", mesh = "tp=3", shares = { tp = { 3, 3, 2 } } } } })
    for _, r in ipairs(plan.report.ranks) do assert.is_number(r.bytes.stranded) end
    assert.is_true(plan.report.ranks[1].bytes.stranded < 4 * 2 ^ 30)
    assert.is_true(even.report.ranks[1].bytes.stranded > 20 * 2 ^ 30, "3 of 8 on the large card")
    assert.matches("%+%d+ KV tokens %(%+%d+ %%%)", S.reasons(plan))
  end)

  it("refuses to write tp=3 for vLLM, and prints the sizes that its heads allow", function()
    local topo = S.switched("h100", 4)
    local plan = S.planned("llama-3.3-70b", topo, { want = { context = 4096 }, mesh = "tp=3" })
    local text, e = emit.make("vllm", json.decode(json.encode(plan.report)), topo, plan.deploy)
    assert.is_nil(text)
    assert.equal(3, e.exit)
    assert.equal("not_expressible", e.code)
    assert.truthy(e.not_expressible[1]:find("1, 2, 4, 8", 1, true), e.message)
  end)
end)
