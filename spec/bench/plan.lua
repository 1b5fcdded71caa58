#!/usr/bin/env luajit
-- SPDX-License-Identifier: Apache-2.0
--- Time the planner: a 70B on 8 GPUs, the choice of pairs among 16, and a cluster of 1,024 GPUs written with `repeat`. Prints figures and
--- the limits that the topology issue sets; a loaded machine is no reason to fail, so nothing here does.
---
---     luajit spec/bench/plan.lua          (in the repository)
package.path = "./lua/?.lua;./lua/?/init.lua;./?.lua;" .. package.path
package.cpath = "./build/lib/?.so;" .. package.cpath
local groups = require("tpl.topo.groups")
local machines = require("spec.support.machines")
local make = require("tpl.plan.make")
local sys = require("tpl.core").sys
local topos = require("tpl.topo")

local RUNS = 7

-- Seconds of the median run, and of the slowest.
local function time(fn)
  local out = {}
  for i = 1, RUNS do
    collectgarbage()
    local start = sys.now_us()
    fn()
    out[i] = (sys.now_us() - start) / 1e6
  end
  table.sort(out)
  return out[math.ceil(RUNS / 2)], out[RUNS]
end

local function report(what, limit_s, fn)
  local median, most = time(fn)
  print(("%-60s %8.3f s median %8.3f s worst   limit %g s"):format(what, median, most, limit_s))
end

local function plan(model, topo, fields)
  fields.model = "examples/models/" .. model
  return assert(make.make(fields, { topo = topo, outline = true }))
end

local eight = machines.topo { gpus = "h100", n = 8, nodes = 2, link = "switch" }
report("plan, 70B at tp=8 on 8 GPUs", 0.2, function() plan("llama-3.3-70b", eight, { mesh = "tp=8" }) end)
report("plan, 70B on 8 GPUs, place decides", 0.2, function() plan("llama-3.3-70b", eight, {}) end)

local ring = {}
for i = 0, 15 do ring[i + 1] = { i, (i + 1) % 16, 1 + i % 3 } end
local sixteen = machines.topo { gpus = "v100", n = 16, nodes = 2, link = ring }
report("pairs among 16 GPUs", 0.05, function() groups.matching(sixteen, sixteen:ids { kind = "gpu" }) end)
report("the best four of 16 GPUs", 0.05, function() groups.best(sixteen, sixteen:ids { kind = "gpu" }, 4) end)

-- One host of eight, 128 times, as a record says it.
local function cluster()
  local record = machines.record { gpus = "h100", n = 8, nodes = 2, link = "switch" }
  record.hosts[1]["repeat"] = 128
  record.networks[1] = { hosts = { "host0" }, gb_s = 50, us = 5, kind = "ib" }
  return assert(topos.from_record(record))
end
local many
report("read a cluster of 128 x 8 GPUs (repeat)", 5, function() many = cluster() end)
print(("  %d GPUs"):format(#many:ids { kind = "gpu" }))
report("plan, 70B on 1,024 GPUs", 5, function() plan("llama-3.3-70b", many, {}) end)
report("plan, 405B in FP8 on 1,024 GPUs", 5, function() plan("llama-3.1-405b-fp8", many, { want = { context = 32768, concurrency = 32 } }) end)
