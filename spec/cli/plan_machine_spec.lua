-- SPDX-License-Identifier: Apache-2.0
--- `tpl plan --topo` from the command line: what deploy.lua asks for is kept, answers have the promised fields, and refusals say why.
local configs = require("spec.support.configs")
local helper = require("spec.cli.helper")
local machines = require("spec.support.machines")
local make = require("tpl.plan.make").make
local script = require("tpl.script")
local yaml = require("tpl.yaml")

local H100 = { gpus = "h100", n = 4, link = "switch" }

describe("tpl plan --topo", function()
  local dir

  before_each(function() dir = helper.folder() end)
  after_each(function() helper.remove(dir) end)

  local function record(o)
    local t = machines.topo(o)
    return helper.write(dir .. "/box.yaml", (assert(yaml.encode({ hosts = t.hosts, devices = t.devices, links = t.links }))))
  end

  -- A plan of a deploy.lua with these fields, besides its model.
  local function plan(o, model, fields, ...)
    local file = helper.write(dir .. "/deploy.lua", ("return tpl.deploy { model = %q, %s }"):format(configs.folder(model), fields))
    local r = helper.run({ "plan", file, "--topo", record(o), "--json", ... }, { make = make })
    return r.lines[1], r.code
  end

  local function is_whole(x) return type(x) == "number" and x == math.floor(x) end

  it("counts bytes in whole numbers, also of shares that do not come out even", function()
    for _, model in ipairs { "llama-3.1-8b", "gpt-oss-120b" } do
      local result = plan({ gpus = "h100", n = 3, link = "switch" }, model, "mesh = 'tp=3'").result
      for _, rank in ipairs(result.ranks) do
        local sum = 0
        for name, bytes in pairs(rank.bytes) do
          assert.is_true(is_whole(bytes), name)
          if name ~= "total" and name ~= "capacity" and name ~= "stranded" then sum = sum + bytes end
        end
        assert.equal(sum, rank.bytes.total)
      end
      for _, link in ipairs(type(result.cost) == "table" and result.cost.link_bytes_per_token or {}) do assert.is_true(is_whole(link.bytes)) end
    end
  end)

  it("prices a family with a definition whose weights cannot be run, and says that it does not run", function()
    local answer = plan(H100, "llama-3.3-70b-fp8", "mesh = 'tp=2'")
    assert.is_true(answer.result.cost.itl_us > 0)
    assert.equal("not_runnable", answer.warnings[1].code)
    local unknown = plan(H100, "gpt-oss-120b", "mesh = 'tp=2'")
    assert.equal(require("tpl.json").null, unknown.result.cost)
    assert.equal("no_definition", unknown.warnings[1].code)
  end)

  it("keeps the number of replicas, also of stages that are given", function()
    assert.equal(3, #plan(H100, "llama-3.1-8b", "replicas = 3").result.replicas)
    local answer, code = plan(H100, "llama-3.1-8b", "replicas = 5")
    assert.equal(4, code)
    assert.equal("replicas=5 needs 5 devices, 4 may be used", answer.error.message)
    local stages = "stages = { { layers = { 0, 15 } }, { layers = { 16, 31 } } }, replicas = 2"
    assert.equal(2, #plan(H100, "llama-3.1-8b", stages).result.replicas)
    answer, code = plan(H100, "llama-3.1-8b", "stages = { { layers = 'all', devices = { '0000:10:00.0' } } }, replicas = 2")
    assert.equal(3, code)
    assert.matches("stages name the devices of one", answer.error.message)
  end)

  it("names the mesh that was asked for in its reasons", function()
    local result = plan(H100, "llama-3.1-8b", "mesh = 'dp=2:batch,tp=2'").result
    assert.matches("^dp=2:batch,tp=2 pp=1 on", result.choice.reasons[1])
    assert.equal(2, result.degrees.dp)
    assert.equal(2, result.degrees.tp)
  end)

  it("takes the shares of a layout that a stages function made", function()
    -- INDEX.md of data/topologies and the issue: 80 + 40 + 40 GB is kvh 4/2/2
    local o = { gpus = { "a100_pcie", "a100_40", "a100_40" }, n = 3 }
    local stages = [[stages = function(ctx)
      local d = ctx.topo:pick { ids = { 0, 1, 2 } }
      return { { devices = d, layers = "all", mesh = { { "tp", 3 } }, layout = tpl.use("megatron", { shares = { tp = ctx:shares(d, "mem") } }) } }
    end]]
    for _, model in ipairs { "llama-3.1-8b", "llama-3.3-70b-fp8" } do
      local result = plan(o, model, stages).result
      local heads = {}
      for i, rank in ipairs(result.ranks) do heads[i] = rank.shards.kvh[1][2] end
      assert.same({ 4, 2, 2 }, heads)
      assert.same({ 4, 2, 2 }, { unpack(result.stages[1].shares.tp) })
    end
  end)

  it("uses devices that devices.only names, labelled or busy", function()
    local function labels(devices) devices[3].labels, devices[4].busy = { "service" }, { pids = { 7 }, used_bytes = 2 ^ 34 } end
    local o = { gpus = "h100", n = 4, link = "switch", change = labels }
    assert.same({ "0000:20:00.0" }, { unpack(require("tpl.util").map(plan(o, "llama-3.1-8b", "devices = { only = { 'service' } }").result.replicas[1].devices,
      function(uid) return ("0000:%02x:00.0"):format(0x10 + 8 * tonumber(uid:match("^GPU%-(%x+)"), 16)) end)) })
    assert.equal(1, #plan(o, "llama-3.1-8b", "devices = { only = { '0000:28:00.0' } }").result.replicas)
    assert.equal(2, #plan(o, "llama-3.1-8b", "place = 'auto'").result.replicas)
  end)

  it("says why no device may be used", function()
    local answer, code = plan({ gpus = "h100", n = 1, change = function(devices) devices[1].mig = { mode = "on" } end }, "llama-3.1-8b", "place = 'auto'")
    assert.equal(4, code)
    assert.matches("no device may be used: GPU%-.*MIG", answer.error.message)
  end)

  it("names what comes closest when nothing holds a request", function()
    -- 131 GiB of weights on two cards of 45 GiB: two of them lack less than one
    local answer = plan({ gpus = "l40s", n = 2 }, "llama-3.3-70b", "place = 'auto'")
    assert.matches("^tp=2 pp=1: .* need %d+ bytes .*not even one request of 8192 tokens fits", answer.error.message)
  end)

  it("tells a broken requirement from memory that does not suffice", function()
    local answer = plan({ gpus = "l40s", n = 4 }, "llama-3.3-70b", "require = { link = 'nvlink' }")
    assert.equal("require", answer.error.code)
  end)

  it("draws the placement", function()
    plan(H100, "llama-3.1-8b", "mesh = 'tp=4'", "--svg", dir .. "/box.svg")
    assert.matches("rank 3 stage 0", helper.read(dir .. "/box.svg"))
  end)

  it("gives the kind of a difference and its changes", function()
    local other = helper.write(dir .. "/other.lua", ("return tpl.deploy { model = %q, mesh = 'tp=2', replicas = 1 }"):format(configs.folder("llama-3.1-8b")))
    local result = plan(H100, "llama-3.1-8b", "mesh = 'tp=4'", "--diff", other).result
    assert.equal("reload", result.kind)
    assert.is_true(#result.changes > 0)
    assert.same(result.diff.changes, result.changes)
  end)

  it("refuses a manifest of another cut as drift", function()
    local manifest = dir .. "/m.yaml"
    plan(H100, "llama-3.1-8b", "mesh = 'tp=2', pp = 1, replicas = 1", "--manifest", manifest)
    local answer, code = plan(H100, "llama-3.1-8b", "mesh = 'tp=4', pp = 1, replicas = 1", "--manifest", manifest)
    assert.equal(4, code)
    assert.equal("drift", answer.error.code)
    assert.matches("ranks of a stage: 2 %-> 4", answer.error.message)
    assert.equal("degrees_changed", answer.result.changes[1].code)
    answer = plan(H100, "llama-3.1-8b", "mesh = 'tp=4', pp = 1, replicas = 1", "--manifest", manifest, "--accept-drift")
    assert.equal(4, answer.result.degrees.tp)
  end)

  it("stops a file and a stages function that do not end", function()
    local policies, hard_s, script_s = require("tpl.policy"), require("tpl.policy").HARD_S, script.HARD_S
    finally(function() policies.HARD_S, script.HARD_S = hard_s, script_s end)
    policies.HARD_S, script.HARD_S = 0.2, 0.2
    local answer, code = plan(H100, "llama-3.1-8b", "stages = function() while true do end end")
    assert.equal(3, code)
    assert.matches("deploy.lua:1$", answer.error.where)
    assert.matches("was stopped", answer.error.message)
    local policy = helper.write(dir .. "/loop.lua", "local n = 0\nwhile true do\n  pcall(function() while true do n = n + 1 end end)\nend\n")
    answer, code = plan(H100, "llama-3.1-8b", ("place = %q"):format(policy))
    assert.equal(3, code)
    assert.matches("loop.lua:%d$", answer.error.where)
    assert.matches("was stopped", answer.error.message)
  end)

  it("finds a card however its name is written", function()
    local gpus = require("tpl.cost.gpus")
    for _, name in ipairs { "rtx4090", "rtx-4090", "RTX 4090", "NVIDIA GeForce RTX 4090" } do assert.equal("rtx 4090", gpus.find(name).name) end
  end)
end)
