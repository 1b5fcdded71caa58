-- SPDX-License-Identifier: Apache-2.0
-- Expected values: the fault that the head of each planted policy names (spec/fixtures/policies); issue "Topology and placement": each is caught
-- within 2,000 machines and shrunk to at most 4 devices.
local helper = require("cli.helper")
local policy = require("tpl.policy")
local properties = require("tpl.policy.properties")
local test = require("tpl.policy.test")
local util = require("tpl.util")

local function path(name) return "spec/fixtures/policies/" .. name .. ".lua" end

-- policy -> the property that its fault breaks, and a word of the message
local planted = {
  mig_parent = { "no_mig_parent", "MIG mode" }, index_order = { "index_free", "with other device indices" }, ignores_health = { "usable_only", "cannot be used" },
  device_twice = { "device_once", "has already" }, index_parity = { "index_free", "with other device indices" },
  mixes_models = { "one_model_in_group", "into one group" }, ignores_free_memory = { "weights_fit", "GiB free" },
  mutates_topo = { "input_unchanged", "topo.devices" }, unknown_numa = { "runs", "compare" },
}

describe("tpl.policy.test", function()
  for name, want in util.pairs(planted) do
    it("catches the planted policy " .. name .. " and shrinks its machine to 4 devices or fewer", function()
      local p = assert(policy.load(path(name)))
      local report = test.run(p, { random = 2000, stop = true })
      local found = assert(report.failures[1], "not caught")
      assert.equal(want[1], found.failure.property, found.failure.message)
      assert.truthy(found.failure.message:find(want[2], 1, true), found.failure.message)
      assert.is_true(#found.case.record.devices <= 4, #found.case.record.devices .. " devices")
      assert.is_true(report.machines <= 2000)
      local again = assert(properties.check(p, found.case, { thorough = true }), "the shrunk machine does not fail")
      assert.equal(want[1], again.property)
    end)
  end

  it("finds nothing on a sound policy, which places and refuses", function()
    local report = test.run(assert(policy.load(path("sound"))), { random = 200, seed = 2 })
    assert.same({}, report.failures)
    assert.is_true(report.placed > 100 and report.refused > 20 and report.placed + report.refused == 200)
  end)

  it("finds the same failure for the same seed", function()
    local p = assert(policy.load(path("index_order")))
    local a, b = test.run(p, { random = 50, stop = true }), test.run(p, { random = 50, stop = true })
    assert.same(a.failures, b.failures)
    local alone = test.run(p, { random = 1, first = a.failures[1].drawn.number })
    assert.same(a.failures[1].case, alone.failures[1].case)
  end)

  describe("on policies that are written here", function()
    local folder
    before_each(function() folder = helper.folder() end)
    after_each(function() helper.remove(folder) end)

    local function run(text, o)
      local p = assert(policy.load(helper.write(folder .. "/p.lua", text)))
      return test.run(p, o or { random = 60, stop = true })
    end

    local function breaks(property, text)
      local found = assert(run(text).failures[1], "not caught")
      assert.equal(property, found.failure.property, found.failure.message)
      assert.is_true(#found.case.record.devices <= 4)
      return found.failure
    end

    it("tells errors, wrong types and nil, with file and line", function()
      assert.equal(folder .. "/p.lua:2", breaks("runs", "return function(topo)\n  error('odd')\nend").where)
      assert.equal(folder .. "/p.lua:2", breaks("well_formed", "return function(topo)\n  return nil\nend").where)
      assert.equal(folder .. "/p.lua:2", breaks("well_formed", "return function(topo)\n  return 'GPU0'\nend").where)
      assert.equal("unknown_device", breaks("well_formed", "return function(topo) return { replicas = { { devices = { 'GPU99' } } } } end").rule)
      assert.equal("not_finite", breaks("well_formed",
        "return function(topo) return { replicas = { { devices = { topo.devices[1].uid }, layers = { 0, 0/0 } } } } end").rule)
    end)

    it("tells a policy that answers differently each time", function()
      breaks("deterministic", "local n = 0\nreturn function(topo)\n  n = n + 1\n  if n % 2 == 0 then return nil, 'even' end\n  return nil, 'odd'\nend")
    end)

    it("tells one that takes what was excluded", function()
      local found = run([[return function(topo, model, want)
        for _, uid in ipairs(topo:sorted(topo:ids { usable = true })) do
          local d = topo:dev(uid)
          if d.kind == "gpu" and math.min(d.free_bytes, d.mem_bytes * want.usable) > model.weight_bytes then return { replicas = { { devices = { uid } } } } end
        end
        return nil, "none"
      end]], { random = 600, stop = true }).failures[1]
      assert.equal("respects_excluded", found.failure.property)
      assert.equal(1, #found.case.record.devices)
    end)

    local looks = [[function(topo, model, want)
        local ids = topo:sorted(topo:ids { kind = "gpu", usable = true, min_free = 1e9 })
        if #ids < 2 or topo:dev(ids[1]).name == topo:dev(ids[2]).name and #ids % 2 == 0 then return nil, "an even number" end
        local d = topo:dev(ids[#ids])
        if #d.labels > 0 or math.min(d.free_bytes, d.mem_bytes * want.usable) < model.weight_bytes then return nil, "does not fit" end
        return { replicas = { { devices = { d.uid } } } }
      end]]

    it("tells one that looks at devices which it does not take, unless its file says that this is meant", function()
      breaks("unchosen_free", "return " .. looks)
      local report = run("return { place = " .. looks .. ", except = { unchosen_free = 'likes odd numbers' } }", { random = 60 })
      assert.same({}, report.failures)
      assert.has_error(function() run("return { place = " .. looks .. ", except = { device_once = 'why not' } }") end)
    end)

    it("tells one that prefers the worst link", function()
      local found = run([[local pair = require("tpl.topo.pair")
      return function(topo, model, want)
        local ids, worst = topo:sorted(topo:ids { kind = "gpu", usable = true, min_free = model.weight_bytes }), nil
        for i, a in ipairs(ids) do
          for j = i + 1, #ids do
            local x, y = topo:dev(a), topo:dev(ids[j])
            local ok = x.name == y.name and x.host == y.host and #x.labels + #y.labels == 0 and x.mem_bytes * want.usable > model.weight_bytes
            local rank = pair.rank(topo:link(a, ids[j])) - pair.nvlinks(topo:link(a, ids[j]))
            if ok and (not worst or rank > worst.rank) then worst = { rank = rank, devices = { a, ids[j] } } end
          end
        end
        if not worst then return nil, "no pair" end
        return { replicas = { { devices = worst.devices } } }
      end]], { random = 300, stop = true }).failures[1]
      assert.equal("worse_link", found.failure.property, found.failure.message)
      assert.is_true(#found.case.record.devices <= 4)
    end)

    it("stops at the time limit, and does not shrink that", function()
      local limit = properties.LIMIT_S
      properties.LIMIT_S = 0.2
      local report = run("return function()\n  while true do end\nend", { random = 5 })
      properties.LIMIT_S = limit
      assert.same({ 1, true, "runs" }, { report.machines, report.failures[1].failure.stopped, report.failures[1].failure.property })
    end)
  end)
end)
