-- SPDX-License-Identifier: Apache-2.0
--- Read CUDA_VISIBLE_DEVICES as CUDA does: devices that it hides cannot be used by this process, whatever NVML shows.
-- Rules: CUDA C++ Programming Guide, "CUDA Environment Variables": a list of indices, or of UUIDs that may be cut short as long as they name one device;
-- the first entry that names none ends the list; MIG slices by their UUID, and one slice at most is seen. A device twice makes the whole list invalid.
-- Indices are CUDA's, not NVML's: by default the fastest GPU is 0 and the order of the rest is not promised, with CUDA_DEVICE_ORDER=PCI_BUS_ID they
-- follow the bus. GPUs of one model are taken to follow the bus either way; mixed models are asked of the driver, or refused.
-- NVIDIA_VISIBLE_DEVICES is another matter: a container runtime reads it when it starts a container, so inside one NVML shows its effect already.
local err = require("tpl.err")
local find = require("tpl.find")
local paths = require("tpl.topo.probe.paths")

local M = {}

local NAME = "CUDA_VISIBLE_DEVICES"

--- Ask CUDA's driver which GPUs it shows, as addresses in its order; nil without one. Replaced in specs.
function M.driver() return require("tpl.core").topo.cuda_order() end

-- -- Order -----------------------------------------------------------------------------------------------------------

local function by_bus(a, b)
  if a.pci and b.pci and a.pci ~= b.pci then
    local da, db = tonumber(a.pci:match("^%x+"), 16), tonumber(b.pci:match("^%x+"), 16)
    if da ~= db then return da < db end
    return a.pci < b.pci
  end
  return a.index < b.index
end

local function one_model(gpus)
  for _, g in ipairs(gpus) do
    if g.name ~= gpus[1].name or g.sm ~= gpus[1].sm or g.mem_bytes ~= gpus[1].mem_bytes then return false end
  end
  return true
end

-- What CUDA does not count: a GPU that is lost, or that has no driver.
local gone = { lost = true, reset_required = true, not_opened = true, no_driver = true }

local function is_gone(device)
  for _, reason in ipairs(device.why_not or {}) do
    if gone[reason.code] then return true end
  end
  return false
end

local function whole_gpus(record)
  local out = {}
  for _, d in ipairs(record.devices) do
    if d.kind == "gpu" and not is_gone(d) then out[#out + 1] = d end
  end
  table.sort(out, by_bus)
  return out
end

-- The whole list as CUDA's driver sees it, since it has read the variable itself; nil without one, or when it shows other GPUs than NVML.
local function asked_of_driver(gpus)
  local out = {}
  for _, bus_id in ipairs(M.driver() or { "none" }) do
    local address, hit = paths.address(bus_id), nil
    for _, g in ipairs(gpus) do
      if g.pci == address then hit = g end
    end
    if not hit then return nil end
    out[#out + 1] = hit
  end
  return out
end

-- GPUs by CUDA's index, from 0; or the list that CUDA makes of the variable.
local function in_order(record, order)
  local gpus, out = whole_gpus(record), {}
  if order ~= "PCI_BUS_ID" and not one_model(gpus) then
    local list = asked_of_driver(gpus)
    if list then return nil, list end
    err.throw { code = "cuda_order", exit = 2, where = NAME,
      message = "has indices, but the GPUs are of several models: CUDA numbers the fastest first and does not promise the order of the rest",
      hint = "CUDA_DEVICE_ORDER=PCI_BUS_ID, or UUIDs in place of indices" }
  end
  for i, g in ipairs(gpus) do out[i - 1] = g end
  return out
end

-- -- The list --------------------------------------------------------------------------------------------------------

local function entries(text)
  local out = {}
  for entry in (text .. ","):gmatch("([^,]*),") do out[#out + 1] = entry:match("^%s*(.-)%s*$") end
  return out
end

-- The device that a UUID, or the start of one, names; nil for none and for several.
local function named(record, entry)
  local want, hit = entry:lower(), nil
  local kind = want:find("^mig%-") and "mig" or "gpu"
  if #want <= 4 then return nil end
  for _, d in ipairs(record.devices) do
    local uuid = d.kind == kind and (d.uuid or d.uid):lower() or nil
    if uuid == want then return d end
    if uuid and uuid:sub(1, #want) == want then
      if hit then return nil end
      hit = d
    end
  end
  return hit
end

-- "MIG-GPU-<uuid>/<gpu instance>/<compute instance>", the form before driver R470; records do not keep instance numbers.
local function refuse_old_mig(entry)
  if not entry:upper():find("^MIG%-GPU%-") then return end
  err.throw { code = "unsupported", where = NAME, message = ("'%s' is the form of MIG names before driver R470"):format(entry),
    hint = "the MIG-<uuid> of nvidia-smi -L" }
end

local function first_slice(record, parent)
  for _, d in ipairs(record.devices) do
    if d.kind == "mig" and type(d.mig) == "table" and d.mig.parent == parent.uid then return d end
  end
end

--- List the devices that a value makes visible, in CUDA's order.
---@param record table       with devices; not changed
---@param text string        the variable's value, "" too
---@param order string?      the value of CUDA_DEVICE_ORDER
---@return table[] devices   of record.devices; whole GPUs, or one MIG slice
function M.devices(record, text, order)
  local out, seen, numbered = {}, {}, nil
  for _, entry in ipairs(entries(text)) do
    local d
    refuse_old_mig(entry)
    if entry:find("^%+?%d+$") then
      local list
      if not numbered then
        numbered, list = in_order(record, order)
        if list then return list end
      end
      d = numbered[tonumber(entry)]
    elseif entry:upper():find("^GPU%-") or entry:upper():find("^MIG%-") then
      d = named(record, entry)
    end
    if not d then break end
    if seen[d] then return {} end
    seen[d], out[#out + 1] = true, d
  end
  for _, d in ipairs(out) do -- CUDA sees one slice, and with a slice no other device
    local slice = d.kind == "mig" and d or nil
    if slice then return { slice } end
  end
  return out
end

--- Mark what the value hides as not usable. A GPU in MIG mode shows its first slice.
---@param record table   changed
---@param text string
---@param order string?
function M.apply(record, text, order)
  local visible = {}
  for _, d in ipairs(M.devices(record, text, order)) do
    visible[d] = true
    local slice = d.kind == "gpu" and type(d.mig) == "table" and d.mig.mode == "on" and first_slice(record, d)
    if slice then visible[slice] = true end
  end
  for _, d in ipairs(record.devices) do
    if d.kind ~= "cpu" and not visible[d] then
      d.usable, d.why_not = false, d.why_not or {}
      table.insert(d.why_not, { code = "not_visible", message = ("%s=%s hides it"):format(NAME, text) })
    end
  end
end

--- Do so with this process's environment; nothing when the variable is not set.
function M.apply_environment(record)
  local text = find.env(NAME)
  if not text and not require("tpl.core").sys.env_is_set(NAME) then return end
  M.apply(record, text or "", find.env "CUDA_DEVICE_ORDER")
end

return M
