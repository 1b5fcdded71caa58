-- SPDX-License-Identifier: Apache-2.0
--- Read what lstopo exports as XML (hwloc 1, 2 and 3): packages, NUMA nodes, the PCI tree with GPUs and NICs, NVLink bandwidths.
-- Notes on the format are in facts/topology.md section 10; NVLink is hwloc_links.lua's.
local err = require("tpl.err")
local links = require("tpl.topo.import.hwloc_links")
local pci = require("tpl.topo.import.pci")
local xml = require("tpl.xml")
local xml_text = require("tpl.topo.import.xml_text")

local M = {}

local MAX_GPUS, MAX_NICS, MAX_DOUBTS = 256, 1024, 200

--- Say whether a text is an export of lstopo.
---@param text string
---@return boolean
function M.detect(text) return xml_text.root(text) == "topology" end

local function info_of(node, name)
  for info in xml.each(node, "info") do
    if info.attr.name == name then return info.attr.value end
  end
end

local function doubt(s, node, code, message)
  if #s.doubts < MAX_DOUBTS then s.doubts[#s.doubts + 1] = { line = node and node.line, code = code, message = message } end
end

-- hwloc 2 numbers the kinds of OS devices (2 network, 3 OpenFabrics), hwloc 3 has bits (16, 32).
local rdma_kinds = { ["3"] = true, ["32"] = true }
local network_kinds = { ["2"] = true, ["16"] = true }

local function kind_of_os_device(node)
  local kind, name = node.attr.osdev_type or "", node.attr.name or ""
  if rdma_kinds[kind] or info_of(node, "NodeGUID") then return "rdma" end
  if network_kinds[kind] or info_of(node, "Address") and name ~= "" then return "network" end
end

local function os_devices(node, out)
  out = out or {}
  for child in xml.each(node, "object") do
    if child.attr.type == "OSDev" then out[#out + 1] = child end
  end
  return out
end

--- The class ("0302"), vendor and device of pci_type="0302 [10de:1db8] [..] a1 00".
local function pci_type(node)
  local class, vendor, device = (node.attr.pci_type or ""):lower():match("^(%x%x%x%x) %[(%x+):(%x+)%]")
  return class or "", vendor or "", device or ""
end

local function bytes_of(text)
  local n, unit = (text or ""):match("^(%d+)(%a*)$")
  n = tonumber(n)
  if not n or n == 0 or n >= 2 ^ 40 then return nil end
  return (unit == "KiB" or unit == "") and n * 1024 or nil
end

local function add_gpu(s, node, place, path, device)
  local name, uuid, order, mem
  for _, os in ipairs(os_devices(node)) do
    name = name or info_of(os, "GPUModel")
    uuid = uuid or info_of(os, "NVIDIAUUID")
    order = order or tonumber((os.attr.name or ""):match("^nvml(%d%d?%d?%d?)$"))
    mem = mem or bytes_of(info_of(os, "CUDAGlobalMemorySize"))
    if os.attr.gp_index then s.by_id["OSDev:" .. os.attr.gp_index] = #s.gpus + 1 end
  end
  if node.attr.gp_index then s.by_id["PCIDev:" .. node.attr.gp_index] = #s.gpus + 1 end
  local address = pci.address(node.attr.pci_busid)
  if not address then doubt(s, node, "bad_busid", ("pci_busid '%s' is no PCI address"):format(tostring(node.attr.pci_busid):sub(1, 40))) end
  s.gpus[#s.gpus + 1] = {
    node = node, place = place, path = path, order = order, device_id = device,
    device = { kind = "gpu", host = "host0", uuid = uuid, pci = address, name = name or pci.gpu_name(device), numa = place.numa, cpus = place.cpus,
      mem_bytes = mem },
  }
end

local function add_nics(s, node, place, path)
  for _, os in ipairs(os_devices(node)) do
    local kind = kind_of_os_device(os)
    if kind and os.attr.name then
      s.nics[#s.nics + 1] = { name = os.attr.name, kind = kind, pci = pci.address(node.attr.pci_busid), numa = place.numa, place = place, path = path }
    end
  end
end

local function add_numa(s, node)
  local id, mem = tonumber(node.attr.os_index or ""), tonumber(node.attr.local_memory or "")
  if not (id and id >= 0 and id <= 65535 and id == math.floor(id)) or s.numa_of[id] then return end
  local cpus = pci.cpus_of_mask(node.attr.cpuset)
  if not cpus or node.attr.subtype == "GPUMemory" then return end -- the memory of a GPU is a node without CPUs
  s.numa_of[id] = true
  s.host.numa[#s.host.numa + 1] = { id = id, cpus = cpus, package = s.package,
    mem_bytes = mem and mem > 0 and mem < 2 ^ 53 and mem == math.floor(mem) and mem or nil }
end

local function add_cpu(s, node)
  local vendor, model = info_of(node, "CPUVendor"), info_of(node, "CPUModel")
  if s.host.cpu or not (vendor or model) then return end
  s.host.cpu = { vendor = vendor, model = model and model:match("^%s*(.-)%s*$") }
end

--- Where things hang that have no CPUs of their own: the nearest object above that has, and its NUMA node if it is one.
local function place_of(node, before)
  if not node.attr.cpuset then return before end
  local nodes = pci.numbers_of_mask(node.attr.nodeset)
  return { node = node, cpus = pci.cpus_of_mask(node.attr.cpuset), nodes = nodes, numa = #nodes == 1 and nodes[1] or nil }
end

local function extend(path, node)
  local out = {}
  for i, p in ipairs(path) do out[i] = p end
  out[#out + 1] = node
  return out
end

local walk

local function read_pci_device(s, node, place, path)
  local class, vendor, device = pci_type(node)
  if class:find("^03") and vendor == "10de" then add_gpu(s, node, place, path, device)
  elseif class:find("^03") and vendor == "1002" and class ~= "0300" then s.other = s.other or node
  elseif class:find("^02") then add_nics(s, node, place, path)
  elseif node.attr.gp_index then s.switches["PCIDev:" .. node.attr.gp_index] = node.attr.subtype == "NVSwitch" or class == "0680" end
end

function walk(s, node, place, path)
  for child in xml.each(node, "object") do
    local kind = child.attr.type
    if kind == "PCIDev" then
      read_pci_device(s, child, place, path)
      walk(s, child, place, extend(path, child))
    elseif kind == "Bridge" then
      walk(s, child, place, extend(path, child))
    elseif kind ~= "OSDev" then
      local package = s.package -- the one that a NUMA node is in: sub-NUMA nodes share it
      if kind == "NUMANode" then add_numa(s, child) end
      if kind == "Package" or kind == "Socket" then
        add_cpu(s, child)
        s.package = tonumber(child.attr.os_index or "")
      end
      walk(s, child, place_of(child, place), path)
      s.package = package
    end
  end
end

--- The path word of two positions. A switch is one bridge up and one down: two functions whose ways part below one bridge, with at most the
--- port of each between, are behind one switch (PIX).
local function word_between(a, b)
  local shared = 0
  while a.path[shared + 1] and a.path[shared + 1] == b.path[shared + 1] do shared = shared + 1 end
  if shared > 0 then
    if a.path[shared].attr.bridge_type ~= "0-1" then
      return (#a.path - shared <= 1 and #b.path - shared <= 1) and "pix" or "pxb"
    end
    return "phb"
  end
  local na, nb = a.place.numa, b.place.numa
  if na and nb then return na == nb and "node" or "sys" end
  return "sys" -- not known to be nearer
end

--- Where an object spans several NUMA nodes of which one has CPUs (Grace: the others are memory of GPUs), that one is meant.
local function settle_places(s)
  for _, list in ipairs { s.gpus, s.nics } do
    for _, x in ipairs(list) do
      local with_cpus = {}
      for _, id in ipairs(x.place.numa and {} or x.place.nodes) do
        if s.numa_of[id] then with_cpus[#with_cpus + 1] = id end
      end
      if #with_cpus == 1 then x.place.numa = with_cpus[1] end
      if x.device then x.device.numa = x.place.numa else x.numa = x.place.numa end
    end
  end
end

local function name_gpus(s)
  local seen, orders, all = {}, {}, true
  for _, g in ipairs(s.gpus) do
    local uuid = g.device.uuid
    if uuid and seen[uuid] then s.repeated = true end
    if uuid then seen[uuid] = true end
    if not g.order or orders[g.order] then all = false end
    if g.order then orders[g.order] = true end
  end
  if s.repeated then doubt(s, nil, "uuid_repeated", "several GPUs have one UUID: the UUIDs are left out") end
  for i, g in ipairs(s.gpus) do
    if s.repeated then g.device.uuid = nil end
    g.device.index = all and g.order or i - 1
    g.device.uid = g.device.uuid or "GPU" .. g.device.index
  end
end

--- Change to the order of the indices; `by_id` follows.
local function sort_gpus(s)
  local at = {}
  for i, g in ipairs(s.gpus) do at[i] = g end
  table.sort(s.gpus, function(a, b) return a.device.index < b.device.index end)
  local new = {}
  for i, g in ipairs(s.gpus) do new[g] = i end
  for id, i in pairs(s.by_id) do s.by_id[id] = new[at[i]] end
end

local function make_nics(s)
  local rdma = false
  for _, n in ipairs(s.nics) do rdma = rdma or n.kind == "rdma" end
  local out = {}
  for _, n in ipairs(s.nics) do
    if n.kind == "rdma" or not rdma then -- as nvidia-smi: RDMA devices; without any, what networks there are
      local to = {}
      for _, g in ipairs(s.gpus) do to[g.device.uid] = word_between(n, g) end
      out[#out + 1] = { host = s.host.id, name = n.name, device = n.name, pci = n.pci, numa = n.numa, to = next(to) and to or nil }
    end
  end
  return out
end

--- Read a file.
---@param text string
---@param name string
---@return tpl.TopoRecord   a partial record: what the file does not say is nil
function M.read(text, name)
  local s = { doubts = {}, gpus = {}, nics = {}, by_id = {}, switches = {}, numa_of = {}, host = { id = "host0", numa = {} } }
  local root, whole = xml_text.decode(text, name, s.doubts)
  if root.tag ~= "topology" then
    err.throw { code = "format", where = name .. ":" .. root.line, message = "the root is <" .. root.tag .. ">, expected <topology>" }
  end
  walk(s, root, { nodes = {} }, {})
  if #s.gpus > MAX_GPUS or #s.nics > MAX_NICS then
    err.throw { code = "format", where = name, message = ("more than %d GPUs or %d NICs in one file"):format(MAX_GPUS, MAX_NICS) }
  end
  settle_places(s)
  name_gpus(s)
  sort_gpus(s)
  if #s.gpus == 0 then
    doubt(s, s.other, "no_gpu", s.other and "no NVIDIA GPU in the file; it has GPUs of AMD, which are not imported"
      or "no GPU information in the file: lstopo lists PCI devices only where it is built and run with them")
  end
  for _, g in ipairs(s.gpus) do
    if not g.place.numa and #s.host.numa > 1 then
      doubt(s, g.node, "numa_unknown", g.device.uid .. " hangs at no NUMA node: where it is near is unknown, its paths count as the longest")
    end
  end
  local joined, any = links.read(root, s, whole, function(...) doubt(s, ...) end)
  if #s.gpus > 1 and not any then
    doubt(s, nil, "nvlink_unstated", "no NVLink in the file: whether the GPUs have some is unknown (compare with nvidia-smi topo -m)")
  end
  local uids, devices = {}, {}
  for i, g in ipairs(s.gpus) do uids[i], devices[i] = g.device.uid, g.device end
  table.sort(s.doubts, function(a, b) return (a.line or 0) < (b.line or 0) or (a.line or 0) == (b.line or 0) and a.code .. a.message < b.code .. b.message end)
  return {
    source = { kind = "hwloc-xml", files = { name } }, hosts = { s.host }, devices = devices, nics = make_nics(s), doubts = s.doubts,
    links = pci.links(uids, function(i, j) return word_between(s.gpus[i], s.gpus[j]) end, joined),
  }
end

return M
