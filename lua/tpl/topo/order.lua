-- SPDX-License-Identifier: Apache-2.0
--- Put devices in an order that does not depend on how the input listed them: host, PCI address, UUID, uid.
-- Ties of the ranking end here, so that the same cards are chosen after their indices changed.
local M = {}

local function padded(text)
  return (tostring(text or ""):gsub("%d+", function(digits) return ("%012d"):format(tonumber(digits) or 0) end))
end

--- Give the text by which a device is sorted. Numbers compare as numbers ("GPU2" before "GPU10"); a PCI address is hexadecimal of fixed width.
---@param device table
---@return string
function M.key(device)
  local domain, rest = tostring(device.pci or ""):lower():match("^(%x+):(.*)$")
  local pci = domain and ("0"):rep(8 - #domain) .. domain .. ":" .. rest or "~"
  return padded(device.host) .. "|" .. pci .. "|" .. tostring(device.uuid or "") .. "|" .. padded(device.uid)
end

--- Compare two names so that numbers in them count as numbers.
---@return boolean
function M.before(a, b) return padded(a) < padded(b) end

--- Sort uids in place in that order.
---@param t tpl.Topo
---@param uids string[]
---@return string[] uids
function M.sort(t, uids)
  local keys = {}
  for _, uid in ipairs(uids) do keys[uid] = M.key(t:dev(uid) or { uid = uid }) end
  table.sort(uids, function(a, b) return keys[a] < keys[b] end)
  return uids
end

return M
