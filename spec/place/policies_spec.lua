-- SPDX-License-Identifier: Apache-2.0
--- Each policy of policies/ keeps its heuristic, on imagined and recorded machines. What is expected follows from the heuristic that
--- heads its file and from the machine; machines of spec/fixtures/topologies are described in its files.
local machines = require("spec.support.machines")
local S = require("spec.place.support")

local SMALL, LARGE = "llama-3.1-8b", "llama-3.3-70b-fp8"

local function placed(policy, model, topo, fields)
  fields = fields or {}
  fields.place = policy
  local plan = S.planned(model, topo, fields)
  assert.equal(policy, plan.report.choice.policy)
  return plan
end

local function refused(policy, model, topo, fields)
  fields = fields or {}
  fields.place = policy
  local plan, e = S.plan(model, topo, fields)
  assert.is_nil(plan)
  assert.equal(4, e.exit)
  return e
end

local function says(plan, text) assert.truthy(S.reasons(plan):find(text, 1, true), S.reasons(plan)) end

local function pairs_of(gpus, n, more)
  local o = { gpus = gpus, n = n, link = "pairs", nodes = n >= 4 and 2 or 1 }
  for k, v in pairs(more or {}) do o[k] = v end
  return machines.topo(o)
end

-- A process of somebody else's on a device.
local function busy(device, gib)
  device.busy = { pids = { 4711 }, used_bytes = gib * 2 ^ 30 }
  device.free_bytes = device.free_bytes - gib * 2 ^ 30
end

describe("policy auto", function()
  it("leaves busy devices alone while the quiet ones hold what is wanted", function()
    local plan = placed("auto", SMALL, S.switched("h100", 4, { change = function(d) busy(d[2], 20) end }))
    assert.equal("0, 2, 3", S.where(plan))
    assert.matches("busy: process 4711 holds 20.0 GiB", S.excluded(plan)[1])
  end)

  it("takes busy ones too where nothing else holds it, never labelled ones", function()
    local topo = S.switched("h100", 4, { change = function(d)
      busy(d[2], 10)
      d[1].labels = { "embedding" }
    end })
    local plan = placed("auto", LARGE, topo, { want = { context = 8192, concurrency = 40 } })
    says(plan, "busy devices too")
    assert.matches("^%d", S.where(plan))
    assert.is_truthy(S.where(plan):find("1"))
    assert.is_falsy(S.where(plan):find("0"))
    assert.matches("labelled embedding", S.excluded(plan)[0])
  end)

  it("prices by the replica with least room where devices of one model are not equally free", function()
    local topo = S.switched("h100", 2, { change = function(d) d[2].free_bytes = 18 * 2 ^ 30 end })
    -- 15.0 GiB of weights and 16 GiB of KV: the first alone holds it, the second does not
    local plan = placed("auto", SMALL, topo)
    assert.is_not.equal("0, 1", S.where(plan))
    assert.equal(16 * 8192, plan.kv.tokens)
    assert.matches("need %d+ bytes", S.alternative(plan, "tp=1 pp=1 x2").why)
  end)

  it("refuses what no cut makes fit, with the bytes", function()
    assert.matches("need %d+ bytes .* usable", refused("auto", LARGE, S.pcie("rtx4090", 2)).message)
  end)
end)

describe("policy nvlink_pairs", function()
  it("makes TP=2 of each bridged pair", function()
    local plan = placed("nvlink_pairs", SMALL, S.recorded("4xa6000-bridge-pairs.topo.txt", "gpu=rtx-a6000"))
    assert.same({ "0+2, 1+3" }, { S.indices(plan) })
    says(plan, "nvlink x4")
  end)

  it("makes pipelines of pairs for what one pair does not hold", function()
    assert.equal("0+1|2+3", S.where(placed("nvlink_pairs", "llama-3.3-70b", pairs_of("a100_pcie", 4))))
  end)

  it("leaves a device without a partner free", function()
    assert.equal("0+1", S.where(placed("nvlink_pairs", SMALL, machines.topo { gpus = "a100_pcie", n = 3, link = { { 0, 1, 12 } } })))
  end)

  it("does not trust NVLink whose P2P is refused", function()
    local topo = pairs_of("a100_pcie", 4, { change = function(_, links) links[1].p2p = { read = "ns", write = "ns" } end })
    assert.equal("2+3", S.where(placed("nvlink_pairs", SMALL, topo)))
  end)

  it("joins no two models", function()
    local topo = machines.topo { gpus = { "a100", "a100_40", "a100_40" }, link = { { 0, 1, 12 }, { 0, 2, 12 }, { 1, 2, 12 } } }
    assert.equal("1+2", S.where(placed("nvlink_pairs", SMALL, topo)))
  end)

  it("refuses a machine without NVLink", function()
    assert.matches("no two equal devices are joined by NVLink", refused("nvlink_pairs", SMALL, S.pcie("l40s", 4)).message)
  end)
end)

describe("policy pipeline_balanced", function()
  local function layers(plan)
    local out = {}
    for i, s in ipairs(plan.report.stages) do out[i] = s.layers[2] - s.layers[1] + 1 end
    return out
  end

  it("makes a stage of each device, balanced, with fewer layers beside the head", function()
    local plan = placed("pipeline_balanced", SMALL, S.pcie("l40s", 4))
    assert.equal("0|1|2|3", S.where(plan))
    local n = layers(plan)
    assert.equal(32, n[1] + n[2] + n[3] + n[4])
    assert.is_true(n[4] < n[1] and n[4] < n[2])
    assert.is_true(plan.report.cost.stage_imbalance <= 0.10, tostring(plan.report.cost.stage_imbalance))
  end)

  it("gives large cards more layers", function()
    local n = layers(placed("pipeline_balanced", LARGE, machines.topo { gpus = { "a100", "a100_40", "a100_40" } }, { want = { concurrency = 24 } }))
    assert.is_true(n[1] > 1.5 * n[2] and n[1] > 1.5 * n[3], table.concat(n, " "))
  end)

  it("keeps to the stages that are asked for", function()
    local plan = placed("pipeline_balanced", SMALL, S.pcie("l40s", 4), { pp = 2 })
    assert.equal(2, plan.report.degrees.pp)
    assert.equal(1, #plan.report.replicas)
  end)

  it("leaves busy devices out", function()
    assert.equal("0|2|3", S.where(placed("pipeline_balanced", SMALL, S.pcie("l40s", 4, { change = function(d) busy(d[2], 5) end }))))
  end)
end)

describe("policy uneven_by_memory", function()
  it("deals KV heads out by memory: 80 + 40 + 40 GB is 4/2/2", function()
    local plan = placed("uneven_by_memory", LARGE, machines.topo { gpus = { "a100", "a100_40", "a100_40" } })
    assert.equal("tp=3 pp=1", S.degrees(plan))
    assert.equal("4/2/2", S.shares(plan))
    says(plan, "4/2/2")
  end)

  it("deals them out evenly on equal cards", function()
    local plan = placed("uneven_by_memory", LARGE, S.switched("h100", 4))
    assert.equal("tp=4 pp=1", S.degrees(plan))
    assert.equal("2/2/2/2", S.shares(plan))
  end)

  it("refuses more cards than there are groups of KV heads", function()
    assert.matches("more than the 8 groups of KV heads", refused("uneven_by_memory", LARGE, S.pcie("l40s", 9)).message)
  end)
end)

describe("policy replicas", function()
  it("gives each device one, if one holds the model", function()
    local plan = placed("replicas", SMALL, S.pcie("l40s", 8))
    assert.equal("tp=1 pp=1 x8", S.degrees(plan))
  end)

  it("else makes the smallest groups that hold it, linked ones", function()
    local plan = placed("replicas", LARGE, pairs_of("a100_pcie", 8))
    assert.equal("tp=2 pp=1 x4", S.degrees(plan))
    assert.equal("0+1, 2+3, 4+5, 6+7", S.where(plan))
  end)

  it("makes no more than are asked for", function()
    assert.equal(2, #placed("replicas", SMALL, S.pcie("l40s", 8), { replicas = 2 }).report.replicas)
  end)

  it("gives the most that fits where nothing holds what is wanted", function()
    says(placed("replicas", LARGE, S.switched("h100", 2), { want = { context = 32768, concurrency = 64 } }), "nothing holds")
  end)
end)

describe("policy exclude", function()
  it("leaves GPUs alone that are cut into MIG slices, and the slices", function()
    local topo = S.recorded("host-4xh100-two-in-mig.yaml")
    local plan = placed("exclude", SMALL, topo)
    local used = {}
    for _, r in ipairs(plan.report.ranks) do used[topo:dev(r.uid).index] = topo:dev(r.uid).kind end
    assert.same({ [0] = "gpu", [1] = "gpu" }, used)
    local why = S.excluded(plan)
    for _, d in ipairs(topo.devices) do
      if d.index >= 2 or d.kind == "mig" then assert.matches("MIG", why[S.number(d.uid)] or why[d.uid] or "not excluded") end
    end
  end)

  it("leaves busy and labelled ones alone, even if nothing else is left", function()
    local topo = S.switched("h100", 4, { change = function(d)
      busy(d[1], 30)
      d[4].labels = { "reranker" }
    end })
    local plan = placed("exclude", SMALL, topo)
    assert.equal("1, 2", S.where(plan))
    assert.matches("busy", S.excluded(plan)[0])
    assert.matches("reranker", S.excluded(plan)[3])
    local all_busy = S.switched("h100", 2, { change = function(d)
      busy(d[1], 5)
      busy(d[2], 5)
    end })
    assert.matches("in use by somebody else", refused("exclude", SMALL, all_busy).message)
  end)

  it("leaves alone what its fabric says is not healthy", function()
    local topo = S.recorded("8xh100-three-unhealthy.yaml")
    local unusable = {}
    for _, d in ipairs(topo.devices) do if not d.usable then unusable[d.uid] = true end end
    local plan = placed("exclude", SMALL, topo)
    assert.equal(5, #plan.report.ranks)
    for _, r in ipairs(plan.report.ranks) do assert.is_nil(unusable[r.uid]) end
    assert.equal(3, #plan.report.choice.excluded)
  end)

  it("keeps to one model, the one with most memory", function()
    local plan = placed("exclude", SMALL, machines.topo { gpus = { "l40s", "a100", "a100", "l40s" } })
    assert.equal("1, 2", S.where(plan))
    assert.matches("another model", S.excluded(plan)[0])
  end)
end)

describe("policy numa_bind", function()
  it("keeps a group in one NUMA node, although a better link crosses", function()
    local topo = machines.topo { gpus = "a100_pcie", n = 4, nodes = 2, link = { { 1, 2, 12 } } }
    local plan = placed("numa_bind", LARGE, topo, { want = { concurrency = 8 }, mesh = "tp=2" })
    for _, replica in ipairs(plan.placed.replicas) do
      for _, s in ipairs(replica.stages) do assert.equal(topo:dev(s.devices[1]).numa, topo:dev(s.devices[2]).numa) end
    end
    assert.equal("1+2", S.where(placed("auto", LARGE, topo, { want = { concurrency = 8 }, mesh = "tp=2", replicas = 1 })))
  end)

  it("puts stages on both nodes for what one does not hold", function()
    local plan = placed("numa_bind", "llama-3.3-70b", machines.topo { gpus = "a100_pcie", n = 4, nodes = 2, link = "pairs" })
    assert.equal("0+1|2+3", S.where(plan))
    says(plan, "one NUMA node each")
  end)

  it("leaves out a device whose node is not known", function()
    local plan = placed("numa_bind", SMALL, S.pcie("l40s", 4, { change = function(d) d[3].numa = nil end }))
    assert.matches("NUMA node is not known", S.excluded(plan)[2])
    for _, r in ipairs(plan.report.ranks) do assert.is_not.equal(2, S.number(r.uid)) end
  end)
end)

describe("policy spare_pairs", function()
  it("takes the device without a partner first, and says which pair stays whole", function()
    local plan = placed("spare_pairs", SMALL, machines.topo { gpus = "a100_pcie", n = 3, link = { { 0, 1, 12 } } })
    assert.equal("2", S.where(plan))
    assert.matches("stay whole: GPU%-00000000[%x-]+%+GPU%-00000001[%x-]+", S.reasons(plan))
  end)

  it("breaks one pair rather than two", function()
    local plan = placed("spare_pairs", SMALL, pairs_of("a100_pcie", 4))
    assert.equal(1, #plan.report.ranks)
    assert.matches("stay whole: GPU%-%x+[%x-]+%+GPU%-%x+[%x-]+$", plan.report.choice.reasons[#plan.report.choice.reasons])
  end)

  it("takes a whole pair for what needs two", function()
    local plan = placed("spare_pairs", LARGE, pairs_of("a100_pcie", 4), { want = { context = 4096, concurrency = 8 } })
    assert.is_true(({ ["0+1"] = true, ["2+3"] = true })[S.where(plan)], S.where(plan))
  end)

  it("says none where none is left", function()
    says(placed("spare_pairs", LARGE, pairs_of("a100_pcie", 2)), "stay whole: none")
  end)
end)

describe("policies latency_first and throughput_first", function()
  it("take the goal that they are called by, whatever want says", function()
    local topo = S.switched("h100", 2)
    local fast = placed("latency_first", SMALL, topo, { want = { goal = "throughput" } })
    local many = placed("throughput_first", SMALL, topo, { want = { goal = "latency" } })
    assert.equal("tp=2 pp=1", S.degrees(fast))
    assert.equal("tp=1 pp=1 x2", S.degrees(many))
    assert.is_true(fast.report.cost.itl_us < many.report.cost.itl_us)
  end)

  it("widen TP no further than it helps", function()
    -- PCIe across sockets: 8 ranks wait more than they save
    local plan = placed("latency_first", SMALL, S.pcie("l40s", 8))
    assert.is_true(plan.report.degrees.tp < 8)
  end)
end)
