-- SPDX-License-Identifier: Apache-2.0
--- PCI addresses in one form, and how far two PCI devices are apart in nvidia-smi's words.
local M = {}

--- Give an address in one form: "00000000:0F:00.0" -> "0000:0f:00.0"; nil when it is none (also NVML's mark of a hidden peer).
---@param text string?
---@return string?
function M.address(text)
  if type(text) ~= "string" then return nil end
  local domain, bus, device, fn = text:lower():match("^%s*(%x+):(%x%x?):(%x%x?)%.(%x)%s*$")
  if not domain then
    bus, device, fn = text:lower():match("^%s*(%x%x?):(%x%x?)%.(%x)%s*$")
    domain = bus and "0"
  end
  if not domain or tonumber(domain, 16) >= 0xfffffff then return nil end
  return ("%04x:%02x:%02x.%s"):format(tonumber(domain, 16), tonumber(bus, 16), tonumber(device, 16), fn)
end

local function parts(path)
  local out = {}
  for part in (path or ""):gmatch("[^/]+") do out[#out + 1] = part end
  return out
end

local function numa_word(a, b)
  if not a.numa or not b.numa then return nil end
  return a.numa == b.numa and "node" or "sys"
end

-- Below the last bridge that two devices share, each has its port of the switch and itself: more than that is another switch.
local SAME_SWITCH = 2

--- Say how far two PCI devices of one host are apart: pix, pxb, phb, node, sys; nil when it cannot be known.
---@param a {path: string?, numa: integer?}  path: root complex first
---@param b {path: string?, numa: integer?}
---@return string?
function M.word(a, b)
  local left, right = parts(a.path), parts(b.path)
  if #left < 2 or #right < 2 or left[1] ~= right[1] then return numa_word(a, b) end
  local shared = 1
  while left[shared + 1] and left[shared + 1] == right[shared + 1] do shared = shared + 1 end
  if shared == 1 then return "phb" end
  return math.max(#left, #right) - shared <= SAME_SWITCH and "pix" or "pxb"
end

return M
