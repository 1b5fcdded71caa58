-- SPDX-License-Identifier: Apache-2.0
--- Links between GPUs: NVLinks counted by the peer they end at, through switches too, the PCIe distance, and peer access both ways. NVLink and PCIe are
--- two facts, and so is peer access: none stands for another.
local paths = require("tpl.topo.probe.paths")

local M = {}

-- -- NVLinks ---------------------------------------------------------------------------------------------------------

local IBM = 0x1014

-- Where a link ends: the address of a GPU, "switch", or nil for what is neither (a CPU, a GPU that we do not see).
local function ending(facts, link, known)
  local pci = paths.address(link.pci)
  if link.type == "switch" then return "switch" end
  if link.type == "ibmnpu" then return nil end
  if known[pci or ""] then return pci end
  if not pci then return "switch" end -- hidden by a VM: only a switch is (facts/topology.md section 2)
  if link.type == "gpu" then return nil end
  local at = facts.by_pci[pci]
  if not at then return nil end
  return math.floor(at.class / 2 ^ 8) == 0x0680 and at.vendor ~= IBM and "switch" or nil
end

-- How many links of a GPU end at each peer; nil when it cannot be asked.
local function count(facts, gpu, known)
  if not gpu.facts.nvlinks then return nil end
  local out = { switch = 0 }
  for _, link in ipairs(gpu.facts.nvlinks) do
    local to = ending(facts, link, known)
    if to and to == gpu.device.pci then
      facts.doubt("nvlink_self", ("NVLink %d of %s ends at itself: not counted"):format(link.link, gpu.device.uid))
    elseif to then
      out[to] = (out[to] or 0) + 1
    end
  end
  return out
end

-- Both ends must say the same; the smaller number counts where they do not.
local function between(facts, a, b)
  if not a.ends or not b.ends then return nil end
  local there, back = a.ends[b.device.pci or ""] or 0, b.ends[a.device.pci or ""] or 0
  if there ~= back then
    facts.doubt("nvlink_asymmetric", ("%s has %d NVLinks to %s, and %d the other way: the smaller number counts"):format(a.device.uid, there,
      b.device.uid, back))
  end
  local direct, switched = math.min(there, back), math.min(a.ends.switch, b.ends.switch)
  if direct > 0 then return direct, nil end
  if switched > 0 then return switched, true end
  return 0, nil
end

-- -- Pairs -----------------------------------------------------------------------------------------------------------

local function access(pair)
  if not pair or not pair.read and not pair.write then return nil end
  return { read = pair.read, write = pair.write }
end

local function differs(a, b) return a and b and (a.read ~= b.read or a.write ~= b.write) end

local function pcie_word(facts, a, b, pair)
  if pair and pair.level then return pair.level end
  local left, right = facts.by_pci[a.device.pci or ""] or {}, facts.by_pci[b.device.pci or ""] or {}
  return paths.word({ path = left.path, numa = a.device.numa }, { path = right.path, numa = b.device.numa })
end

local function link(facts, a, b, there, back)
  local nvlinks, via_switch = between(facts, a, b)
  local pcie = pcie_word(facts, a, b, there)
  local p2p, p2p_ba = access(there), access(back)
  local kind = nvlinks and nvlinks > 0 and "nvlink" or pcie
  if not kind then return nil end
  return { a = a.device.uid, b = b.device.uid, kind = kind, pcie = pcie, nvlinks = nvlinks ~= 0 and nvlinks or nil, via_switch = via_switch, p2p = p2p,
    p2p_ba = differs(p2p, p2p_ba) and p2p_ba or nil, source = "stated" }
end

--- Add a link for each pair of GPUs.
---@param kept {device: table, facts: table, place: integer}[]
function M.add(record, facts, nvml, kept)
  local known, pairs_of = {}, {}
  for _, p in ipairs(nvml.pairs) do pairs_of[p.a * 1000 + p.b] = p end
  for _, gpu in ipairs(kept) do
    if gpu.device.pci then known[gpu.device.pci] = true end
  end
  for _, gpu in ipairs(kept) do
    gpu.ends = count(facts, gpu, known)
    gpu.device.c2c = gpu.facts.c2c_links and { gb_s = gpu.facts.c2c_gb_s } or nil -- until add_c2c
  end
  for i, a in ipairs(kept) do
    for j = i + 1, #kept do
      local b = kept[j]
      local l = link(facts, a, b, pairs_of[a.place * 1000 + b.place], pairs_of[b.place * 1000 + a.place])
      if l then record.links[#record.links + 1] = l end
    end
  end
end

--- Add the PCIe distance of each pair where there is no NVML to ask.
function M.add_pcie(record, facts)
  local gpus = {}
  for _, d in ipairs(record.devices) do
    if d.kind == "gpu" then gpus[#gpus + 1] = { device = d, facts = {} } end
  end
  for i, a in ipairs(gpus) do
    for j = i + 1, #gpus do
      local l = link(facts, a, gpus[j])
      if l then record.links[#record.links + 1] = l end
    end
  end
end

--- Add the chip-to-chip links of GPUs to the CPU device of their node.
function M.add_c2c(record)
  local nodes = {}
  for _, d in ipairs(record.devices) do
    if d.kind == "cpu" then nodes[d.numa] = d end
  end
  for _, d in ipairs(record.devices) do
    local cpu = d.c2c and d.numa and nodes[d.numa]
    if cpu then
      record.links[#record.links + 1] = { a = d.uid, b = cpu.uid, kind = "c2c", gb_s = d.c2c.gb_s, source = "stated" }
    end
    d.c2c = nil
  end
end

return M
