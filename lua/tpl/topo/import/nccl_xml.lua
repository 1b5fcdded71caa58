-- SPDX-License-Identifier: Apache-2.0
--- Read the topology files of NCCL (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE): GPUs, NICs, NVLink and the PCI tree.
-- The format as NCCL 2.30 reads it (xml.cc, topo.cc) is in facts/topology.md section 4. Published files are often skeletons that NCCL fills
-- from the machine; here what is absent stays unknown, and what NCCL would take without a word (links to oneself, speeds that it does not know) is a doubt.
local err = require("tpl.err")
local nvlinks = require("tpl.topo.import.nccl_links")
local pci = require("tpl.topo.import.pci")
local tree = require("tpl.topo.import.nccl_tree")
local xml = require("tpl.xml")
local xml_text = require("tpl.topo.import.xml_text")

local M = {}

local MAX_LINKS_OF_ONE = 64

local doubt = tree.doubt

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
    if not (g.dev and g.dev >= 0 and g.dev <= 65535 and g.dev == math.floor(g.dev)) or seen[key] then all = false end
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
  tree.walk(s, root)
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
