-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 3 (envelope, exit codes), issue "Topology and placement" (kinds are printed, a failing machine is saved).
local helper = require("cli.helper")
local imagine = require("tpl.policy.imagine")
local properties = require("tpl.policy.properties")

local run = helper.run

describe("tpl test-policy", function()
  local folder
  before_each(function() folder = helper.folder() end)
  after_each(function() helper.remove(folder) end)

  it("prints the kinds of machine, the properties and the counts", function()
    local r = run { "test-policy", "spec/fixtures/policies/sound.lua", "--random", "40", "--seed", "3", "--out", folder }
    assert.equal(0, r.code, r.stderr)
    for _, kind in ipairs(imagine.kinds()) do assert.truthy(r.stdout:find("  " .. kind .. " ", 1, true), kind) end
    for _, p in ipairs(properties.list) do assert.matches("  " .. p[1] .. " +ok", r.stdout) end
    assert.matches("\nseed 3, 40 machines with a model each: %d+ placed, %d+ refused, 0 failed\n$", r.stdout)
    assert.same({}, require("tpl.core").sys.list(folder))
  end)

  it("ends with 3, one line with the policy's file and line, and a saved machine that fails again", function()
    local file = "spec/fixtures/policies/index_order.lua"
    local r = run { "test-policy", file, "--random", "30", "--out", folder }
    assert.equal(3, r.code)
    assert.matches("^tpl: spec/fixtures/policies/index_order%.lua:3: breaks 'index_free': [^\n]*\n$", r.stderr)
    local saved = assert(r.stdout:match("saved (%S+%.yaml)"))
    assert.matches("shrunk to [1-4];", r.stdout)
    assert.equal(folder, saved:match("^(.*)/"))
    local again = run { "test-policy", file, "--topo", saved, "--out", folder .. "/again", "--json" }
    assert.equal(3, again.code)
    local envelope = again.lines[1]
    assert.same({ "tpl.test-policy/1", false, "policy_error" }, { envelope.schema, envelope.ok, envelope.error.code })
    assert.equal("index_free", envelope.result.failures[1].property)
    assert.is_true(envelope.result.failures[1].devices <= 4)
    assert.equal(#properties.list, #envelope.result.properties)
  end)

  it("gives one line for a policy that fails, returns nonsense, or cannot be loaded", function()
    local function line(text, where, message)
      local file = helper.write(folder .. "/p.lua", text)
      local r = run { "test-policy", file, "--random", "3", "--out", folder }
      assert.equal(3, r.code, r.stdout)
      assert.equal(1, select(2, r.stderr:gsub("\n", "")))
      assert.truthy(r.stderr:find("tpl: " .. file .. ":" .. where .. ": ", 1, true), r.stderr)
      assert.matches(message, r.stderr)
    end
    line("return function(topo)\n  return topo.no_such.field\nend", 2, "index field 'no_such'")
    line("return function(topo)\n  return nil\nend", 2, "gave nil and no reason")
    line("return function(topo)\n  return 7\nend", 2, "is the number 7")
    line("return function(topo)\n  return { replicas = { { devices = { topo.devices[1].uid, topo.devices[1].uid } } } }\nend", 2, "has already")
    line("return function(topo)\n  return { replicas = { { devices = { 'GPU77' } } } }\nend", 2, "names 'GPU77'")
    line("return function(topo)\n  return { replicas = { { devices = { 0 / 0 } } } }\nend", 2, "NaN")
    line("\nreturn 7", 2, "got a number")
    line("\nreturn function(", 2, "expected")
  end)

  it("counts kinds in JSON", function()
    local r = run { "test-policy", "spec/fixtures/policies/sound.lua", "--random", "20", "--json" }
    assert.equal(0, r.code, r.stderr)
    local result, bases = r.lines[1].result, 0
    for _, base in ipairs(imagine.bases) do bases = bases + result.census[base] end
    assert.same({ 20, 20, 20 }, { bases, result.machines, result.placed + result.refused })
    assert.same({}, result.failures)
  end)

  it("refuses a missing file, no file, and malformed options with exit 2; an unknown name with 3", function()
    assert.equal(2, run({ "test-policy", folder .. "/none.lua" }).code)
    assert.equal(2, run({ "test-policy" }).code)
    assert.equal(2, run({ "test-policy", "auto", "--random", "0" }).code)
    assert.equal(2, run({ "test-policy", "a", "b" }).code)
    assert.equal(3, run({ "test-policy", "no_such_policy" }).code)
  end)
end)
