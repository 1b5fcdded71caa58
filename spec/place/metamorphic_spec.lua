-- SPDX-License-Identifier: Apache-2.0
--- What must stay the same when a machine is described in another way, and what must change when it gets better or worse: over imagined
--- machines to the UUID, over the corpus of topologies by the properties of `tpl test-policy` (ties of the ranking set aside).
local configs = require("spec.support.configs")
local corpus = require("spec.topo.corpus_support")
local guard = require("tpl.policy.guard")
local machine = require("tpl.plan.machine")
local machines = require("spec.support.machines")
local permute = require("tpl.policy.permute")
local policy = require("tpl.policy")
local properties = require("tpl.policy.properties")
local random = require("tpl.fuzz.draw").random
local S = require("spec.place.support")
local topos = require("tpl.topo")

local imagined = {
  { "a pair by NVLink and two by PCIe", { gpus = "a100_pcie", n = 4, nodes = 2, link = { { 1, 2, 12 } } } },
  { "bridged pairs, crossed", { gpus = "a100_pcie", n = 8, nodes = 2, link = { { 0, 5, 12 }, { 1, 4, 12 }, { 2, 7, 12 }, { 3, 6, 12 } } } },
  { "eight by NVSwitch", { gpus = "h100", n = 8, nodes = 2, link = "switch" } },
  { "eight by PCIe", { gpus = "l40s", n = 8, nodes = 2 } },
  { "80 + 40 + 40 GB", { gpus = { "a100_40", "a100", "a100_40" } } },
  { "one busy, one labelled", { gpus = "h100", n = 4, link = "switch", change = function(d)
    d[1].busy = { pids = { 77 }, used_bytes = 30 * 2 ^ 30 }
    d[3].labels = { "service" }
  end } },
}

local wishes = {
  { "a pair", "llama-3.1-8b", { tp = 2, pp = 1, replicas = 1, context = 8192, concurrency = 16 } },
  { "the best for latency", "llama-3.1-8b", { replicas = 1, context = 8192, concurrency = 16, goal = "latency" } },
  { "a 70B", "llama-3.3-70b-fp8", { replicas = 1, context = 4096, concurrency = 8 } },
}

-- UUIDs by stage, or why there is no placement.
local function choice(record, wish)
  local topo = assert(topos.from_record(guard.copy(record)))
  local placement, e = policy.run("auto", topo, configs.shape(wish[2]), wish[3], { quick = true })
  if not placement then
    assert.equal(4, e.exit, e.message)
    return nil, {}
  end
  local out, chosen = {}, {}
  for r, replica in ipairs(placement.replicas) do
    out[r] = {}
    for i, s in ipairs(replica.stages) do
      out[r][i] = {}
      for k, uid in ipairs(s.devices) do
        out[r][i][k] = topo:dev(uid).uuid
        chosen[topo:dev(uid).uuid] = true
      end
    end
  end
  return out, chosen
end

local function shuffle(r)
  return function(n)
    local list = {}
    for i = 1, n do list[i] = i end
    for i = n, 2, -1 do
      local j = r:below(i) + 1
      list[i], list[j] = list[j], list[i]
    end
    return list
  end
end

-- Of a group the set matters: which rank is on which of its equal cards is no difference.
local function as_sets(list)
  for _, replica in ipairs(list or {}) do
    for _, stage in ipairs(replica) do table.sort(stage) end
  end
  return list
end

describe("auto on", function()
  for _, m in ipairs(imagined) do
    describe(m[1] .. ", asked for", function()
      for _, wish in ipairs(wishes) do
        local record, what = machines.record(m[2]), wish[1] .. ", " .. wish[2]

        it(what .. ": takes the same UUIDs whatever the indices are", function()
          local first, r = as_sets((choice(record, wish))), random(5, 1)
          for _ = 1, 8 do assert.same(first, as_sets((choice(permute.indices(record, shuffle(r)), wish)))) end
        end)

        it(what .. ": takes the same when one that it did not take is gone", function()
          local first, chosen = choice(record, wish)
          first = as_sets(first)
          for _, d in ipairs(first and record.devices or {}) do
            if not chosen[d.uuid] then assert.same(first, as_sets((choice(permute.without(record, { [d.uid] = true }), wish)))) end
          end
        end)

        it(what .. ": never takes a pair because its link got worse", function()
          local first, chosen = choice(record, wish)
          for i, l in ipairs(first and record.links or {}) do
            if not (chosen[l.a] and chosen[l.b]) then
              local other = guard.copy(record)
              other.links[i] = { a = l.a, b = l.b, kind = "sys", source = "stated" }
              local _, now = choice(other, wish)
              assert.is_false(now[l.a] == true and now[l.b] == true, l.a .. " and " .. l.b)
            end
          end
        end)
      end
    end)
  end
end)

describe("a chosen pair whose link gets worse", function()
  it("loses to the other one", function()
    local o = { gpus = "a100_pcie", n = 4, nodes = 2, link = { { 0, 1, 12 }, { 2, 3, 12 } } }
    local record = machines.record(o)
    local _, before = choice(record, wishes[1])
    for _, l in ipairs(record.links) do
      if before[l.a] and before[l.b] then
        l.kind, l.nvlinks, l.p2p = "sys", nil, nil
      end
    end
    local _, after = choice(record, wishes[1])
    for uuid in pairs(before) do assert.is_nil(after[uuid]) end
  end)
end)

describe("20 GB taken on one of two equal cards", function()
  local function taken(devices) devices[2].free_bytes = devices[2].free_bytes - 20e9 end

  it("gives uneven layers, and their gain", function()
    local fields = { want = { context = 8192, concurrency = 24 } }
    local even = S.planned("llama-3.3-70b-fp8", S.switched("h100", 2), fields)
    assert.equal("tp=2 pp=1", S.degrees(even))
    local plan = S.planned("llama-3.3-70b-fp8", S.switched("h100", 2, { change = taken }), fields)
    local stages = plan.report.stages
    assert.equal(2, #stages)
    local first, second = stages[1].layers[2] - stages[1].layers[1], stages[2].layers[2] - stages[2].layers[1]
    local is_first_full = S.number(plan.report.ranks[1].uid) == 0
    assert.is_true(is_first_full and first > second or not is_first_full and second > first, ("%d %d"):format(first, second))
    assert.matches("layers cut by memory: %+%d+ KV tokens %(%+%d+ %%%)", S.reasons(plan))
  end)

  it("gives uneven shares at a mesh of two, and their gain", function()
    local fields = { want = { context = 8192, concurrency = 24 }, mesh = "tp=2", pp = 1 }
    local plan = S.planned("gpt-oss-120b", S.pcie("l40s", 2, { change = taken }), fields)
    local large, small = S.shares(plan):match("(%d)/(%d)")
    assert.is_true(tonumber(large) > tonumber(small), S.shares(plan))
    assert.matches("uneven shares by memory: ", S.reasons(plan))
  end)
end)

describe("the reference host, two whole cards and two cut into slices", function()
  local function host() return assert(topos.read { "spec/fixtures/topologies/host-4xh100-two-in-mig.yaml" }) end
  local whole = {}
  for _, d in ipairs(host().devices) do
    if d.kind == "gpu" and not (d.mig and d.mig.mode == "on") then whole[d.uuid] = true end
  end

  it("keeps the ranks on the whole cards' UUIDs, whatever their indices", function()
    local r = random(9, 2)
    for i = 1, 12 do
      local topo = host()
      if i > 1 then topo = assert(topos.from_record(permute.indices(topo, shuffle(r)))) end
      local plan = S.planned("llama-3.3-70b-fp8", topo, { mesh = "tp=2" })
      local got = {}
      for _, rank in ipairs(plan.report.ranks) do got[topo:dev(rank.uid).uuid] = true end
      assert.same(whole, got)
    end
  end)
end)

describe("auto on the corpus of topologies", function()
  local folder = corpus.folder()
  if not folder then
    it("(not there)", function() pending("the shared folder is not there (TPL_SHARED): its topologies are not tried") end)
  end
  local auto = assert(policy.load("auto"))
  for _, name in ipairs(corpus.files()) do
    local topo = topos.read { folder .. "/" .. name }
    local gpus = topo and topo:ids { kind = "gpu", usable = true } or {}
    if #gpus > 1 then
      it(name .. " keeps the properties of test-policy", function()
        local record = guard.copy(machine.complete(topo, { "gpu=h100-sxm-80gb" }))
        for i, model in ipairs { "8b", "34b" } do
          local case = { seed = 3, number = i, kinds = { name }, record = record, model = model,
            want = { context = 2048, concurrency = 1, goal = i == 1 and "latency" or "throughput", kv_dtype = "f16", act = "bf16", usable = 0.9,
              require = {}, devices = {} } }
          local failure = properties.check(auto, case, {})
          assert.is_nil(failure, failure and failure.property .. ": " .. failure.message)
        end
      end)
    end
  end
end)
