-- SPDX-License-Identifier: Apache-2.0
--- Read the topology files of NCCL (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE): GPUs, NICs, NVLink and the PCI tree.
-- The format as NCCL 2.30 reads it (xml.cc, topo.cc) is in facts/topology.md section 4. Published files are often skeletons that NCCL fills
-- from the machine; here what is absent stays unknown, and what NCCL would take without a word (links to oneself, speeds that it does not know) is a doubt.
local err = require("tpl.err")
local nvlinks = require("tpl.topo.import.nccl_links")
local pci = require("tpl.topo.import.pci")
local xml = require("tpl.xml")
local xml_text = require("tpl.topo.import.xml_text")

local M = {}

local MAX_GPUS, MAX_NICS = 256, 1024 -- NCCL itself stops at 256 nodes
local MAX_LINKS_OF_ONE = 64

--- Say whether a text is a NCCL topology or graph file, this importer's own or one that it refuses by name.
---@param text string
---@return boolean
function M.detect(text)
  local tag = xml_text.root(text)
  return tag == "system" or tag == "graphs"
end

local function refuse(name, line, message, hint)
  err.throw { code = "unsupported", where = line and name .. ":" .. line or name, message = message, hint = hint }
end

local function is_amd(node)
  local gpu_of_amd = node.tag == "pci" and node.attr.vendor == "0x1002" and (node.attr.class or ""):find("^0x03")
  if node.tag == "xgmi" or node.attr.gcn or gpu_of_amd then return node.line end
  for _, child in ipairs(node) do
    local line = is_amd(child)
    if line then return line end
  end
end

local function check_root(root, name)
  if root.tag == "graphs" then
    refuse(name, root.line, "this is a NCCL graph file (rings and trees), which holds no topology",
      "give the topology file, as NCCL_TOPO_DUMP_FILE writes it")
  end
  if root.tag ~= "system" then err.throw { code = "format", where = name .. ":" .. root.line, message = "the root is <" .. root.tag .. ">, expected <system>" } end
  local amd = root.attr.version == "2" and root.line or is_amd(root)
  if amd then refuse(name, amd, "this is a topology of RCCL (AMD GPUs), not of NCCL", "only NVIDIA GPUs are imported") end
  if root.attr.version and root.attr.version ~= "1" then
    refuse(name, root.line, "version " .. root.attr.version:sub(1, 20) .. " of NCCL's topology format, version 1 is known")
  end
  for _, child in ipairs(root) do
    if child.tag == "gpu" or child.tag == "nvlink" then
      err.throw { code = "format", where = name .. ":" .. child.line,
        message = "<" .. child.tag .. "> stands directly in <system>: NCCL has <system><cpu><pci busid><gpu>, so this file names no PCI device",
        hint = "this is no file that NCCL wrote; let NCCL_TOPO_DUMP_FILE write one" }
    end
  end
end

-- What is collected while the tree is walked.
local function new_state(name)
  return { name = name, doubts = {}, hosts = {}, host_of = {}, gpus = {}, nics = {}, unknown = {}, whole = true, no_class = true }
end

local function doubt(s, node, code, message) s.doubts[#s.doubts + 1] = { line = node and node.line, code = code, message = message } end

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
  return pci.generation(node.attr.link_speed), width and width > 0 and width <= 64 and width or nil
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
      gb_s = speed and speed > 0 and speed / 8000 or nil, gdr = net.attr.gdr and net.attr.gdr ~= "0" or nil }
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

--- The path word of two positions, each {place=, path=, address}: see facts/topology.md section 1 and 4.
local function word_between(a, b)
  if a.place ~= b.place and (a.place.host ~= b.place.host or a.place.numa ~= b.place.numa or not a.place.numa) then
    return a.place.host == b.place.host and "sys" or nil
  end
  local shared = 0
  while a.path[shared + 1] and a.path[shared + 1] == b.path[shared + 1] do shared = shared + 1 end
  if shared > 0 then return shared == #a.path and shared == #b.path and "pix" or "pxb" end
  for _, pa in ipairs(a.path) do -- switches joined by a link of their own
    for link in xml.each(pa, "pcilink") do
      for _, pb in ipairs(b.path) do if link.attr.target and link.attr.target == pb.attr.busid then return "pxb" end end
    end
  end
  -- The file does not say which host bridge a device hangs at. Two functions of one root bus share it; else it takes the bridges' link.
  local bus = #a.path == 0 and #b.path == 0 and a.address and b.address and a.address:match("^(.*):") == b.address:match("^(.*):")
  return bus and a.address and "phb" or "node"
end

local function same_spot(a, b) return a.address and a.address == b.address end

--- Order the GPUs by NCCL's own numbers where all have one, and name them.
local function number_gpus(s)
  local seen, all = {}, true
  for _, g in ipairs(s.gpus) do
    local key = g.place.host.id .. "/" .. tostring(g.dev)
    if not g.dev or g.dev ~= math.floor(g.dev) or g.dev < 0 or seen[key] then all = false end
    seen[key] = true
  end
  local many, count = #s.hosts > 1, {}
  for i, g in ipairs(s.gpus) do g.order = i end
  if all then
    local rank = {}
    for i, h in ipairs(s.hosts) do rank[h.id] = i end
    table.sort(s.gpus, function(a, b)
      local ha, hb = rank[a.device.host], rank[b.device.host]
      if ha ~= hb then return ha < hb end
      if a.dev ~= b.dev then return a.dev < b.dev end
      return a.order < b.order
    end)
  end
  for _, g in ipairs(s.gpus) do
    local d = g.device
    local n = count[d.host] or 0
    count[d.host] = n + 1
    d.index = all and g.dev or n
    d.uid = (many and d.host .. "/" or "") .. "GPU" .. d.index
    g.address = d.pci
  end
  if not all and #s.gpus > 1 then doubt(s, nil, "index_by_order", "the file does not number its GPUs: they are counted in its order, which need not be that of nvidia-smi") end
end

local function drop_repeats(s)
  local seen, out = {}, {}
  for _, g in ipairs(s.gpus) do
    local key = g.device.pci and g.device.host .. "/" .. g.device.pci
    if key and seen[key] then doubt(s, g.node, "duplicate", "a second GPU at " .. g.device.pci .. ": left out")
    else
      out[#out + 1] = g
      if key then seen[key] = true end
    end
  end
  s.gpus = out
end

local function make_nics(s)
  local out = {}
  for i, n in ipairs(s.nics) do
    local to, any = {}, false
    for _, g in ipairs(s.gpus) do
      local word = word_between({ place = n.place, path = n.path, address = n.pci }, g)
      if word and not same_spot(n, g) then to[g.device.uid], any = word, true end
    end
    out[i] = { host = n.place.host.id, name = n.name, device = n.device, pci = n.pci, numa = n.numa, gb_s = n.gb_s, gdr = n.gdr, to = any and to or nil }
  end
  return out
end

local function say_what_is_missing(s, stats)
  if #s.gpus == 0 then
    doubt(s, nil, "no_gpu", "no GPU in the file")
    return
  end
  if stats.any then return end
  local sxm
  for _, g in ipairs(s.gpus) do sxm = sxm or pci.is_sxm(g.node.attr.device) end
  local vm = false
  for _, g in ipairs(s.gpus) do vm = vm or not g.place.numa end
  doubt(s, nil, "nvlink_unstated", "no NVLink in the file: whether the GPUs have some is unknown"
    .. (vm and ", a hypervisor may hide it" or sxm and ", these boards are made for it" or "") .. " (compare with nvidia-smi topo -m)")
end

--- A file that lost its first lines begins with <cpu> or <pci>: give it a root to stand in.
local function with_head(s, text)
  local tag, at = xml_text.root(text)
  local head = tag == "cpu" and '<system version="1">' or tag == "pci" and '<system version="1"><cpu>'
  if not head then return text end
  s.doubts[#s.doubts + 1] = { line = 1, code = "headless", message = "the file begins at <" .. tag .. ">: what stood before is missing" }
  return text:sub(1, at - 1) .. head .. text:sub(at)
end

--- Read a file.
---@param text string
---@param name string
---@return tpl.TopoRecord   a partial record: what the file does not say is nil
function M.read(text, name)
  local s = new_state(name)
  local root
  root, s.whole = xml_text.decode(with_head(s, text), name, s.doubts)
  check_root(root, name)
  if not root.attr.version then doubt(s, root, "version", "<system> gives no version: read as version 1") end
  for cpu in xml.each(root, "cpu") do
    local place = read_cpu(s, cpu)
    for _, child in ipairs(cpu) do
      if child.tag == "pci" then read_pci(s, child, place, {})
      elseif child.tag == "nic" then add_nets(s, child, place, {}, nil) end
    end
    if #s.gpus > MAX_GPUS or #s.unknown > MAX_GPUS or #s.nics > MAX_NICS then
      err.throw { code = "format", where = name .. ":" .. cpu.line, message = ("more than %d GPUs or %d NICs in one file"):format(MAX_GPUS, MAX_NICS) }
    end
  end
  read_unknown(s)
  drop_repeats(s)
  number_gpus(s)
  local joined, stats = nvlinks.read(s.gpus, s.whole, MAX_LINKS_OF_ONE, function(...) doubt(s, ...) end)
  local uids, devices = {}, {}
  for i, g in ipairs(s.gpus) do uids[i], devices[i] = g.device.uid, g.device end
  say_what_is_missing(s, stats)
  for _, h in ipairs(s.hosts) do h.by_numa = nil end
  if #s.hosts == 0 then s.hosts[1] = { id = "host0", numa = {} } end
  table.sort(s.doubts, function(a, b) return (a.line or 0) < (b.line or 0) or (a.line or 0) == (b.line or 0) and a.code .. a.message < b.code .. b.message end)
  return {
    source = { kind = "nccl-xml", files = { name } }, hosts = s.hosts, devices = devices, nics = make_nics(s), doubts = s.doubts,
    links = pci.links(uids, function(i, j) return word_between(s.gpus[i], s.gpus[j]) end, joined),
  }
end

return M
