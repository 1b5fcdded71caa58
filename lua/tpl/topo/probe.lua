-- SPDX-License-Identifier: Apache-2.0
--- Read the machine in front of us: what hwloc, sysfs and NVML say becomes a record (before `finish`).
-- A folder (`root`) with proc/ and sys/ can stand for the machine; then NVML is asked only where TPL_NVML names a library, and nothing of this
-- process (its cgroup, its CUDA_VISIBLE_DEVICES) applies. What is unknown stays absent. Without a GPU the NUMA nodes are the devices; beside GPUs
-- they come after them.
local cpus = require("tpl.topo.probe.cpus")
local err = require("tpl.err")
local find = require("tpl.find")
local gpus = require("tpl.topo.probe.gpus")
local json = require("tpl.json")
local nics = require("tpl.topo.probe.nics")

local M = {}

local HOST = "host0"

local function core() return require("tpl.core") end

local function check(value, message, code, where, hint)
  if value == nil then err.throw(err.from_c(message, code, where, hint)) end
  return value
end

-- -- Facts of the system: hwloc leads, sysfs fills what it leaves out --------------------------------------------------

local function by(list, key)
  local out = {}
  for _, x in ipairs(list) do out[x[key]] = x end
  return out
end

local function fill(list, others, key)
  local known = by(list, key)
  for _, other in ipairs(others) do
    local mine = known[other[key]]
    if not mine then
      list[#list + 1] = other
    else
      for k, v in pairs(other) do
        if mine[k] == nil or mine[k] == "" then mine[k] = v end
      end
    end
  end
end

-- The system's own word on the node of a device beats the node of hwloc's ancestor, and "-1" there is no word.
local function prefer_sysfs_nodes(pcis, sysfs_pcis)
  local told = by(sysfs_pcis, "pci")
  for _, p in ipairs(pcis) do
    local other = told[p.pci]
    if other and other.numa then p.numa, p.cpus = other.numa, other.cpus or p.cpus end
  end
end

local function system_facts(root, doubt)
  local sysfs = check(core().topo.sysfs(root))
  if root then return sysfs end
  local facts, message = core().topo.hwloc()
  if not facts then
    doubt("hwloc", "libhwloc could not read this machine: " .. tostring(message))
    return sysfs
  end
  fill(facts.nodes, sysfs.nodes, "id")
  fill(facts.pcis, sysfs.pcis, "pci")
  fill(facts.nics, sysfs.nics, "name")
  prefer_sysfs_nodes(facts.pcis, sysfs.pcis)
  facts.cpus_allowed = sysfs.cpus_allowed or facts.cpus_allowed
  facts.mems_allowed = sysfs.mems_allowed or facts.mems_allowed
  return facts
end

-- -- The record ------------------------------------------------------------------------------------------------------

---@class tpl.ProbeOptions
---@field root string?       folder of a recorded tree (proc/, sys/) in place of this machine's
---@field measure boolean?    measure the links (tpl.topo.measure); not with root
---@field progress (fun(done: integer, of: integer))?  pairs measured so far

--- Read this machine, or a recorded tree, as a record; raises a tpl.Err (tpl.topo.probe gives nil and the error, and finishes the record).
---@param options tpl.ProbeOptions?
---@return table record
function M.read(options)
  options = options or {}
  local root = options.root
  if root and options.measure then
    err.throw { code = "usage", where = "--measure", message = "a recorded tree cannot be measured, only the machine in front of us" }
  end
  local array = json.array
  local record = { source = { kind = "probe", files = array { root } }, hosts = array {}, networks = array {}, devices = array {}, links = array {},
    nics = array {}, doubts = array {} }
  local function doubt(code, message) record.doubts[#record.doubts + 1] = { code = code, message = message } end
  local facts = system_facts(root, doubt)
  facts.by_pci, facts.root, facts.host, facts.doubt = by(facts.pcis, "pci"), root, HOST, doubt
  local nvml = (not root or find.env "TPL_NVML") and check(core().topo.nvml()) or nil
  local host = cpus.host(facts)
  record.hosts[1] = host
  gpus.add(record, facts, nvml)
  cpus.add(record, facts, host)
  gpus.add_c2c(record)
  nics.add(record, facts)
  if not root then require("tpl.topo.visible").apply_environment(record) end
  if options.measure then require("tpl.topo.measure").record(record, { progress = options.progress }) end
  return record
end

return M
