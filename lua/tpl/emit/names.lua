-- SPDX-License-Identifier: Apache-2.0
--- Name devices in a way that a script finds again: by UUID, else by PCI address, else by index, which is the least.
local placement = require("tpl.emit.placement")

local M = {}

local known = placement.known

-- NVML's form of a PCI address: eight digits of domain, upper case.
local function smi_pci(pci)
  local domain, rest = pci:match("^(%x+):(%x+:%x+%.%x)$")
  return domain and (("0"):rep(8 - #domain) .. domain .. ":" .. rest):upper()
end

local key_of = {
  uuid = function(d) return known(d.uuid) end,
  pci = function(d) return known(d.pci) and smi_pci(d.pci) end,
  index = function(d) return known(d.index) or tonumber(tostring(d.uid):match("GPU(%d+)$")) end,
}

-- Whether every device has such a name that no other has. Hosts of a cluster have the same indices, and the script asks which host it is.
local function is_naming(p, how)
  local seen = {}
  for _, replica in ipairs(p.replicas) do
    for _, d in ipairs(replica.devices) do
      local key = key_of[how](d)
      if not key or (how ~= "uuid" and d.kind == "mig") then return false end
      if how == "index" then key = (known(d.host) or "host0") .. "/" .. key end
      if seen[key] and seen[key] ~= d.uid then return false end
      seen[key] = d.uid
    end
  end
  return true
end

--- Choose how all devices of a placement can be named, best first: "uuid", "pci", "index"; nil where none works.
---@param p tpl.emit.Placement
---@return string?
function M.naming(p)
  for _, how in ipairs { "uuid", "pci", "index" } do
    if is_naming(p, how) then return how end
  end
end

--- List the names of devices.
---@param devices table[]
---@param how "uuid"|"pci"|"index"
---@return string[]
function M.keys(devices, how)
  local out = {}
  for i, d in ipairs(devices) do out[i] = tostring(key_of[how](d)) end
  return out
end

--- Name a device for people: the name that holds, and where it sits.
function M.text(d)
  local parts = {}
  if known(d.pci) then parts[#parts + 1] = d.pci end
  if known(d.numa) then parts[#parts + 1] = "NUMA " .. d.numa end
  local name = known(d.uuid) or d.uid
  return #parts > 0 and ("%s (%s)"):format(name, table.concat(parts, ", ")) or tostring(name)
end

return M
