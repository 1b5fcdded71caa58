-- SPDX-License-Identifier: Apache-2.0
--- Open an engine with ranks bound as told and print what became of it, for a process of its own (bindings_spec.lua; not a spec itself).
---   tpl lua spec/topo/bound_run.lua THREADS CPUS[@NUMA] [CPUS[@NUMA]]
--- Lines: "thread NAME CPUS" for each rank thread, "warning CODE MESSAGE", "ids ...", "bound N" (mappings of this process bound to a node).
package.path = "./?.lua;" .. package.path
local models = require("spec.support.models")
local sys = require("tpl.core").sys

local fixture = models.own_fixture("bf16")
local plan = assert(require("tpl.plan.make").make(assert(require("tpl.deploy").open(fixture.target,
  { "act=f32", "tp=" .. #arg - 1, "threads=" .. arg[1] }))))
for i = 2, #arg do
  local cpus, numa = arg[i]:match("^([^@]*)@?(%d*)$")
  plan.ranks[i - 1].cpus, plan.ranks[i - 1].numa = cpus ~= "" and cpus or nil, tonumber(numa)
end
local engine = assert(require("tpl.engine").open(plan))

print("ids", table.concat(models.greedy(engine, { fixture.expected.prompts[1].ids }, 4)[1], " "))
for _, task in ipairs(sys.list("/proc/self/task")) do
  local name = sys.read_file("/proc/self/task/" .. task .. "/comm"):match("^(tpl%-r%d+%.%d+)")
  local status = sys.read_file("/proc/self/task/" .. task .. "/status", 65536)
  if name then print("thread", name, status:match("Cpus_allowed_list:%s*(%S+)")) end
end
for _, w in ipairs(plan.warnings) do print("warning", w.code, w.message) end
local _, n = (sys.read_file("/proc/self/numa_maps", 2 ^ 24) or ""):gsub(" bind:", "")
print("bound", n)
engine:close()
