-- SPDX-License-Identifier: Apache-2.0
--- Draw machines that a policy should cope with, as records (the fields of `tpl topo`), with a model and a `want` each.
-- A machine has a base (how its devices are wired) and traits (what is odd about it); both are its kinds, and the census counts them. A draw
-- depends on its seed and number only. Wirings after the corpus of real pastes: NVLink bridges that join far slots, DGX-1's cube, quads, switches,
-- PCIe trees; memory sizes are what nvidia-smi prints for the cards.
local draw = require("tpl.fuzz.draw")
local models = require("tpl.policy.models")
local util = require("tpl.util")

local M = {}

M.bases = { "single", "nvlink_pairs", "nvswitch", "cube_mesh", "nvlink_quads", "pcie", "three_gpus", "cpu_only" }
M.traits = { "two_sockets", "sub_numa", "several_hosts", "infiniband", "ethernet", "mixed_models", "mixed_memory", "mig", "busy", "labelled",
  "memory_taken", "unhealthy", "fabric_not_completed", "lost", "unknown_numa", "unknown_p2p", "p2p_refused", "indices_permuted", "uuid_names", "nics" }

local MIB = 2 ^ 20
local cards = {
  h200 = { "NVIDIA H200", "9.0", 143771 }, h100 = { "NVIDIA H100 80GB HBM3", "9.0", 81559 }, a100 = { "NVIDIA A100-SXM4-80GB", "8.0", 81920 },
  a100_40 = { "NVIDIA A100-SXM4-40GB", "8.0", 40960 }, a100_pcie = { "NVIDIA A100 80GB PCIe", "8.0", 81920 }, a40 = { "NVIDIA A40", "8.6", 46068 },
  a6000 = { "NVIDIA RTX A6000", "8.6", 49140 }, v100 = { "Tesla V100-SXM2-32GB", "7.0", 32768 }, v100_16 = { "Tesla V100-SXM2-16GB", "7.0", 16384 },
  l40s = { "NVIDIA L40S", "8.9", 46068 }, l4 = { "NVIDIA L4", "8.9", 23034 }, r4090 = { "NVIDIA GeForce RTX 4090", "8.9", 24564 },
}

-- NV2 and NV1 of a DGX-1 with V100, by slot (NVIDIA DGX-1 system architecture white paper, figure 4; nvidia-smi shows the same).
local cube = { ["0-3"] = 2, ["0-4"] = 2, ["1-2"] = 2, ["1-5"] = 2, ["2-3"] = 2, ["4-7"] = 2, ["5-6"] = 2, ["6-7"] = 2,
  ["0-1"] = 1, ["0-2"] = 1, ["1-3"] = 1, ["2-6"] = 1, ["3-7"] = 1, ["4-5"] = 1, ["4-6"] = 1, ["5-7"] = 1 }

local function shuffled(r, n)
  local list = {}
  for i = 1, n do list[i] = i end
  for i = n, 2, -1 do
    local j = r:below(i) + 1
    list[i], list[j] = list[j], list[i]
  end
  return list
end

-- -- Wirings: each gives {n=, card=, nvlinks=fun(i, j), via_switch=} of slots from 0 ----------------------------

local wirings = {}

function wirings.single(r) return { n = 1, card = r:pick { "h100", "a100", "l40s", "l4", "r4090" } } end

local function pairs_of(r, n, bridged)
  local order, partner = shuffled(r, n), {}
  for k = 1, bridged do
    local a, b = order[2 * k - 1] - 1, order[2 * k] - 1
    partner[a], partner[b] = b, a
  end
  return partner
end

function wirings.nvlink_pairs(r)
  local n = r:pick { 2, 4, 4, 6, 8 }
  local card = r:pick { "a100_pcie", "a6000", "a40" }
  local partner = pairs_of(r, n, n > 2 and r:chance(25) and n / 2 - 1 or n / 2)
  return { n = n, card = card, nvlinks = function(i, j) return partner[i] == j and (card == "a100_pcie" and 12 or 4) or 0 end }
end

function wirings.three_gpus(r)
  local partner = pairs_of(r, 3, r:chance(60) and 1 or 0)
  return { n = 3, card = r:pick { "a6000", "a100_pcie" }, nvlinks = function(i, j) return partner[i] == j and 4 or 0 end }
end

function wirings.nvswitch(r)
  local n = r:pick { 4, 8, 8, 8, 16 }
  local card = n == 16 and "v100" or r:pick { "h100", "h200", "a100", "a100_40" }
  local count = n == 16 and 6 or card:find("^h") and 18 or 12
  return { n = n, card = card, via_switch = true, nvlinks = function() return count end }
end

function wirings.cube_mesh(r)
  return { n = 8, card = r:pick { "v100", "v100_16" }, nvlinks = function(i, j) return cube[math.min(i, j) .. "-" .. math.max(i, j)] or 0 end }
end

function wirings.nvlink_quads(r)
  local n, count = r:pick { 4, 4, 8 }, r:pick { 4, 6 }
  return { n = n, card = count == 4 and r:pick { "a100_40", "a100" } or "h100",
    nvlinks = function(i, j) return math.floor(i / 4) == math.floor(j / 4) and count or 0 end }
end

function wirings.pcie(r) return { n = r:pick { 2, 3, 4, 4, 6, 8 }, card = r:pick { "l40s", "l4", "r4090", "a6000", "v100_16" } } end

-- -- One host ---------------------------------------------------------------------------------------------------

local function draw_nodes(r, has)
  local sockets = r:chance(65) and 2 or 1
  local per_socket = r:chance(15) and 2 or 1
  has.two_sockets, has.sub_numa = sockets > 1 or nil, per_socket > 1 or nil
  local nodes = {}
  for i = 0, sockets * per_socket - 1 do
    nodes[i + 1] = { id = i, cpus = ("%d-%d"):format(i * 16, i * 16 + 15), mem_bytes = 256 * 2 ^ 30 / per_socket }
  end
  return nodes
end

local function pcie_word(tree, i, j)
  if tree.node[i] ~= tree.node[j] then return "sys" end
  if math.floor(i / tree.per_switch) == math.floor(j / tree.per_switch) then return "pix" end
  return tree.near
end

local function uuid_of(host, slot) return ("GPU-%08x-0000-4000-8000-%012x"):format((slot * 2654435761 + host * 40503) % 2 ^ 32, host * 64 + slot) end

local function device_of(card, host, host_number, slot, node)
  return { kind = "gpu", host = host, uuid = uuid_of(host_number, slot), pci = ("0000:%02x:00.0"):format(0x10 + slot * 8), name = card[1], sm = card[2],
    vbios = "96.00.00.00.01", numa = node.id, cpus = node.cpus, mem_bytes = card[3] * MIB, free_bytes = (card[3] - 600) * MIB, mig = { mode = "off" },
    pcie = { gen = 4, width = 16 }, busy = { pids = {}, used_bytes = 0 }, labels = {}, health = {} }
end

-- Links in terms of slots; names are given when the order of devices is known.
local function wire(w, tree, has, slots)
  local links = {}
  for i = 0, w.n - 1 do
    for j = i + 1, w.n - 1 do
      local count = w.nvlinks and w.nvlinks(i, j) or 0
      local word = pcie_word(tree, i, j)
      local link = { a = slots[i], b = slots[j], kind = count > 0 and "nvlink" or word, pcie = word, source = "assumed",
        nvlinks = count > 0 and count or nil, via_switch = count > 0 and w.via_switch or nil }
      if not has.unknown_p2p then link.p2p = { read = "ok", write = "ok" } end
      if has.p2p_refused and count == 0 then link.p2p = { read = "gns", write = "gns" } end
      links[#links + 1] = link
    end
  end
  return links
end

local function spoil(r, w, has, slots)
  local function some() return slots[r:below(w.n)] end
  local function most() return math.max(1, r:below(w.n)) end
  if w.n > 1 and r:chance(12) then
    has.mixed_models = true
    local other = cards[r:pick { "h100", "a100", "l40s", "a6000", "l4" }]
    for _ = 1, most() do
      local d = some()
      if d.name ~= other[1] then d.name, d.sm, d.mem_bytes, d.free_bytes = other[1], other[2], other[3] * MIB, (other[3] - 600) * MIB end
    end
  elseif w.n > 1 and r:chance(8) then
    has.mixed_memory = true
    local d = some()
    d.mem_bytes = d.mem_bytes / 2
    d.free_bytes, d.name = d.mem_bytes - 600 * MIB, d.name .. " half"
  end
  if r:chance(20) then
    has.memory_taken = true
    for _ = 1, most() do
      local d = some()
      local share = r:pick { 0.2, 0.5, 0.8, 0.95 }
      d.busy = { pids = { 1000 + r:below(1000) }, used_bytes = math.floor(d.mem_bytes * share) }
      d.free_bytes = math.max(0, d.mem_bytes - d.busy.used_bytes - 600 * MIB)
    end
  end
  if r:chance(10) then
    has.busy = true
    local d = some()
    d.busy = { pids = { 1000 + r:below(1000) }, used_bytes = 2000 * MIB }
    d.free_bytes = math.max(0, math.min(d.free_bytes, d.mem_bytes - 2600 * MIB))
  end
  if r:chance(12) then
    has.labelled = true
    some().labels = { "service" }
  end
  if w.via_switch then
    for i = 0, w.n - 1 do slots[i].fabric = { state = "completed", health = "healthy", clique = 0, cluster = "00000000-0000-0000-0000-000000000000" } end
    if r:chance(12) then has.fabric_not_completed = true some().fabric.state = "in progress" end
    if r:chance(8) then has.unhealthy = true some().fabric.health = "unhealthy" end
  elseif r:chance(8) then
    has.unhealthy = true
    some().health = r:chance(50) and { remapped = { pending = true } } or { xid = { 95 } }
  end
  if r:chance(8) then has.lost = true some().health = { xid = { 79 } } end
end

local profiles = { { "3g", 2 }, { "2g", 4 }, { "1g", 8 } } -- name, and which part of the memory a slice has

-- Cut some cards into slices; the parent still shows its memory, as nvidia-smi does.
local function cut(r, w, has, slots, host_number)
  local slices = {}
  if not r:chance(15) then return slices end
  for _ = 1, math.max(1, r:below(w.n)) do
    local slot = r:below(w.n)
    local d, profile = slots[slot], r:pick(profiles)
    if d.mig.mode == "off" and (d.sm == "8.0" or d.sm == "9.0") then
      has.mig = true
      d.mig = { mode = "on" }
      for k = 1, 2 do
        local mem = math.floor(d.mem_bytes / profile[2])
        local uuid = ("MIG-%08x-0000-5000-8000-%012x"):format(slot, host_number * 1024 + slot * 8 + k)
        slices[#slices + 1] = { kind = "mig", host = d.host, uid = uuid, uuid = uuid, name = d.name, sm = d.sm, numa = d.numa, cpus = d.cpus, mem_bytes = mem,
          free_bytes = mem - 100 * MIB, mig = { parent = d, profile = ("%s.%dgb"):format(profile[1], math.floor(mem / 2 ^ 30)) }, labels = {} }
      end
    end
  end
  return slices
end

local function draw_nics(r, has, slots, n, tree, names)
  if not r:chance(25) then return {} end
  has.nics = true
  local nics = {}
  for k = 0, math.max(1, math.floor(n / 2)) - 1 do
    local at, to = math.min(n - 1, 2 * k), {}
    for i = 0, n - 1 do to[slots[i]] = pcie_word(tree, at, i) end
    nics[k + 1] = { name = "NIC" .. names, device = "mlx5_" .. names, numa = tree.node[at], to = to }
    names = names + 1
  end
  return nics
end

-- A host's parts with devices for names.
local function draw_host(r, wiring, has, host, host_number, n_nics)
  local w, nodes = wiring(r), draw_nodes(r, has)
  local tree = { node = {}, per_switch = r:pick { 1, 2, 2, 4 }, near = r:pick { "pxb", "phb", "node", "node" } }
  local slots = {}
  for i = 0, w.n - 1 do
    local node = nodes[math.floor(i * #nodes / w.n) + 1]
    tree.node[i] = node.id
    slots[i] = device_of(cards[w.card], host, host_number, i, node)
  end
  has.unknown_p2p = r:chance(10) or nil
  has.p2p_refused = w.card == "r4090" and not has.unknown_p2p and r:chance(60) or nil
  local links = wire(w, tree, has, slots)
  spoil(r, w, has, slots)
  local slices = cut(r, w, has, slots, host_number)
  local nics = draw_nics(r, has, slots, w.n, tree, n_nics)
  if r:chance(12) then
    has.unknown_numa = true
    for i = 0, w.n - 1 do slots[i].numa, slots[i].cpus = nil, nil end
    for _, s in ipairs(slices) do s.numa, s.cpus = nil, nil end
    for _, nic in ipairs(nics) do nic.numa = nil end
  end
  local devices = {}
  local order = w.n > 1 and r:chance(50) and shuffled(r, w.n) or nil
  has.indices_permuted = has.indices_permuted or order ~= nil or nil
  for i = 1, w.n do
    devices[i] = slots[order and order[i] - 1 or i - 1]
    devices[i].index = i - 1
  end
  for i, s in ipairs(slices) do
    s.index = i - 1
    devices[#devices + 1] = s
  end
  return { numa = nodes, devices = devices, links = links, nics = nics }
end

local function name_devices(record, by_uuid, with_host)
  for _, d in ipairs(record.devices) do
    d.uid = d.uid or by_uuid and d.uuid or (with_host and d.host .. "/" or "") .. "GPU" .. d.index
  end
  local position = {}
  for i, d in ipairs(record.devices) do position[d] = i end
  for _, l in ipairs(record.links) do
    if position[l.a] > position[l.b] then l.a, l.b = l.b, l.a end
    l.order = position[l.a] * 1e4 + position[l.b]
  end
  table.sort(record.links, function(x, y) return x.order < y.order end)
  for _, l in ipairs(record.links) do l.a, l.b, l.order = l.a.uid, l.b.uid, nil end
  for _, d in ipairs(record.devices) do if d.mig and d.mig.parent then d.mig.parent = d.mig.parent.uid end end
  for _, nic in ipairs(record.nics) do
    local to = {}
    for d, word in pairs(nic.to) do to[d.uid] = word end
    nic.to = to
  end
end

local function gpu_machine(r, base, has)
  local n_hosts = base ~= "single" and r:chance(15) and r:pick { 2, 2, 4 } or 1
  local record = { hosts = {}, networks = {}, devices = {}, links = {}, nics = {} }
  for h = 0, n_hosts - 1 do
    local id = "host" .. h
    local part = draw_host(r, wirings[base], has, id, h, #record.nics)
    record.hosts[h + 1] = { id = id, driver = "570.124.06", cuda = "12.8", cpu = { vendor = "GenuineIntel", model = "Xeon", isa = {} }, numa = part.numa }
    for _, list in ipairs { "devices", "links", "nics" } do
      for _, x in ipairs(part[list]) do table.insert(record[list], x) end
    end
  end
  if n_hosts > 1 then
    has.several_hosts = true
    local ib = r:chance(50)
    has[ib and "infiniband" or "ethernet"] = true
    record.networks[1] = { hosts = util.map(record.hosts, function(h) return h.id end), kind = ib and "ib" or "eth", gb_s = ib and 50 or 1.25, us = ib and 3 or 30 }
  end
  has.uuid_names = r:chance(40) or nil
  name_devices(record, has.uuid_names, n_hosts > 1)
  return record
end

local function cpu_machine(r)
  local record = { hosts = { { id = "host0", cpu = { vendor = "AuthenticAMD", model = "EPYC", isa = { "avx2" } }, numa = {} } }, networks = {}, devices = {},
    links = {}, nics = {} }
  local n = r:pick { 1, 2, 4 }
  for i = 0, n - 1 do
    local cpus, mem = ("%d-%d"):format(i * 8, i * 8 + 7), r:pick { 32, 128, 256 } * 2 ^ 30
    record.hosts[1].numa[i + 1] = { id = i, cpus = cpus, mem_bytes = mem }
    record.devices[i + 1] = { uid = "cpu" .. i, kind = "cpu", host = "host0", index = i, name = "EPYC", numa = i, cpus = cpus, mem_bytes = mem,
      free_bytes = math.floor(mem * 0.9), labels = {} }
    for j = 0, i - 1 do record.links[#record.links + 1] = { a = "cpu" .. j, b = "cpu" .. i, kind = "shm", source = "assumed" } end
  end
  return record
end

local function draw_want(r, has)
  local want = { context = r:pick { 2048, 8192, 32768 }, concurrency = r:pick { 1, 4, 16 }, goal = r:pick { "throughput", "latency" }, kv_dtype = "f16",
    act = "bf16", usable = 0.9, require = {}, devices = {} }
  if has.labelled and r:chance(50) then want.devices.exclude = { "service" } end
  return want
end

---@class tpl.policy.Case
---@field seed integer
---@field number integer
---@field kinds string[]     base first, then traits
---@field record table       as an importer gives it, not finished
---@field model string       a name of tpl.policy.models
---@field want table

--- Draw a machine, a model and a want.
---@param seed integer
---@param number integer
---@return tpl.policy.Case
function M.draw(seed, number)
  local r, has = draw.random(seed, number), {}
  local base = r:pick(M.bases)
  local record = base == "cpu_only" and cpu_machine(r) or gpu_machine(r, base, has)
  record.source = { kind = "record", files = {} }
  local case = { seed = seed, number = number, kinds = { base }, record = record, model = r:pick(models.names), want = draw_want(r, has) }
  for _, trait in ipairs(M.traits) do if has[trait] then table.insert(case.kinds, trait) end end
  return case
end

--- List the kinds of machine, bases first.
---@return string[]
function M.kinds()
  local out = {}
  for _, list in ipairs { M.bases, M.traits } do for _, kind in ipairs(list) do out[#out + 1] = kind end end
  return out
end

--- Count kinds: an empty census has every kind.
---@return table<string, integer>
function M.census()
  local out = {}
  for _, kind in ipairs(M.kinds()) do out[kind] = 0 end
  return out
end

return M
