-- SPDX-License-Identifier: Apache-2.0
--- Ranks lie on the cores of their device's NUMA node. Expected values: the CPU lists of the recorded machine, by hand.
local make = require "tpl.plan.make"
local models = require "spec.support.models"
local topos = require "tpl.topo"

local function plan(words)
  local path, missing = models.smollm2()
  if not path then return nil, missing end
  local topo = assert(topos.read("spec/fixtures/topologies/cpu-two-sockets.yaml"))
  return assert(make.make(path, { topo = topo }, words))
end

local function places(p)
  local out = {}
  for i, r in ipairs(p.ranks) do out[i] = { r.device.uid, r.cpus, r.numa } end
  return out
end

describe("the cores of ranks", function()
  it("are those of one NUMA node each: a rank for each of two sockets", function()
    local p, missing = plan {}
    if not p then return pending(missing) end
    assert.same({ tp = 2, pp = 1, ep = 1, dp = 1 }, p.report.degrees)
    assert.same({ { "cpu0", "0-31,64-95", 0 }, { "cpu1", "32-63,96-127", 1 } }, places(p))
  end)

  it("part a node's cores where more ranks than nodes are asked for, both threads of a core together", function()
    local p, missing = plan { pp = "4" }
    if not p then return pending(missing) end
    assert.same({ { "cpu0.0", "0-15,64-79", 0 }, { "cpu0.1", "16-31,80-95", 0 }, { "cpu1.0", "32-47,96-111", 1 },
      { "cpu1.1", "48-63,112-127", 1 } }, places(p))
  end)

  it("are one for each thread where threads are given", function()
    local p, missing = plan { threads = "2" }
    if not p then return pending(missing) end
    assert.same({ { "cpu0", "0-1", 0 }, { "cpu1", "32-33", 1 } }, places(p))
  end)
end)
