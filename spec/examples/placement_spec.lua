-- SPDX-License-Identifier: Apache-2.0
--- Every example of examples/placement on the machine that it is written for: where it is placed, what the report says, and that the
--- commands in its comment do what the comment says. Expected values follow from the sizes that spec/place/sizing_spec.lua works out, from
--- the machine's links, and from heads: 64 and 8 for a 70B.
local cli = require("spec.cli.helper")
local deploys = require("tpl.deploy")
local emit = require("tpl.emit")
local engine = require("tpl.engine")
local json = require("tpl.json")
local make = require("tpl.plan.make")
local S = require("spec.place.support")
local topos = require("tpl.topo")
local tree = require("spec.support.tree")

local FOLDER = "examples/placement/"

local function machine(name) return assert(topos.read { "examples/machines/" .. name .. ".yaml" }) end

local function plan(name, topo, words)
  local deploy, e = deploys.open(FOLDER .. name .. ".lua", words or {})
  assert(deploy, e)
  return make.make(deploy, { topo = topo, outline = true })
end

-- example, machine, words -> degrees, indices of devices by stage and replica; says (in the reasons), lost (alternatives), without (excluded: how many)
local cases = {
  { "reference_host", "h100x4-mig", {}, "tp=2 pp=1", "0+1", says = "nvlink x18", without = 6 },
  { "reference_host", "h100x4", {}, "tp=2 pp=1 x2", "0+1, 2+3", without = 0 },
  { "gpt_oss_h100", "h100x4", {}, "tp=4 pp=1", "0+1+2+3", lost = { "tp=3 pp=1", "tp=2 pp=1 x2" } },
  { "gpt_oss_h100", "h100x4", { context = "65536" }, "tp=2 pp=1 x2", "0+1, 2+3", lost = { "tp=4 pp=1" } },
  { "gpt_oss_h100", "h100x4", { context = "32768" }, "tp=2 pp=1 x2", "0+1, 2+3", lost = { "tp=4 pp=1" } },
  { "gpt_oss_l40s", "l40sx4", {}, nil, nil, lost = { "dp=3 ep=3 pp=1", "tp=2 pp=1 x2" } },
  { "llama70b_fp8_2gpus", "h100x2", {}, "tp=2 pp=1", "0+1", lost = { "tp=1 pp=2" } },
  { "llama70b_fp8_2gpus", "h100x2", { context = "32768" }, "tp=2 pp=1", "0+1", says = "nothing holds want.context 32768" },
  { "llama70b_fp8_4gpus", "h100x4", {}, "tp=4 pp=1", "0+1+2+3", lost = { "tp=2 pp=2", "tp=2 pp=1 x2" } },
  { "llama70b_fp8_4gpus", "h100x4", { context = "8192" }, "tp=2 pp=1 x2", "0+1, 2+3", lost = { "tp=4 pp=1" } },
  { "llama70b_fp8_4gpus", "h100x4", { context = "8192", goal = "latency" }, "tp=4 pp=1", "0+1+2+3", lost = { "tp=2 pp=1 x2" } },
  { "llama70b_3gpus", "a100x3", {}, "tp=1 pp=3", "0|1|2", lost = { "tp=3 pp=1" } },
  { "llama70b_3gpus", "a100x3", { tp = "3" }, "tp=3 pp=1", "0+1+2", says = "3/3/2" },
  { "two_hosts", "h100x8-two-hosts", {}, "tp=8 pp=2", "0+1+2+3+4+5+6+7|0+1+2+3+4+5+6+7", says = "nvlink x18", lost = { "tp=4 pp=4" } },
  { "a100x8", "a100x8", {}, "tp=4 pp=1 x2", "0+1+2+3, 4+5+6+7", says = "nvlink x12", lost = { "tp=8 pp=1" } },
  { "a100x8", "a100x8", { goal = "latency" }, "tp=8 pp=1", "0+1+2+3+4+5+6+7", lost = { "tp=4 pp=1 x2" } },
  { "rtx4090x8", "rtx4090x8", {}, "tp=1 pp=8", "0|1|2|3|4|5|6|7", lost = { "tp=2 pp=4" } },
  { "rtx4090x8", "rtx4090x8", { model = "../models/llama-3.1-8b", concurrency = "4" }, "tp=1 pp=1 x8", "0, 1, 2, 3, 4, 5, 6, 7" },
  { "v100_cube_mesh", "v100x8-cube-mesh", {}, "tp=4 pp=2", "0+1+2+3|4+5+6+7", says = "nvlink", lost = { "tp=8 pp=1" } },
  { "mixed_memory", "a100-80-40-40", {}, "tp=3 pp=1", "0+1+2", says = "4/2/2", lost = { "tp=3 pp=1" } },
}

describe("the example", function()
  local seen = {}

  for _, row in ipairs(cases) do
    seen[row[1]], seen[row[2]] = true, true
    local words = {}
    for k, v in pairs(row[3]) do words[#words + 1] = k .. "=" .. v end
    table.sort(words)

    it(("%s on %s %s"):format(row[1], row[2], table.concat(words, " ")), function()
      local p, e = plan(row[1], machine(row[2]), row[3])
      assert(p, e)
      if row[4] then
        assert.equal(row[4], S.degrees(p))
        assert.equal(row[5], S.indices(p))
      end
      if row.says then assert.truthy(S.reasons(p):find(row.says, 1, true), S.reasons(p)) end
      if row.without then assert.equal(row.without, #p.report.choice.excluded) end
      for _, name in ipairs(row.lost or {}) do assert.is_truthy(S.alternative(p, name), "not among the alternatives: " .. name) end
      -- every rank has its bytes, and none more than its card
      assert.is_true(#p.report.ranks > 0 and p.report.kv.tokens > 0)
      for _, r in ipairs(p.report.ranks) do
        assert.is_true(r.bytes.total <= r.bytes.capacity)
        assert.is_number(r.bytes.stranded)
      end
    end)
  end

  it("list above has every deploy.lua and every machine", function()
    for _, path in ipairs(tree.files({ "examples/placement", "examples/machines" }, { "%.lua$", "%.yaml$" })) do
      assert.is_true(seen[path:match("([^/]+)%.%w+$")], path)
    end
  end)
end)

describe("the reference host", function()
  local p = assert(plan("reference_host", machine("h100x4-mig")))
  local topo = machine("h100x4-mig")

  it("has its ranks on the UUIDs of the two whole cards", function()
    for i, r in ipairs(p.report.ranks) do
      local d = topo:dev(r.uid)
      assert.same({ i - 1, "gpu", "off" }, { d.index, d.kind, d.mig.mode })
      assert.matches("^GPU%-", d.uuid)
    end
  end)

  it("tells Kubernetes of two GPUs and four slices", function()
    local made = assert(emit.make("k8s", json.decode(json.encode(p.report)), topo, p.deploy))
    assert.truthy(made.text:find("nvidia.com/gpu: 2", 1, true))
    assert.truthy(made.text:find("nvidia.com/mig-3g.40gb: 4", 1, true))
    for _, r in ipairs(p.report.ranks) do assert.truthy(made.text:find(topo:dev(r.uid).uuid, 1, true)) end
  end)

  it("refuses a host where the two whole cards are not joined by NVLink", function()
    local other = machine("h100x4-mig")
    for _, l in ipairs(other.links) do l.kind, l.nvlinks, l.via_switch = l.pcie, nil, nil end
    local refused, e = plan("reference_host", assert(topos.from_record(other)))
    assert.is_nil(refused)
    assert.equal(4, e.exit)
    assert.equal("require", e.code)
  end)
end)

describe("8 x V100", function()
  local p = assert(plan("v100_cube_mesh", machine("v100x8-cube-mesh")))

  it("is priced and emitted", function()
    assert.is_true(p.report.cost.itl_us > 0 and p.report.cost.tok_s > 0)
    assert.matches("gpus%-per%-node=8", assert(emit.make("slurm", json.decode(json.encode(p.report)), p.topo, p.deploy)).text)
  end)

  it("is not run: there are no kernels for it", function()
    local eng, e = engine.open(p, {})
    assert.is_nil(eng)
    assert.matches("V100", e.message)
    assert.matches("no backend", e.message)
  end)
end)

describe("uneven cuts", function()
  it("print what stays stranded", function()
    local p = assert(plan("mixed_memory", machine("a100-80-40-40")))
    assert.equal("4/2/2", S.shares(p))
    -- 72 GiB and twice 36 are usable; half and two quarters of the model leave less than 4 GiB over
    for _, r in ipairs(p.report.ranks) do assert.is_true(r.bytes.stranded < 4 * 2 ^ 30) end
    assert.matches("uneven shares by memory: %+%d+ KV tokens", S.reasons(p))
  end)
end)

-- The commands that the head of a file shows: argv, and what is said behind "#".
local function commands(path)
  local out = {}
  for line in tree.read(path):gmatch("[^\n]+") do
    local command, remark = line:match("^%-%-   tpl (.-)%s+#%s*(.*)$")
    command = command or line:match("^%-%-   tpl (.-)%s*$")
    if command then
      local argv = {}
      for word in command:gsub('"', ""):gmatch("%S+") do argv[#argv + 1] = word end
      out[#out + 1] = { text = command, argv = argv, remark = remark or "" }
    end
  end
  return out
end

describe("the command", function()
  local drawing = cli.folder()
  teardown(function() cli.remove(drawing) end)

  for _, path in ipairs(tree.files({ "examples/placement" }, { "%.lua$" })) do
    local list = commands(path)
    it("list of " .. path .. " begins with the plain plan", function()
      assert.is_true(#list >= 2)
      assert.equal(path, list[1].argv[2])
      assert.equal(4, #list[1].argv)
    end)

    for _, c in ipairs(list) do
      it(c.text, function()
        for i, word in ipairs(c.argv) do
          if word == "--svg" then c.argv[i + 1] = drawing .. "/" .. c.argv[i + 1] end
        end
        local result = cli.run(c.argv, { make = make.make })
        assert.equal(c.remark:find("^refused") and 3 or 0, result.code, result.stderr)
        assert.is_true(#result.stdout > 0 or result.code == 3)
        local tp = c.remark:match("TP=(%d+)")
        if tp then assert.matches("tp=" .. tp .. "[ ,]", result.stdout) end
      end)
    end
  end
end)
