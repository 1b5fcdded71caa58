-- SPDX-License-Identifier: Apache-2.0
--- Walk the tree of a NCCL topology file: CPUs with their masks, bridges, GPUs, NICs, and devices that nothing says the kind of.
-- What is found goes into the state that nccl_xml.lua makes: hosts, gpus, nics, unknown, doubts.
local err = require("tpl.err")
local pci = require("tpl.topo.import.pci")
local xml = require("tpl.xml")

local M = {}

local MAX_GPUS, MAX_NICS, MAX_DOUBTS = 256, 1024, 200 -- NCCL itself stops at 256 nodes

--- Note what is odd, in the line of a node where there is one.
function M.doubt(s, node, code, message)
  if #s.doubts < MAX_DOUBTS then s.doubts[#s.doubts + 1] = { line = node and node.line, code = code, message = message } end
end

local doubt = M.doubt

local function host_for(s, cpu)
  local hash = cpu.attr.host_hash
  local host = hash and s.host_of[hash] or not hash and s.hosts[1]
  if not host then
    host = { id = "host" .. #s.hosts, numa = {}, by_numa = {} }
    s.hosts[#s.hosts + 1], s.host_of[hash or ""] = host, host
  end
  return host
end

local arches = { GenuineIntel = true, AuthenticAMD = true, CentaurHauls = true, Shanghai = true }

local function read_cpu(s, node)
  local host = host_for(s, node)
  local id = tonumber(node.attr.numaid or "")
  if not id or id < 0 or id ~= math.floor(id) or id > 65535 then
    doubt(s, node, "numa_unknown", ("numaid '%s' names no NUMA node: where its devices belong is unknown"):format(tostring(node.attr.numaid):sub(1, 20)))
    id = nil
  end
  local cpus, complaint = pci.cpus_of_mask(node.attr.affinity)
  if complaint then doubt(s, node, "bad_affinity", complaint) end
  if id and not host.by_numa[id] then
    local entry = { id = id, cpus = cpus }
    host.numa[#host.numa + 1], host.by_numa[id] = entry, entry
  end
  local vendor = node.attr.vendor and node.attr.vendor:match("^%s*(.-)%s*$")
  if vendor and vendor ~= "" and not host.cpu then
    host.cpu = { vendor = vendor, arch = node.attr.arch }
    if node.attr.familyid and node.attr.modelid then host.cpu.model = ("family %s model %s"):format(node.attr.familyid, node.attr.modelid) end
    if not arches[vendor] and node.attr.arch == "x86_64" then doubt(s, node, "cpu_vendor", "CPU vendor '" .. vendor:sub(1, 40) .. "' is not one that NCCL knows") end
  end
  return { node = node, host = host, numa = id, cpus = cpus }
end

local function link_of(node)
  local width = tonumber(node.attr.link_width or "")
  return pci.generation(node.attr.link_speed), width and width >= 1 and width <= 64 and width == math.floor(width) and width or nil
end

--- What the PCI devices above say of the way to the CPU; a narrower or slower port than the device's own is a doubt, since files are
--- often wrong there and NCCL takes them at their word.
local function check_way(s, node, path, gen, width)
  local own = pci.nccl_gb_s(gen, width)
  for _, above in ipairs(path) do
    if above.tag == "pci" and own then
      local g, w = link_of(above)
      local gb_s = pci.nccl_gb_s(g, w)
      if gb_s and gb_s < own then
        doubt(s, above, "pcie_slow_port", ("the port %s above %s says %s x%d: NCCL counts %.4g GB/s there, the device could have %.4g"):format(
          above.attr.busid or "?", node.attr.busid or "?", above.attr.link_speed, w, gb_s, own))
      end
    end
  end
end

local function add_nets(s, nic, place, path, address)
  local found = false
  for net in xml.each(nic, "net") do
    found = true
    local speed = tonumber(net.attr.speed or "")
    local name = net.attr.name
    if not name or name == "" then
      name = "net" .. (net.attr.dev or #s.nics)
      doubt(s, net, "nic_name", "a NIC without a name, called " .. name .. " here")
    end
    s.nics[#s.nics + 1] = { name = name, device = net.attr.name, pci = address, numa = place.numa, place = place, path = path,
      gb_s = speed and speed > 0 and speed < 1e9 and speed / 8000 or nil, gdr = net.attr.gdr and net.attr.gdr ~= "0" or nil }
    if net.attr.gdr == "0" then doubt(s, net, "nic_no_gdr", name .. " has gdr=0: no GPU direct RDMA") end
  end
  return found
end

local function copy_path(path, node)
  local out = {}
  for i, p in ipairs(path) do out[i] = p end
  out[#out + 1] = node
  return out
end

local function add_gpu(s, node, gpu, place, path, address)
  local gen, width = link_of(node)
  check_way(s, node, path, gen, width)
  local sm = tonumber(gpu and gpu.attr.sm or "")
  if sm and (sm ~= math.floor(sm) or sm < 10 or sm > 999) then sm = nil end
  s.gpus[#s.gpus + 1] = {
    node = node, gpu = gpu, place = place, path = path, dev = tonumber(gpu and gpu.attr.dev or ""),
    device = { kind = "gpu", host = place.host.id, pci = address, numa = place.numa, cpus = place.cpus, name = pci.gpu_name(node.attr.device),
      sm = sm and ("%d.%d"):format(math.floor(sm / 10), sm % 10) or nil, pcie = (gen or width) and { gen = gen, width = width } or nil },
  }
end

--- A PCI function: bridge, GPU, NIC, or (no class and no child that says it) something unknown.
local function read_pci(s, node, place, path)
  local address, class = pci.address(node.attr.busid), (node.attr.class or ""):lower()
  if not address then doubt(s, node, "bad_busid", ("busid '%s' is no PCI address"):format(tostring(node.attr.busid):sub(1, 40))) end
  if class ~= "" then s.no_class = false end
  if (node.attr.link_speed or ""):find("^%d+%.0 GT/s$") then
    doubt(s, node, "pcie_speed", ("link_speed '%s' lacks ' PCIe': NCCL does not know it and counts 8 GT/s"):format(node.attr.link_speed:sub(1, 20)))
  end
  local gpu, below = nil, copy_path(path, node)
  local leaf = true
  for _, child in ipairs(node) do
    if child.tag == "gpu" then gpu, s.no_class = child, false end
    if child.tag == "pci" then leaf = false end
  end
  local is_gpu = gpu or class:find("^0x03") and (not node.attr.vendor or node.attr.vendor == "0x10de")
  if is_gpu then add_gpu(s, node, gpu, place, path, address) end
  local has_net = false
  for _, child in ipairs(node) do
    if child.tag == "pci" then read_pci(s, child, place, below)
    elseif child.tag == "nic" then has_net = add_nets(s, child, place, path, address) or has_net end
  end
  if not is_gpu and not has_net and leaf and class:find("^0x02") then
    s.nics[#s.nics + 1] = { name = address or node.attr.busid or "NIC" .. #s.nics, pci = address, numa = place.numa, place = place, path = path }
  elseif not is_gpu and not has_net and leaf and class == "" then
    s.unknown[#s.unknown + 1] = { node = node, place = place, path = path, address = address }
  end
end

--- In a file that gives no class at all (AWS ships such), take the functions for GPUs: NCCL runs on machines with GPUs. The one that
--- breaks the rising order of addresses under its CPU was put there by hand: a NIC. Both are guesses, and said to be.
local function read_unknown(s)
  if #s.unknown == 0 then return end
  if not s.no_class then
    for _, u in ipairs(s.unknown) do doubt(s, u.node, "class_unknown", (u.address or "a device") .. " has no class: left out") end
    return
  end
  local last, guessed = {}, {}
  for _, u in ipairs(s.unknown) do
    local before = last[u.place]
    if before and u.address and before > u.address then
      s.nics[#s.nics + 1] = { name = u.address, pci = u.address, numa = u.place.numa, place = u.place, path = u.path }
      doubt(s, u.node, "class_unknown", u.address .. " has no class and stands out of order: taken for a NIC, which is a guess")
    else
      add_gpu(s, u.node, nil, u.place, u.path, u.address)
      guessed[#guessed + 1], last[u.place] = u.address or "?", u.address or before
    end
  end
  doubt(s, s.unknown[1].node, "class_unknown", ("the file gives no class of any device: %d are taken for GPUs, which is a guess"):format(#guessed))
end

--- Read all CPUs of a file and what hangs at them.
---@param s table        state of nccl_xml.lua
---@param root tpl.XmlNode
function M.walk(s, root)
  for cpu in xml.each(root, "cpu") do
    local place = read_cpu(s, cpu)
    for _, child in ipairs(cpu) do
      if child.tag == "pci" then read_pci(s, child, place, {})
      elseif child.tag == "nic" then add_nets(s, child, place, {}, nil) end
    end
    if #s.gpus > MAX_GPUS or #s.unknown > MAX_GPUS or #s.nics > MAX_NICS then
      err.throw { code = "format", where = s.name .. ":" .. cpu.line, message = ("more than %d GPUs or %d NICs in one file"):format(MAX_GPUS, MAX_NICS) }
    end
  end
  read_unknown(s)
end

return M
