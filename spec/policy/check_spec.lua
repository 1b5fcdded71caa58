-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 1 (fields of a placement), issue "Topology and placement" (what is refused); one case for each rule, by hand.
local check = require("tpl.policy.check")
local machines = require("policy.machines")

local gpu = machines.gpu

describe("tpl.policy.check", function()
  local topo = machines.machine {
    gpu(0), gpu(1), gpu(2), gpu(3), gpu(4, { mig = { mode = "on" }, usable = false, why_not = { { code = "mig_on", message = "MIG is on" } } }),
    gpu(5, { usable = false, why_not = { { code = "lost", message = "the GPU is lost" } } }), gpu(6, { labels = { "service" } }),
    { uid = "MIG-a", kind = "mig", host = "host0", usable = true, mig = { parent = "GPU4", profile = "3g.40gb" } },
    { uid = "cpu0", kind = "cpu", host = "host0", usable = true }, { uid = "cpu1", kind = "cpu", host = "host0", usable = true },
  }
  local model = machines.model(8)

  local function refused(rule, at, placement, message, want)
    local ok, e = check.check(placement, topo, model, want)
    assert.is_nil(ok)
    assert.same({ rule, at, "policy_error", 3 }, { e.rule, e.at, e.code, e.exit }, tostring(e))
    if message then assert.truthy(tostring(e):find(message, 1, true), tostring(e)) end
    assert.is_string(check.rules[rule])
  end

  local function one(stage) return { replicas = { { stages = { stage } } } } end

  local function stages(...)
    local list = {}
    for i, layers in ipairs { ... } do list[i] = { devices = { "GPU" .. (i - 1) }, layers = layers } end
    return { replicas = { { stages = list } } }
  end

  it("gives a fresh table in long form", function()
    local given = { replicas = { { devices = { "GPU0", "GPU1" }, mesh = "tp=2", layout = "megatron", shares = { 2, 1 } } }, reasons = { "a" },
      excluded = { { uid = "GPU6", why = "labelled" } }, alternatives = { { name = "tp=1", score = 2, why = "slower" } } }
    local p = assert(check.check(given, topo, model))
    assert.same({ devices = { "GPU0", "GPU1" }, mesh = "tp=2", layout = "megatron", shares = { 2, 1 }, layers = { 0, 7 } }, p.replicas[1].stages[1])
    assert.same({ given.reasons, given.excluded, given.alternatives }, { p.reasons, p.excluded, p.alternatives })
    p.replicas[1].stages[1].devices[1], p.reasons[1] = "x", "x"
    assert.same({ "GPU0", "a" }, { given.replicas[1].devices[1], given.reasons[1] })
  end)

  it("accepts every form that interface.md allows", function()
    for _, placement in ipairs {
      one { devices = { "GPU0" } }, one { devices = { "GPU0" }, layers = "all" }, one { devices = { "GPU0" }, layers = { 0, 7 } },
      one { devices = { "GPU0", "GPU1" }, mesh = { { "tp", 2 } } }, one { devices = { "GPU0", "GPU1" }, mesh = { tp = 2 }, shares = { tp = { 2, 1 } } },
      one { devices = { "GPU0", "GPU1", "GPU2", "GPU3" }, mesh = "dp=2:batch,tp=2", shares = { tp = { 3, 1 } } },
      one { devices = { "MIG-a" } }, one { mesh = "tp=3" }, one { devices = { "cpu0", "cpu1" }, mesh = "tp=4" },
      { replicas = { { devices = { "GPU0" } }, { devices = { "MIG-a" } } } }, stages({ 0, 2 }, { 3, 6 }, { 7, 7 }),
    } do
      local ok, e = check.check(placement, topo, model)
      assert.is_truthy(ok, tostring(e))
    end
    assert.is_truthy(check.check(one { devices = { "GPU0" } }, topo, nil))
  end)

  it("refuses wrong types, naming the place", function()
    refused("wrong_type", "", 7)
    refused("wrong_type", "", { { devices = { "GPU0" } } }, "is a list")
    refused("wrong_type", "replicas", {}, "is nil")
    refused("wrong_type", "replicas", { replicas = "GPU0" })
    refused("wrong_type", "replicas[1]", { replicas = { "GPU0" } })
    refused("wrong_type", "replicas", { replicas = { devices = { "GPU0" } } }, "the key 'devices'")
    refused("wrong_type", "replicas[1].devices", { replicas = { { devices = "GPU0" } } })
    refused("wrong_type", "replicas[1].devices[1]", { replicas = { { devices = { 1 } } } }, "did you mean 'GPU1'?")
    refused("wrong_type", "replicas[1].devices[2]", { replicas = { { devices = { "GPU0", nil, "GPU1" } } } }, "no holes")
    refused("wrong_type", "replicas[1]", { replicas = { { stages = { { devices = { "GPU0" } } }, devices = { "GPU0" } } } }, "both stages and devices")
    refused("wrong_type", "replicas[1].stages[1].layers", one { devices = { "GPU0" }, layers = 4 })
    refused("wrong_type", "replicas[1].stages[1].layout", one { devices = { "GPU0" }, layout = 1 })
    refused("wrong_type", "replicas[1].stages[1].devices", one { devices = { "GPU0", "cpu0" } }, "mixes")
    refused("wrong_type", "reasons[1]", { replicas = { { devices = { "GPU0" } } }, reasons = { 7 } })
    refused("wrong_type", "reasons", { replicas = { { devices = { "GPU0" } } }, reasons = 7 })
    refused("wrong_type", "excluded[1].why", { replicas = { { devices = { "GPU0" } } }, excluded = { { uid = "GPU1" } } })
    refused("wrong_type", "excluded[1]", { replicas = { { devices = { "GPU0" } } }, excluded = { "GPU1" } })
    refused("wrong_type", "alternatives[1].name", { replicas = { { devices = { "GPU0" } } }, alternatives = { { score = 1 } } })
    local cycle = { replicas = { { devices = { "GPU0" } } } }
    cycle.replicas[1].shares = cycle
    refused("wrong_type", "replicas[1].shares", cycle, "contains itself")
  end)

  it("refuses fields that nobody reads", function()
    refused("unknown_field", "replica", { replica = {} }, "did you mean 'replicas'?")
    refused("unknown_field", "replicas[1].device", { replicas = { { device = { "GPU0" } } } }, "did you mean 'devices'?")
    refused("unknown_field", "excluded[1].reason", { replicas = { { devices = { "GPU0" } } }, excluded = { { uid = "GPU1", reason = "x" } } })
  end)

  it("refuses NaN and infinities anywhere", function()
    refused("not_finite", "replicas[1].stages[1].layers[2]", stages({ 0, 0 / 0 }))
    refused("not_finite", "replicas[1].devices[1]", { replicas = { { devices = { 0 / 0 } } } })
    refused("not_finite", "alternatives[1].score", { replicas = { { devices = { "GPU0" } } }, alternatives = { { name = "x", score = math.huge } } })
    refused("not_finite", "replicas[1].shares[1]", { replicas = { { devices = { "GPU0" }, shares = { -math.huge } } } })
  end)

  it("refuses what places nothing", function()
    refused("empty", "replicas", { replicas = {} })
    refused("empty", "replicas[1].stages", { replicas = { { stages = {} } } })
    refused("empty", "replicas[1].devices", { replicas = { { devices = {} } } })
    refused("empty", "replicas[1]", { replicas = { {} } }, "has no devices")
  end)

  it("refuses devices that are unknown, taken, cut, bad or left out", function()
    refused("unknown_device", "replicas[1].devices[1]", { replicas = { { devices = { "GPU9" } } } }, "names 'GPU9'")
    refused("unknown_device", "replicas[1].devices[1]", { replicas = { { devices = { "GPU-00000001" } } } }, "did you mean 'GPU1'?")
    refused("unknown_device", "excluded[1].uid", { replicas = { { devices = { "GPU0" } } }, excluded = { { uid = "gpu1", why = "x" } } }, "did you mean 'GPU1'?")
    refused("device_twice", "replicas[1].devices[2]", { replicas = { { devices = { "GPU0", "GPU0" } } } })
    refused("device_twice", "replicas[2].devices[1]", { replicas = { { devices = { "GPU0" } }, { devices = { "GPU0" } } } }, "replicas[1].devices[1] has already")
    refused("mig_parent", "replicas[1].devices[1]", { replicas = { { devices = { "GPU4" } } } })
    refused("mig_in_group", "replicas[1]", { replicas = { { devices = { "GPU0", "MIG-a" } } } })
    refused("mig_in_group", "replicas[1]", { replicas = { { stages = { { devices = { "MIG-a" }, layers = { 0, 3 } }, { devices = { "GPU0" }, layers = { 4, 7 } } } } } })
    refused("unusable_device", "replicas[1].devices[1]", { replicas = { { devices = { "GPU5" } } } }, "the GPU is lost")
    for _, word in ipairs { "GPU6", "GPU-00000006", "0000:16:00.0", "service" } do
      refused("device_excluded", "replicas[1].devices[1]", { replicas = { { devices = { "GPU6" } } } }, word, { devices = { exclude = { word } } })
    end
    refused("device_excluded", "replicas[1].devices[1]", { replicas = { { devices = { "GPU6" } } } }, "devices.only", { devices = { only = { "GPU0" } } })
    refused("device_excluded", "replicas[1].devices[1]", { replicas = { { devices = { "GPU0" } } }, excluded = { { uid = "GPU0", why = "hot" } } }, "hot")
  end)

  it("refuses layers that are not 0 to n - 1, each once, in order", function()
    local at = "replicas[1].stages[2].layers"
    refused("bad_layers", at, stages({ 0, 3 }, { 5, 7 }), "layer 4 comes next")
    refused("bad_layers", at, stages({ 0, 3 }, { 3, 7 }))
    refused("bad_layers", at, stages({ 0, 3 }, { 4, 8 }), "the last one is 7")
    refused("bad_layers", "replicas[1].stages[1].layers", stages({ 4, 7 }, { 0, 3 }))
    refused("bad_layers", "replicas[1]", stages({ 0, 3 }, { 4, 6 }), "holds the layers 0 to 6; the model has 8")
    refused("bad_layers", at, stages({ 0, 3 }, { 4, 3 }), "holds no layer")
    refused("bad_layers", "replicas[1].stages[1].layers", stages({ 0, 3, 4 }, { 4, 7 }))
    refused("bad_layers", "replicas[1].stages[1].layers[2]", stages({ 0, 3.5 }, { 4, 7 }))
    refused("bad_layers", "replicas[1].layers", { replicas = { { devices = { "GPU0" }, layers = { 1, 7 } } } })
    refused("bad_layers", "replicas[1].stages[2]",
      { replicas = { { stages = { { devices = { "GPU0" }, layers = { 0, 3 } }, { devices = { "GPU1" } } } } } }, "has no layers")
  end)

  it("refuses meshes and shares that do not match", function()
    refused("bad_mesh", "replicas[1].stages[1].mesh", one { devices = { "GPU0", "GPU1" }, mesh = "tp=4" }, "4 ranks (tp=4) for 2 devices")
    refused("bad_mesh", "replicas[1].stages[1].mesh", one { devices = { "GPU0" }, mesh = "tp" })
    refused("bad_mesh", "replicas[1].stages[1].mesh", one { devices = { "cpu0", "cpu1" }, mesh = "tp=3" }, "a multiple of 2")
    refused("bad_shares", "replicas[1].stages[1].shares", one { devices = { "GPU0", "GPU1" }, shares = { 1, 2, 3 } }, "3 shares for 2 ranks")
    refused("bad_shares", "replicas[1].stages[1].shares[2]", one { devices = { "GPU0", "GPU1" }, shares = { 1, 0 } })
    refused("bad_shares", "replicas[1].stages[1].shares.ep", one { devices = { "GPU0", "GPU1" }, mesh = "tp=2", shares = { ep = { 1, 1 } } })
  end)

  it("has a case above for every rule", function()
    local text = require("spec.support.files").slurp("spec/policy/check_spec.lua")
    for rule in pairs(check.rules) do assert.truthy(text:find('refused("' .. rule .. '"', 1, true), rule) end
  end)
end)
