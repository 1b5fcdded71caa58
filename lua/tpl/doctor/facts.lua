-- SPDX-License-Identifier: Apache-2.0
--- Gather what the checks look at: the devices and links of the topology, joined with what sysfs and the driver's proc files say of the
-- same GPUs, the environment with NCCL's hidden files, and what kind of host it is. Unknown stays nil: a check then says "skip".
local cpuset = require("tpl.topo.cpuset")
local environ = require("tpl.doctor.environ")
local find = require("tpl.find")
local gpus = require("tpl.doctor.gpus")
local host_of = require("tpl.doctor.host")
local pci_of = require("tpl.doctor.pci")

local M = {}

---@class tpl.doctor.Facts
---@field host tpl.doctor.Host
---@field env table<string, string>
---@field env_where string
---@field env_recorded boolean
---@field nccl_files table[]
---@field pci table?             sysfs
---@field topo table?            record of `tpl topo`
---@field topo_error string?     why there is none although the machine was asked
---@field gpus table[]           whole GPUs and slices, in index order (fields of `tpl topo`, and `sysfs` = tpl.doctor.PciDevice)
---@field missed table[]         GPUs on the bus that the topology lacks
---@field group table[]          those of them that a process would use
---@field vm string?             how a virtual machine was recognised
---@field container string?      how a container was recognised
---@field models table[]
---@field log table?             tpl.doctor.nccl_log
---@field k8s table?             tpl.doctor.k8s
local Facts = {}
Facts.__index = Facts

-- -- The group that a process would use -------------------------------------------------------------------------------

--- Split CUDA_VISIBLE_DEVICES as the CUDA runtime does: it stops at the first entry that is no device.
---@param text string
---@return string[]
function M.visible_words(text)
  local out = {}
  for word in text:gmatch("[^,]+") do out[#out + 1] = word:match("^%s*(.-)%s*$") end
  return out
end

--- Whole GPUs in the order of the bus, where every address is known; else in the order of their indices.
function Facts:in_bus_order()
  local list, all = {}, true
  for _, gpu in ipairs(self.gpus) do
    if gpu.kind == "gpu" then
      list[#list + 1] = gpu
      all = all and pci_of.address(gpu.pci) ~= nil
    end
  end
  if all then
    table.sort(list, function(a, b)
      local x, y = pci_of.address(a.pci), pci_of.address(b.pci)
      if #x ~= #y then return #x < #y end -- a domain of more digits is a larger one
      return x < y
    end)
  end
  return list
end

--- Find the device that one word of CUDA_VISIBLE_DEVICES means; indices are those of the bus.
function Facts:device_of_word(word)
  if word:find("^%d+$") then return self:in_bus_order()[tonumber(word) + 1] end
  local hit
  for _, gpu in ipairs(self.gpus) do
    if gpu.uuid and #word > 4 and gpu.uuid:lower():sub(1, #word) == word:lower() then
      if hit then return nil end -- an ambiguous prefix is no device
      hit = gpu
    end
  end
  return hit
end

local function group_of(self)
  local text = self.env.CUDA_VISIBLE_DEVICES
  local out = {}
  if text == nil then
    for _, gpu in ipairs(self.gpus) do
      if gpu.kind == "gpu" then out[#out + 1] = gpu end
    end
    return out
  end
  for _, word in ipairs(M.visible_words(text)) do
    local gpu = self:device_of_word(word)
    if not gpu then break end
    out[#out + 1] = gpu
  end
  return out
end

-- -- Links ------------------------------------------------------------------------------------------------------------

local function link_key(a, b) return a < b and a .. " " .. b or b .. " " .. a end

--- Give what is known of a pair: {kind, pcie, p2p}; `kind` is nil where the topology does not say whether there is NVLink.
---@return {kind: string?, pcie: string?, nvlinks: integer?, p2p: table?, nvlink_known: boolean}
function Facts:link(a, b)
  local stated = self.links_by[link_key(a.uid, b.uid)]
  local pcie = stated and stated.pcie
  if not pcie and a.sysfs and b.sysfs then pcie = pci_of.distance(a.sysfs, b.sysfs) end
  if not pcie and a.numa and b.numa and a.numa ~= b.numa then pcie = "sys" end
  if stated and stated.kind then
    local is_pcie = stated.kind ~= "nvlink" and stated.kind ~= "c2c"
    return {
      kind = stated.kind, pcie = pcie or (is_pcie and stated.kind) or nil, nvlinks = stated.nvlinks, p2p = stated.p2p, p2p_ba = stated.p2p_ba,
      data_ok = stated.data_ok, nvlink_known = true,
    }
  end
  return { pcie = pcie, p2p = stated and stated.p2p, nvlink_known = false }
end

--- Iterate over the pairs of a list of devices.
---@return {[1]: table, [2]: table, link: table}[]
function Facts:pairs_of(list)
  local out = {}
  for i = 1, #list do
    for j = i + 1, #list do out[#out + 1] = { list[i], list[j], link = self:link(list[i], list[j]) } end
  end
  return out
end

-- -- Kind of host -----------------------------------------------------------------------------------------------------

local function container_of(host, env)
  if host:exists(".dockerenv") then return "/.dockerenv" end
  if host:exists("run/.containerenv") then return "/run/.containerenv" end
  if env.KUBERNETES_SERVICE_HOST then return "KUBERNETES_SERVICE_HOST" end
  if env.container then return "container=" .. env.container end
  for _, path in ipairs { "proc/1/cgroup", "proc/self/cgroup" } do
    local word = (host:read(path) or ""):match("docker[-/][%w]*") or (host:read(path) or ""):match("kubepods") or (host:read(path)
      or ""):match("libpod")
      or (host:read(path) or ""):match("cri%-containerd")
    if word then return word .. " in /" .. path end
  end
  if (host:read("proc/mounts") or ""):find("^overlay / overlay ") or (host:read("proc/mounts") or ""):find("\noverlay / overlay ") then
    return "/ is an overlay in /proc/mounts"
  end
end

local function vm_of(host)
  local kind = host:word("sys/hypervisor/type")
  if kind then return kind .. " in /sys/hypervisor/type" end
  if (host:read("proc/cpuinfo") or ""):find("\nflags[^\n]* hypervisor[ \n]") then return "flag hypervisor in /proc/cpuinfo" end
  local vendor = host:word("sys/class/dmi/id/sys_vendor") or ""
  for _, name in ipairs { "QEMU", "VMware", "Xen", "Google", "innotek", "OpenStack", "KubeVirt", "Nutanix" } do
    if vendor:find(name, 1, true) then return vendor .. " in /sys/class/dmi/id/sys_vendor" end
  end
end

--- Say who made the CPU: "intel", "amd", "arm" or nil.
function Facts:cpu_vendor()
  local info = self.host:read("proc/cpuinfo") or ""
  if info:find("GenuineIntel", 1, true) then return "intel" end
  if info:find("AuthenticAMD", 1, true) then return "amd" end
  if info:find("CPU implementer", 1, true) then return "arm" end
end

-- -- Settings ---------------------------------------------------------------------------------------------------------

--- Give a variable as NCCL sees it: from the environment, else from its hidden files.
---@param name string
---@return string? value
---@return string? where
function Facts:setting(name)
  if self.env[name] ~= nil and self.env[name] ~= "" then return self.env[name], self.env_where end
  for _, file in ipairs(self.nccl_files) do
    local setting = file.settings[name]
    if setting then return setting.value, setting.where end
  end
end

--- RDMA devices: names in sys/class/infiniband, else the topology's NICs that are called so.
---@return {name: string, layer: string?, state: string?, sysfs: tpl.doctor.PciDevice?}[]
function Facts:rdma()
  local out = {}
  for _, name in ipairs(self.host:list("sys/class/infiniband") or {}) do
    local dir = "sys/class/infiniband/" .. name
    local real = self.host:link(dir .. "/device")
    local address = real and pci_of.address(real:match("([^/]+)$"))
    out[#out + 1] = {
      name = name, layer = self.host:word(dir .. "/ports/1/link_layer"), state = self.host:word(dir .. "/ports/1/state"),
      sysfs = address and self.pci and self.pci.by[address] or nil, where = "/" .. dir,
    }
  end
  if #out > 0 then return out end
  for _, nic in ipairs(self.topo and self.topo.nics or {}) do
    local name = nic.device or nic.name
    if tostring(name):find("^mlx%d") or tostring(name):find("^bnxt_re") or tostring(name):find("^irdma") or tostring(name):find("^efa") then
      out[#out + 1] = { name = name, nic = nic, where = "topology" }
    end
  end
  return out
end

--- List the control groups of this process in sysfs, its own before the root: the file of version 2 and that of version 1.
---@param v2 string   file of version 2, "memory.max"
---@param v1 string   controller and file of version 1, "memory/memory.limit_in_bytes"
---@return string[] paths
function Facts:cgroup_files(v2, v1)
  local out, controller, file = {}, v1:match("^(%w+)/(.+)$")
  for line in (self.host:read("proc/self/cgroup") or ""):gmatch("[^\n]+") do
    local names, path = line:match("^%d+:([^:]*):/(.+)$")
    if path and not path:find("..", 1, true) then
      if names == "" then out[#out + 1] = "sys/fs/cgroup/" .. path .. "/" .. v2
      elseif ("," .. names .. ","):find("," .. controller .. ",", 1, true) then out[#out + 1] = "sys/fs/cgroup/" .. controller .. "/" .. path
        .. "/" .. file end
    end
  end
  out[#out + 1] = "sys/fs/cgroup/" .. v2
  out[#out + 1] = "sys/fs/cgroup/" .. v1
  return out
end

--- Give the cores this process may use as a list, and where that is said.
---@return string? cpus
---@return string? where
function Facts:allowed_cpus()
  local cpus, where = cpuset.normal(self.host:field("proc/self/status", "Cpus_allowed_list")), "Cpus_allowed_list in /proc/self/status"
  for _, path in ipairs(self:cgroup_files("cpuset.cpus.effective", "cpuset/cpuset.cpus")) do
    local limit = cpuset.normal(self.host:word(path))
    local both = limit and (cpus and cpuset.both(cpus, limit) or limit)
    if both and both ~= cpus then cpus, where = both, "/" .. path end
  end
  return cpus, cpus and where
end

--- Give the cores of a GPU's NUMA node as a list.
---@return string?
function Facts:cpus_of(gpu)
  local node = gpu.numa and self.host:word("sys/devices/system/node/node" .. gpu.numa .. "/cpulist")
  return cpuset.normal(gpu.cpus) or cpuset.normal(node)
end

--- Say whether findings that only hurt several GPUs should be failures here: a host with GPUs, or a recorded one.
function Facts:matters() return #self.gpus > 0 or self.host.origin ~= "live" end

-- -- Gathering --------------------------------------------------------------------------------------------------------

local TOPO_FILES = { "topo.yaml", "topo.yml", "topo.json", "topo.txt", "topo.xml", "nvidia-smi-topo.txt" }

--- Read the recorded topology of a tree.
local function topo_of_tree(dir)
  for _, name in ipairs(TOPO_FILES) do
    local path = find.join(dir, name)
    if require("tpl.core").sys.is_file(path) then
      local topo, e = require("tpl.topo").read({ path })
      if not topo then require("tpl.err").throw(e) end
      return topo
    end
  end
end

--- Probe through NVML and sysfs; nil and why when that is not to be had.
local function probe(root)
  local topo, e = require("tpl.topo").probe { root = root }
  return topo, e and tostring(e)
end

local function topo_of(host, opts)
  if opts.topo then return opts.topo end
  if host.kind == "bundle" then return host.parts.topo, host.parts.topo_error end
  if host.kind == "live" then return probe() end
  local recorded = topo_of_tree(host.where)
  if recorded or not find.env("TPL_NVML") then return recorded end
  return probe(host.where)
end

---@param host tpl.doctor.Host
---@param opts? {topo?: table, own?: tpl.doctor.Host, models?: table[], log?: table, k8s?: table}
---@return tpl.doctor.Facts
function M.gather(host, opts)
  opts = opts or {}
  local self = setmetatable({ host = host, models = opts.models or {}, log = opts.log, k8s = opts.k8s, links_by = {} }, Facts)
  self.env, self.env_where, self.env_recorded = environ.read(host, opts.own or (host.kind == "live" and host) or host_of.live())
  self.nccl_files = environ.nccl_files(host, self.env, self.env_recorded)
  self.pci = pci_of.read(host)
  self.topo, self.topo_error = topo_of(host, opts)
  self.gpus, self.missed = gpus.join(self.topo, gpus.of_system(host, self.pci))
  for _, link in ipairs(self.topo and self.topo.links or {}) do
    if link.a and link.b then self.links_by[link_key(link.a, link.b)] = link end
  end
  self.group = group_of(self)
  self.container, self.vm = container_of(host, self.env), vm_of(host)
  return self
end

return M
