-- SPDX-License-Identifier: Apache-2.0
--- Read `nvidia-smi -q`, whole or fragments that grep left: identity, memory, MIG mode, fabric, health, processes of each GPU.
--- A fragment without its "GPU 00000000:0F:00.0" line is given an index by the -i of the command, else by its order; both are doubts.
---
--- Contents: lines to keys - one value each (readers) - blocks of one GPU - which device a block is - fill
local draft_of = require("tpl.topo.import.draft")

local M = {}

-- -- Values ----------------------------------------------------------------------------------------------------------

local function known(value) return value ~= "" and value ~= "N/A" and value ~= "[N/A]" and value ~= "Unknown Error" and value or nil end

local function bytes(value)
  local n, unit = value:match("^(%d+) ([KMG]iB)$")
  return n and tonumber(n) * ({ KiB = 2 ^ 10, MiB = 2 ^ 20, GiB = 2 ^ 30 })[unit] or nil
end

local function word(value) return known(value) and (value:lower():gsub("%s+", "_")) or nil end

local switch = { Enabled = "on", Disabled = "off" }
local yes = { Yes = true, No = false, True = true, False = false }

local function sub(block, name)
  block[name] = block[name] or {}
  return block[name]
end

-- Readers by the end of a key's path; each stores into the block. The first value counts where a key stands twice.
local function first(t, k, v)
  if v ~= nil and t[k] == nil then t[k] = v end
end

local readers = {
  ["Product Name"] = function(b, v) first(b, "name", known(v)) end,
  ["GPU UUID"] = function(b, v) first(b, "uuid", known(v)) end,
  ["VBIOS Version"] = function(b, v) first(b, "vbios", known(v)) end,
  ["Minor Number"] = function(b, v) first(b, "minor", tonumber(v)) end,
  ["MIG Mode/Current"] = function(b, v) first(sub(b, "mig"), "mode", switch[v]) end,
  ["MIG Mode/Pending"] = function(b, v) first(sub(b, "mig"), "pending", switch[v]) end,
  ["PCI/Bus Id"] = function(b, v) first(b, "pci", draft_of.pci(v)) end,
  ["PCIe Generation/Max"] = function(b, v) first(sub(b, "pcie"), "gen", tonumber(v)) end,
  ["Link Width/Current"] = function(b, v) sub(b, "pcie").width = tonumber(v:match("^(%d+)x$")) or sub(b, "pcie").width end,
  ["Link Width/Max"] = function(b, v) first(sub(b, "pcie"), "width", tonumber(v:match("^(%d+)x$"))) end,
  ["FB Memory Usage/Total"] = function(b, v) first(b, "mem_bytes", bytes(v)) end,
  ["FB Memory Usage/Free"] = function(b, v) first(b, "free_bytes", bytes(v)) end,
  ["FB Memory Usage/Used"] = function(b, v) first(b, "used_bytes", bytes(v)) end,
  ["Fabric/State"] = function(b, v) first(sub(b, "fabric"), "state", word(v)) end,
  ["Fabric/Status"] = function(b, v) first(sub(b, "fabric"), "status", word(v)) end,
  ["Fabric/CliqueId"] = function(b, v) first(sub(b, "fabric"), "clique", tonumber(v)) end,
  ["Fabric/ClusterUUID"] = function(b, v) first(sub(b, "fabric"), "cluster", known(v) and v:lower()) end,
  ["Health/Summary"] = function(b, v) first(sub(b, "fabric"), "health", word(v)) end,
  ["Health/Bandwidth"] = function(b, v) first(b, "bandwidth", word(v)) end,
  ["Health/Route Unhealthy"] = function(b, v) b.unhealthy = b.unhealthy or yes[v] end,
  ["Health/Incorrect Configuration"] = function(b, v) b.unhealthy = b.unhealthy or (known(v) ~= nil and v ~= "None") end,
  ["Remapped Rows/Pending"] = function(b, v) first(sub(b, "remapped"), "pending", yes[v]) end,
  ["Remapped Rows/Remapping Failure Occurred"] = function(b, v) first(sub(b, "remapped"), "failure", yes[v]) end,
  ["GPU Reset Status/Reset Required"] = function(b, v) first(b, "reset_required", yes[v] or nil) end,
  ["Process ID"] = function(b, v) table.insert(sub(b, "pids"), tonumber(v)) end,
  ["Processes"] = function(b, v) if v == "None" then sub(b, "pids") end end,
  ["Driver Version"] = function(b, v) first(b, "driver", known(v)) end,
  ["CUDA Version"] = function(b, v) first(b, "cuda", known(v)) end,
  ["Attached GPUs"] = function(b, v) first(b, "attached", tonumber(v)) end,
}

-- Uncorrected memory errors since the driver was loaded; older drivers print them per kind, newer ones by memory.
local function ecc(block, path, value)
  if path:find("Volatile/", 1, true) and (path:find("Uncorrectable[%w %-]*$") or path:find("Double Bit/Total$")) and tonumber(value) then
    block.ecc = (block.ecc or 0) + tonumber(value)
  end
end

-- MIG slices stand inside the GPU's block, with keys of the same names.
local function slice_value(block, path, value)
  if not block then return end
  block.slices = block.slices or {}
  local slice = block.slices[#block.slices]
  if path:find("MIG Device/Index$") then
    block.slices[#block.slices + 1] = { index = tonumber(value) }
  elseif slice and path:find("FB Memory Usage/Total$") then
    slice.mem_bytes = bytes(value)
  elseif slice and path:find("FB Memory Usage/Free$") then
    slice.free_bytes = bytes(value)
  elseif slice and path:find("/UUID$") then
    slice.uuid = known(value)
  end
end

-- -- Lines -----------------------------------------------------------------------------------------------------------

-- The path of sections above a line, by indentation.
local function enter(stack, indent, name)
  while stack[1] and stack[#stack].indent >= indent do stack[#stack] = nil end
  if #stack < 32 then stack[#stack + 1] = { indent = indent, name = name } end
  local names = {}
  for i, s in ipairs(stack) do names[i] = s.name end
  return table.concat(names, "/")
end

local function reader_of(path)
  local last, above = path:match("([^/]+)$"), path:match("([^/]+/[^/]+)$")
  return above and readers[above] or readers[last], above and readers[above] and above or last
end

local function split(text)
  local indent, key, value = text:match("^(%s*)(%S[^:]-)%s*:%s+(.-)%s*$")
  if not key then indent, key, value = text:match("^(%s*)(%S[^:]-)%s+:%s*(.-)%s*$") end
  if key then return #indent, key, value end
  indent, key = text:match("^(%s*)(%u[%w ]-)%s*$")
  if key then return #indent, key, nil end
  return nil
end

local lost_line = "Unable to determine the device handle for [Gg][Pp][Uu]%d*:? ?(%x+:%x+:%x+%.%x):"

-- Collect the blocks: one per GPU, the first one for what stands above any.
local function collect(lines)
  local state = { blocks = {}, stack = {}, top = {}, lost = {} }
  local block
  local function open(fields)
    block = fields
    block.seen = {}
    state.blocks[#state.blocks + 1] = block
  end
  for _, line in ipairs(lines) do
    local bus = line.text:match("^%s*GPU (%x+:%x%x:%x%x%.%x)%s*$")
    local command = line.text:match("nvidia%-smi%s.*%-q.*%-i[= ]?(%d+)") or line.text:match("nvidia%-smi%s.*%-i[= ]?(%d+).*%-q")
    local lost = line.text:match(lost_line)
    if lost then
      state.lost[#state.lost + 1] = { pci = draft_of.pci(lost), no = line.no }
    elseif command then
      state.command, block = tonumber(command), nil
    elseif bus then
      state.stack = {}
      open { pci = draft_of.pci(bus), no = line.no, headed = true }
    elseif #line.text < 512 then
      local indent, key, value = split(line.text)
      local path = indent and enter(state.stack, indent, key)
      local reader, id = nil, nil
      if value and path:find("MIG Device/", 1, true) then
        slice_value(block, path, value)
      elseif value then
        reader, id = reader_of(path)
      end
      if reader and (id == "Driver Version" or id == "CUDA Version" or id == "Attached GPUs") then
        reader(state.top, value)
      elseif reader then
        local repeats = block and block.seen[id] and not block.headed and id ~= "Process ID" and not id:find("^Health")
        if not block or repeats then
          open { no = line.no, index = state.command }
          state.command = nil
        end
        block.seen[id] = true
        reader(block, value)
      elseif value and block then
        ecc(block, path, value)
      end
    end
  end
  return state
end

-- -- Devices ---------------------------------------------------------------------------------------------------------

-- The device that a block is about; blocks of a whole -q come in the order of the indices.
local function device_of(draft, host, block, position, state)
  local device = host:find("uuid", block.uuid) or host:find("pci", block.pci)
  if device then return device end
  if block.index then return host:device(block.index) end
  local gpus = host:gpus()
  local fits = #gpus == 0 or #gpus == #state.blocks or state.grown
  if fits then
    if #gpus == 0 then state.grown = true end
    local index = state.grown and position - 1 or gpus[position].index
    if not block.headed or not state.grown or state.top.attached ~= #state.blocks then
      draft:doubt(block.no, "index_assumed", ("nvidia-smi -q prints no index: the %s GPU of it is taken for GPU%d"):format(
        ({ "first", "second", "third" })[position] or position .. "th", index or position - 1))
    end
    return index and host:device(index) or gpus[position]
  end
  draft:doubt(block.no, "index_unknown",
    "nvidia-smi -q prints no index, and the number of its GPUs is another one: added as a device without an index")
  return host:device(nil)
end

local function fabric_of(block)
  local f = block.fabric
  if not f or not (f.state or f.status or f.cluster) then return nil end
  if not f.health then
    if block.unhealthy then
      f.health = "unhealthy"
    elseif block.bandwidth == "degraded" then
      f.health = "degraded"
    elseif block.bandwidth == "full" then
      f.health = "healthy"
    end
  end
  return f
end

local function add_slices(host, device, block)
  for _, s in ipairs(block.slices or {}) do
    local slice
    for _, d in ipairs(host.devices) do
      if d.parent == device and d.index == s.index then slice = d end
    end
    if not slice then
      slice = host:device(nil, "mig")
      slice.index, slice.parent, slice.name, slice.mig = s.index, device, device.name, {}
    end
    host:identify(slice, s.uuid, block.no)
    slice.mem_bytes, slice.free_bytes = s.mem_bytes, s.free_bytes
  end
end

local function apply(host, device, block)
  host:identify(device, block.uuid, block.no)
  for _, k in ipairs { "name", "vbios", "pci", "mem_bytes", "free_bytes", "pcie" } do
    if device[k] == nil then device[k] = block[k] end
  end
  if block.mig and (block.mig.mode or block.mig.pending) then
    device.mig = device.mig or {}
    device.mig.mode, device.mig.pending = block.mig.mode or device.mig.mode, block.mig.pending
  end
  device.fabric = device.fabric or fabric_of(block)
  if block.pids or block.used_bytes then device.busy = { pids = block.pids, used_bytes = block.used_bytes } end
  if block.remapped or block.ecc or block.reset_required then
    device.health = device.health or {}
    device.health.remapped, device.health.ecc, device.health.reset_required = block.remapped, block.ecc, block.reset_required
  end
  add_slices(host, device, block)
end

local function add_lost(draft, host, lost)
  for _, l in ipairs(lost) do
    local device = host:find("pci", l.pci) or host:device(nil)
    device.pci = l.pci
    device.health = device.health or {}
    device.health.lost = true
    draft:doubt(l.no, "gpu_lost", ("the GPU at %s does not answer"):format(l.pci))
  end
end

-- -- Public ----------------------------------------------------------------------------------------------------------

--- Write the GPUs of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  local state = collect(lines)
  if #state.blocks == 0 and #state.lost == 0 then return end
  draft:found("smi-query")
  host.facts.driver, host.facts.cuda = host.facts.driver or state.top.driver, host.facts.cuda or state.top.cuda
  for i, block in ipairs(state.blocks) do apply(host, device_of(draft, host, block, i, state), block) end
  add_lost(draft, host, state.lost)
  if state.top.attached and state.top.attached ~= #state.blocks then
    draft:doubt(nil, "gpus_missing", ("nvidia-smi -q counts %d GPUs, the text has %d"):format(state.top.attached, #state.blocks))
  end
end

return M
