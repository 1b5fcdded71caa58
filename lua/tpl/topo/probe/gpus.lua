-- SPDX-License-Identifier: Apache-2.0
--- NVIDIA GPUs and their MIG slices as NVML tells of them; where it does not answer, what the kernel knows of the cards.
local cpuset = require("tpl.topo.cpuset")
local json = require("tpl.json")
local links = require("tpl.topo.probe.gpu_links")
local paths = require("tpl.topo.probe.paths")

local M = {}

local fabric_states = { [0] = "not supported", "not started", "in progress", "completed" }
local fabric_health = { "healthy", "unhealthy", "limited capacity" }

-- -- One GPU ---------------------------------------------------------------------------------------------------------

local function mode(x) return x and (x == 1 and "on" or "off") or nil end

-- Bits of the health mask that say "bad" (facts/topology.md section 2): four fields of two bits where 1 is bad, and the configuration, where 1 is fine.
local function mask_is_bad(mask)
  for shift = 0, 6, 2 do
    if math.floor(mask / 2 ^ shift) % 4 == 1 then return true end
  end
  return math.floor(mask / 2 ^ 8) % 16 > 1
end

local function fabric(f)
  if not f or f.state == 0 then return nil end -- no fabric to be a member of
  local health = f.summary and fabric_health[f.summary] or (f.mask and f.mask > 0 and (mask_is_bad(f.mask) and "unhealthy" or "healthy")) or nil
  local known = f.state == 3 -- the rest is valid only then
  local cluster = known and f.cluster and f.cluster:find("[^0]") and f.cluster:gsub("^(%x%x%x%x%x%x%x%x)(%x%x%x%x)(%x%x%x%x)(%x%x%x%x)", "%1-%2-%3-%4-")
  return { state = fabric_states[f.state] or tostring(f.state), status = known and f.status:lower():gsub("_", " ") or nil, health = health,
    cluster = cluster or nil, clique = cluster and f.clique or nil }
end

local function health(g)
  if not g.remapped and not g.ecc then return nil end
  local remapped = g.remapped and { uncorrectable = g.remapped, pending = g.remap_pending == 1, failure = g.remap_failed == 1 } or nil
  return { remapped = remapped, ecc = g.ecc }
end

-- Node and cores: the kernel's word, else NVML's, else the only node there is.
local function near(facts, g, pci)
  local at = pci and facts.by_pci[pci]
  local nodes = cpuset.parse(g.nodes)
  local numa = at and at.numa or nodes and #nodes == 1 and nodes[1] or nil
  if not numa and #facts.nodes == 1 then numa = facts.nodes[1].id end
  return numa, at and at.numa and cpuset.normal(at.cpus) or cpuset.normal(g.cpus) or at and cpuset.normal(at.cpus)
end

local function pcie(facts, g, name)
  if not g.gen_max and not g.width_now then return nil end
  if g.width_now and g.width_max and g.width_now < g.width_max then
    facts.doubt("pcie_width", ("%s uses %d of %d PCIe lanes: a riser, a slot of fewer lanes, or a bad contact"):format(name, g.width_now, g.width_max))
  end
  return { gen = g.gen_max, width = g.width_now or g.width_max }
end

local function refuse(device, code, message)
  device.usable, device.why_not = false, device.why_not or {}
  table.insert(device.why_not, { code = code, message = message })
end

local bad_codes = {
  GPU_IS_LOST = { "lost", "the GPU has fallen off the bus" }, RESET_REQUIRED = { "reset_required", "the GPU needs a reset" },
}

local function device(facts, g)
  local pci = paths.address(g.pci)
  local uid = g.uuid or "GPU" .. g.index
  local numa, cpus = near(facts, g, pci)
  local d = { uid = uid, kind = "gpu", host = facts.host, index = g.index, uuid = g.uuid, pci = pci, name = g.name, sm = g.sm, vbios = g.vbios,
    numa = numa, cpus = cpus, mem_bytes = g.mem_bytes, free_bytes = g.free_bytes, fabric = fabric(g.fabric), pcie = pcie(facts, g, uid),
    mig = { mode = mode(g.mig_now) or "off", pending = mode(g.mig_pending) }, health = health(g) }
  if g.pids or g.used_bytes then d.busy = { pids = json.array(g.pids or {}), used_bytes = g.used_bytes } end
  local bad = bad_codes[g.bad or g.open]
  if bad then refuse(d, bad[1], bad[2]) elseif g.open then refuse(d, "not_opened", "NVML says " .. g.open) end
  return d
end

local function slice(facts, parent, s, i)
  local profile = s.name and s.name:match("MIG%s+(%S+)$") or s.gpu_slices and s.mem_bytes
    and ("%dg.%dgb"):format(s.gpu_slices, math.ceil(s.mem_bytes / 2 ^ 30)) or nil
  return { uid = s.uuid or ("%s:mig%d"):format(parent.uid, i), kind = "mig", host = facts.host, index = i, uuid = s.uuid, pci = parent.pci,
    name = parent.name, sm = parent.sm, vbios = parent.vbios, numa = parent.numa, cpus = parent.cpus, mem_bytes = s.mem_bytes,
    free_bytes = s.free_bytes, mig = { mode = "on", parent = parent.uid, profile = profile },
    busy = s.used_bytes and { pids = json.array {}, used_bytes = s.used_bytes } or nil }
end

-- -- What else answers: nothing, or the kernel only ------------------------------------------------------------------

local function is_gpu(p) return p.vendor == 0x10de and math.floor(p.class / 2 ^ 16) == 0x03 end

local init_hints = {
  DRIVER_NOT_LOADED = "the NVIDIA driver is not loaded (modprobe nvidia)", NO_PERMISSION = "this user may not open the GPUs",
  LIB_RM_VERSION_MISMATCH = "the driver was updated and not loaded again: reboot, or reload its modules",
}

-- /proc/driver/nvidia/gpus/<address>/information, written by the driver's module.
local function information(facts, pci)
  local text = require("tpl.core").sys.read_file(("%s/proc/driver/nvidia/gpus/%s/information"):format(facts.root or "", pci), 65536)
  local function field(key)
    local value = text and text:match(key .. ":%s*([^\n]-)%s*\n")
    return value and not value:find("?", 1, true) and value or nil
  end
  return { name = field("Model"), uuid = field("GPU UUID"), vbios = field("Video BIOS") }
end

local function from_kernel(record, facts, why)
  local n = 0
  for _, p in ipairs(facts.pcis) do
    if is_gpu(p) then
      local known = information(facts, p.pci)
      local numa, cpus = near(facts, {}, p.pci)
      local d = { uid = known.uuid or "GPU" .. n, kind = "gpu", host = facts.host, index = n, uuid = known.uuid, pci = p.pci, name = known.name,
        vbios = known.vbios, numa = numa, cpus = cpus }
      if why then refuse(d, "no_driver", why) end
      record.devices[#record.devices + 1] = d
      n = n + 1
    end
  end
  return n
end

-- Says what is known when NVML gave nothing; true when that is so.
local function without_nvml(record, facts, nvml)
  if nvml and nvml.loaded and nvml.init == "SUCCESS" then return false end
  local why = not nvml and "a recorded tree says nothing of memory, links and health of GPUs"
    or not nvml.loaded and "NVML cannot be loaded: " .. (nvml.message or "")
    or ("NVML says %s%s"):format(nvml.init, init_hints[nvml.init] and ": " .. init_hints[nvml.init] or "")
  local n = from_kernel(record, facts, nvml and why)
  links.add_pcie(record, facts)
  local asked = nvml and (nvml.loaded or require("tpl.find").env "TPL_NVML")
  if n > 0 or asked then facts.doubt(nvml and nvml.loaded and "nvml_init" or "nvml_missing", why) end
  return true
end

local needed = { "nvmlDeviceGetUUID", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetMigMode", "nvmlDeviceGetGpuFabricInfoV",
  "nvmlDeviceGetTopologyCommonAncestor" }

local function doubt_old_library(facts, nvml)
  local lacks, missing = {}, " " .. (nvml.missing or "") .. " "
  for _, name in ipairs(needed) do
    if missing:find(" " .. name .. " ", 1, true) then lacks[#lacks + 1] = name end
  end
  if lacks[1] then facts.doubt("nvml_old", "this driver's library lacks " .. table.concat(lacks, ", ") .. ": what they tell is unknown") end
end

-- -- All -------------------------------------------------------------------------------------------------------------

-- Devices that this container or user may not open are somebody else's.
local hidden = { NO_PERMISSION = true, OPERATING_SYSTEM = true }

--- Add GPUs, slices and the links between GPUs.
---@param nvml table?  what core.topo.nvml gave; nil: it was not asked
function M.add(record, facts, nvml)
  if without_nvml(record, facts, nvml) then return end
  local host, kept = record.hosts[1], {}
  host.driver = nvml.driver
  host.cuda = nvml.cuda and ("%d.%d"):format(math.floor(nvml.cuda / 1000), math.floor(nvml.cuda % 1000 / 10)) or nil
  doubt_old_library(facts, nvml)
  for i, g in ipairs(nvml.gpus) do
    if hidden[g.open] then
      facts.doubt("gpu_hidden", ("GPU %d may not be opened (%s): left out"):format(g.index, g.open))
    else
      local d = device(facts, g)
      kept[#kept + 1] = { device = d, facts = g, place = i }
      record.devices[#record.devices + 1] = d
      for k, s in ipairs(g.slices or {}) do record.devices[#record.devices + 1] = slice(facts, d, s, k - 1) end
    end
  end
  links.add(record, facts, nvml, kept)
end

--- Add the links of GPUs to the CPU they are soldered to (Grace); after the CPU devices.
function M.add_c2c(record) links.add_c2c(record) end

return M
