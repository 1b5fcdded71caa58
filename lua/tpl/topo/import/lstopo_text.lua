-- SPDX-License-Identifier: Apache-2.0
--- Read the text of lstopo (`lstopo-no-graphics`, with or without -v): GPUs and NICs with their PCI addresses, and the NUMA node whose
--- CPUs are nearest. Nodes that are the memory of a GPU (POWER9, Grace) have no CPUs and are no place for a process. There are no GPU
--- links in this text.
---
--- Contents: one line - the tree (by indentation) - CPUs of nodes - fill
local draft_of = require("tpl.topo.import.draft")

local M = {}

-- -- Lines -----------------------------------------------------------------------------------------------------------

-- Bytes of "124GiB", "16GB", "15899MB"; lstopo counts in powers of two, whatever the unit is called.
local function bytes(text)
  local n, unit = text:match("([%d%.]+)%s*([KMGT])i?B")
  local power = { K = 10, M = 20, G = 30, T = 40 }
  return n and math.floor(tonumber(n) * 2 ^ power[unit]) or nil
end

local function is_gpu(class) return class:find("^030") ~= nil or class == "3D" or class == "VGA" or class == "Display" end
local function is_nic(class) return class:find("^02") ~= nil or class == "Ethernet" or class == "InfiniBand" or class == "Network" or class == "OPA" end

-- What one line is about: {what = "node"|"pu"|"package"|"pci"|"net"|"machine"|"other", ..}.
local function read_line(text)
  local indent, rest = text:match("^(%s*)(%S.*)$")
  if not rest or #rest > 4096 then return nil end
  local out = { indent = #indent, what = "other" }
  local os_index = tonumber(rest:match("P#(%d+)"))
  if rest:find("^NUMANode") or rest:find("^%(?NUMANode") then
    out.what, out.id = "node", os_index
    out.mem_bytes = bytes(rest:match("local=(%S+)") or rest:match("%((.*)%)") or "")
    out.gpu_memory = rest:find("GPUMemory", 1, true) ~= nil
    out.pci = draft_of.pci(rest:match("PCIBusID=(%x+:%x+:%x+%.%x)"))
  elseif rest:find("PU [LP]#%d+") then
    out.what, out.id = "pu", tonumber(rest:match("PU L#%d+ %(P#(%d+)") or rest:match("PU P#(%d+)") or rest:match("PU L#(%d+)"))
  elseif rest:find("^Package") or rest:find("^Socket") then
    out.what = "package"
    out.model = rest:match("CPUModel=\"([^\"]+)\"")
    out.vendor = rest:match("CPUVendor=\"?([%w_]+)")
  elseif rest:find("^PCI ") or rest:find("^PCIDev") then
    out.what = "pci"
    out.pci = draft_of.pci(rest:match("busid=(%S+)") or rest:match("^PCI%a* (%x+:%x%x:%x%x%.%x)") or rest:match("^PCI%a* (%x%x:%x%x%.%x)"))
    out.class = rest:match("class=(%x%x%x%x)") or rest:match("%(([%w ]+)%)%s*$") or ""
    out.vendor = rest:match("[ (]id=(%x%x%x%x):")
    out.name = rest:match("PCIDevice=\"([^\"]+)\"")
  elseif rest:find("\"nvml%d+\"") then
    out.what, out.id = "nvml", tonumber(rest:match("\"nvml(%d+)\""))
  elseif rest:find("^OpenFabrics") then
    out.what, out.name = "net", rest:match("\"([^\"]+)\"")
  elseif rest:find("^Net") then
    out.what, out.name, out.weak = "net", rest:match("\"([^\"]+)\""), true
  elseif rest:find("^Machine") then
    out.what = "machine"
  end
  return out
end

-- -- Tree ------------------------------------------------------------------------------------------------------------

-- Every line with its parent; the summary behind the tree ("depth 1: ..") ends it.
local function tree_of(lines)
  local nodes, stack = {}, {}
  for _, line in ipairs(lines) do
    if line.text:find("^%s*depth %d+:") or line.text:find("^Special depth") then break end
    local n = line.text ~= "" and read_line(line.text)
    if n then
      while stack[1] and stack[#stack].indent >= n.indent do stack[#stack] = nil end
      n.parent, n.no = stack[#stack], line.no
      if #stack < 64 then stack[#stack + 1] = n end
      nodes[#nodes + 1] = n
    end
  end
  return nodes
end

-- The object that a node's CPUs and devices hang under: a node is listed beside them, inside the same parent.
local function place(n)
  local at = n.parent
  while at and at.what == "other" and at.parent do at = at.parent end
  return at
end

-- Memory nodes with CPUs, by the object they stand in; nodes nested above the CPUs (old lstopo) are that object themselves.
local function cpu_nodes(nodes)
  local by_place, list = {}, {}
  for _, n in ipairs(nodes) do
    if n.what == "node" and not n.gpu_memory and n.id then
      n.cpus = {}
      list[#list + 1] = n
      local at = place(n)
      if at and not by_place[at] then by_place[at] = n end
      by_place[n] = n
    end
  end
  return list, by_place
end

-- The nearest memory node of an object: the first one on the way up.
local function node_of(n, by_place)
  local at = n.parent
  while at do
    if by_place[at] then return by_place[at] end
    at = at.parent
  end
  return nil
end

-- -- CPUs ------------------------------------------------------------------------------------------------------------

local function list_text(cpus)
  table.sort(cpus)
  local parts, i = {}, 1
  while i <= #cpus do
    local k = i
    while cpus[k + 1] == cpus[k] + 1 do k = k + 1 end
    parts[#parts + 1] = k > i and cpus[i] .. "-" .. cpus[k] or tostring(cpus[i])
    i = k + 1
  end
  return #parts > 0 and table.concat(parts, ",") or nil
end

local function add_cpus(nodes, by_place)
  for _, n in ipairs(nodes) do
    -- Several PUs stand in one line where lstopo merges single children.
    if n.what == "pu" and n.id then
      local node = node_of(n, by_place)
      if node and #node.cpus < 8192 then table.insert(node.cpus, n.id) end
    end
  end
end

local function facts_of(host, nodes, list)
  for _, n in ipairs(nodes) do
    if n.what == "package" and n.model then
      host.facts.cpu = host.facts.cpu or { model = n.model, vendor = n.vendor }
    end
  end
  local numa = {}
  for _, n in ipairs(list) do
    n.cpu_list = list_text(n.cpus)
    if n.cpu_list then numa[#numa + 1] = { id = n.id, cpus = n.cpu_list, mem_bytes = n.mem_bytes } end
  end
  if #numa > 0 then host.facts.numa = numa end
end

-- -- Devices ---------------------------------------------------------------------------------------------------------

-- The GPUs among the PCI devices: a VGA controller of another vendor, or beside 3D controllers, is that of the service processor.
local function gpus_of(draft, nodes)
  local all, three_d = {}, false
  for _, n in ipairs(nodes) do
    if n.what == "nvml" and n.parent then n.parent.index = n.id end
    local other = n.vendor and n.vendor:lower() ~= "10de" and n.vendor ~= "0000"
    if n.what == "pci" and n.pci and is_gpu(n.class) and not other then
      all[#all + 1] = n
      three_d = three_d or n.class == "3D" or n.class == "0302"
    end
  end
  local out, numbered = {}, 0
  for _, n in ipairs(all) do
    if three_d and not n.vendor and (n.class == "VGA" or n.class == "0300") then
      draft:doubt(n.no, "display_left_out", ("the VGA controller at %s is taken for that of the board"):format(n.pci))
    else
      out[#out + 1] = n
      numbered = numbered + (n.index and 1 or 0)
    end
  end
  if #out > 0 and numbered < #out then
    for _, n in ipairs(out) do n.index = nil end
    draft:doubt(nil, "index_assumed", "lstopo prints no GPU index: GPUs are counted in the order of the text")
  end
  return out
end

local function add_devices(draft, host, nodes, by_place)
  local list, memory, fabrics = gpus_of(draft, nodes), {}, {}
  for _, n in ipairs(nodes) do
    if n.what == "node" and n.gpu_memory and n.pci then memory[n.pci] = n.mem_bytes end
    if n.what == "net" and not n.weak and n.parent then fabrics[n.parent] = true end
  end
  for i, n in ipairs(list) do n.gpu = i end
  for _, n in ipairs(nodes) do
    local near = n.what == "pci" and n.pci and node_of(n, by_place)
    if n.gpu then
      local device = host:find("pci", n.pci) or host:device(n.index or n.gpu - 1)
      device.pci, device.name = device.pci or n.pci, device.name or n.name
      device.numa, device.cpus = device.numa or (near and near.id), device.cpus or (near and near.cpu_list)
      device.mem_bytes = device.mem_bytes or memory[n.pci]
    elseif n.what == "net" and n.parent and n.parent.what == "pci" and is_nic(n.parent.class) and n.name and not (n.weak and fabrics[n.parent]) then
      local nic = host:nic(n.name)
      near = node_of(n.parent, by_place)
      nic.device, nic.pci, nic.numa = n.name, n.parent.pci, near and near.id
    end
  end
  if #list > 0 then
    draft:doubt(nil, "no_links", "lstopo's text has no links between GPUs: NVLink and P2P are unknown")
  else
    draft:doubt(nil, "no_gpu", "there is no GPU in this text")
  end
end

-- -- Public ----------------------------------------------------------------------------------------------------------

local function is_lstopo(lines)
  for _, line in ipairs(lines) do
    if line.text:find("^%s*Machine %(") or line.text:find("^%s*Package [LP]#%d") or line.text:find("^%s*NUMANode [LP]#%d") then return true end
  end
  return false
end

--- Write the GPUs and NICs of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  if not is_lstopo(lines) then return end
  draft:found("lstopo-text")
  host.seen = true
  local nodes = tree_of(lines)
  local list, by_place = cpu_nodes(nodes)
  add_cpus(nodes, by_place)
  facts_of(host, nodes, list)
  add_devices(draft, host, nodes, by_place)
end

return M
