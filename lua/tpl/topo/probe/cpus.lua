-- SPDX-License-Identifier: Apache-2.0
--- The host, its NUMA nodes as CPU devices, and the links between them. Cores and memory that a control group keeps from this process do not count.
local cpuset = require("tpl.topo.cpuset")

local M = {}

local function sys() return require("tpl.core").sys end

local function read(facts, path) return sys().read_file((facts.root or "") .. path, 2 ^ 22) end

-- -- The host --------------------------------------------------------------------------------------------------------

-- Arm cores have numbers in place of a name.
local function processor(facts)
  local text = read(facts, "/proc/cpuinfo") or ""
  local function field(key) return text:match("\n?" .. key .. "%s*:%s*([^\n]-)%s*\n") end
  local implementer, part = field("CPU implementer"), field("CPU part")
  local model = field("model name") or implementer and ("Arm implementer %s part %s"):format(implementer, part or "?") or nil
  return field("vendor_id") or (implementer and "arm") or nil, model
end

local function instruction_sets(facts)
  if facts.root then return nil end
  local out = {}
  for _, isa in ipairs(require("tpl.core").kernels.isas()) do
    if isa.usable then out[#out + 1] = isa.name end
  end
  return out
end

-- A kernel without NUMA, or a tree without its files: one node that has everything.
local function lone_node(facts)
  local online = read(facts, "/sys/devices/system/cpu/online")
  local mem = read(facts, "/proc/meminfo") or ""
  local list = cpuset.normal(online and online:match("%S+") or facts.cpus_allowed)
  if not list then return {} end
  local total, free = mem:match("MemTotal:%s*(%d+) kB"), mem:match("MemAvailable:%s*(%d+) kB")
  return { { id = 0, cpus = list, mem_bytes = total and total * 1024, free_bytes = free and free * 1024 } }
end

--- Make the entry of the host; facts.nodes keeps the nodes that have cores (memory of GPUs can be nodes too).
function M.host(facts)
  local nodes = {}
  for _, n in ipairs(facts.nodes) do
    if cpuset.normal(n.cpus) then nodes[#nodes + 1] = n end
  end
  if not nodes[1] then nodes = lone_node(facts) end
  facts.nodes = nodes
  local vendor, model = processor(facts)
  facts.cpu_model = model
  local numa = {}
  for i, n in ipairs(nodes) do numa[i] = { id = n.id, package = n.package, cpus = cpuset.normal(n.cpus), mem_bytes = n.mem_bytes } end
  return { id = facts.host, cpu = { vendor = vendor, model = model, isa = instruction_sets(facts) }, numa = numa }
end

-- -- Devices ---------------------------------------------------------------------------------------------------------

-- A limit of the control group holds for all nodes together: each gets its part.
local function share(nodes, key, limit)
  local sum, out = 0, {}
  for i, n in ipairs(nodes) do
    if not n[key] then return function(j) return nodes[j][key] end end
    out[i], sum = n[key], sum + n[key]
  end
  local part = limit and limit < sum and limit / sum or 1
  return function(i) return math.floor(out[i] * part) end
end

local function allowed(facts, node)
  local reasons = {}
  local list = facts.cpus_allowed and cpuset.both(node.cpus, facts.cpus_allowed) or not facts.cpus_allowed and cpuset.normal(node.cpus)
  if not list then
    reasons[1] = { code = "cgroup_cpus", message = ("this process may run on CPUs %s only"):format(facts.cpus_allowed) }
  end
  if facts.mems_allowed and not cpuset.contains(facts.mems_allowed, tostring(node.id)) then
    reasons[#reasons + 1] = { code = "cgroup_mems", message = ("this process may take memory of NUMA nodes %s only"):format(facts.mems_allowed) }
  end
  return list or cpuset.normal(node.cpus), reasons
end

local function link_nodes(record, devices, nodes)
  for i = 1, #devices do
    for j = i + 1, #devices do
      local near = nodes[i].package and nodes[i].package == nodes[j].package
      record.links[#record.links + 1] = { a = devices[i].uid, b = devices[j].uid, kind = near and "shm" or "sys", source = "assumed" }
    end
  end
end

--- Add a device for each NUMA node, and the links between them.
function M.add(record, facts)
  local live, devices = not facts.root, {}
  local total = share(facts.nodes, "mem_bytes", live and sys().mem_total())
  local free = share(facts.nodes, "free_bytes", live and sys().mem_available())
  for i, n in ipairs(facts.nodes) do
    local list, reasons = allowed(facts, n)
    local d = { uid = "cpu" .. n.id, kind = "cpu", host = facts.host, index = n.id, name = facts.cpu_model, numa = n.id, cpus = list,
      mem_bytes = total(i), free_bytes = free(i) }
    if reasons[1] then d.usable, d.why_not = false, reasons end
    devices[i] = d
    record.devices[#record.devices + 1] = d
  end
  link_nodes(record, devices, facts.nodes)
end

return M
