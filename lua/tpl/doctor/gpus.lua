-- SPDX-License-Identifier: Apache-2.0
--- Join what the topology, the driver's proc files and sysfs say of the same GPUs.
local pci_of = require("tpl.doctor.pci")

local M = {}

local GPU_DIR = "proc/driver/nvidia/gpus"

--- GPUs as the driver's proc files and sysfs know them, in PCI order.
---@param host tpl.doctor.Host
---@param pci table?   tpl.doctor.pci.read
---@return table[]
function M.of_system(host, pci)
  local by, list = {}, {}
  local function add(address)
    if not by[address] then
      by[address] = { pci = address, kind = "gpu" }
      list[#list + 1] = by[address]
    end
    return by[address]
  end
  for _, d in ipairs(pci_of.gpus(pci)) do
    local gpu = add(d.pci)
    gpu.sysfs, gpu.numa, gpu.cpus = d, d.numa, d.cpus
  end
  for _, name in ipairs(host:list(GPU_DIR) or {}) do
    local address = pci_of.address(name)
    if address then
      local gpu, file = add(address), GPU_DIR .. "/" .. name .. "/information"
      local uuid = host:field(file, "GPU UUID")
      gpu.in_driver = true
      gpu.name, gpu.vbios = host:field(file, "Model"), host:field(file, "Video BIOS")
      gpu.uuid = uuid and uuid:find("^GPU%-%x") and uuid or nil
      gpu.minor = tonumber(host:field(file, "Device Minor"))
      -- The driver lists the slices (GPU instances) of a card that is cut, by its minor number.
      for _, part in ipairs(host:list("proc/driver/nvidia/capabilities/gpu" .. tostring(gpu.minor) .. "/mig") or {}) do
        if part:find("^gi%d") then gpu.mig = { mode = "on" } end
      end
    end
  end
  table.sort(list, function(a, b) return a.pci < b.pci end)
  return list
end

local function find_match(device, list, index)
  local address = pci_of.address(device.pci)
  for _, gpu in ipairs(list) do
    if address and gpu.pci == address then return gpu end
  end
  for _, gpu in ipairs(list) do
    if device.uuid and gpu.uuid == device.uuid then return gpu end
  end
  if not address and not device.uuid then return list[(device.index or index) + 1] end
end

--- Join the topology's devices with the system's; each alone is enough. The second result: those that the topology lacks.
---@param topo table?
---@param system table[]
---@return table[] gpus
---@return table[] missed
function M.join(topo, system)
  local out, taken = {}, {}
  for _, device in ipairs(topo and topo.devices or {}) do
    if device.kind ~= "cpu" then
      local gpu = {}
      for key, value in pairs(device) do gpu[key] = value end
      gpu.kind = gpu.kind or "gpu"
      local same = gpu.kind == "gpu" and find_match(device, system, #out) or nil
      for key, value in pairs(same or {}) do
        if gpu[key] == nil then gpu[key] = value end
      end
      if same then taken[same] = true end
      out[#out + 1] = gpu
    end
  end
  local has_topo = #out > 0
  local missed = {}
  for _, gpu in ipairs(system) do
    if not has_topo then out[#out + 1] = gpu elseif not taken[gpu] then missed[#missed + 1] = gpu end
  end
  for i, gpu in ipairs(out) do
    gpu.index = gpu.index or i - 1
    gpu.uid = gpu.uid or gpu.uuid or "GPU" .. gpu.index
    gpu.title = "GPU " .. gpu.index .. (gpu.pci and " (" .. gpu.pci .. ")" or "")
  end
  return out, missed
end

return M
