-- SPDX-License-Identifier: Apache-2.0
--- Read and write lists of cores as the kernel writes them: "0-3,8".
local M = {}

local MOST = 65536

--- Give the set of a list; nil when it is none.
---@param text string
---@return table<integer, boolean>?
function M.parse(text)
  local set = {}
  for part in tostring(text):gmatch("[^,%s]+") do
    local first, last = part:match("^(%d+)%-(%d+)$")
    if not first then first = part:match("^(%d+)$") last = first end
    first, last = tonumber(first), tonumber(last)
    if not first or last < first or last >= MOST then return nil end
    for i = first, last do set[i] = true end
  end
  return set
end

--- Count the cores.
function M.count(set)
  local n = 0
  for _ in pairs(set) do n = n + 1 end
  return n
end

--- Give what two sets share.
function M.both(a, b)
  local out = {}
  for i in pairs(a) do out[i] = b[i] end
  return out
end

--- Write a set as a list.
function M.text(set)
  local ids, out = {}, {}
  for i in pairs(set) do ids[#ids + 1] = i end
  table.sort(ids)
  local i = 1
  while i <= #ids do
    local j = i
    while ids[j + 1] == ids[j] + 1 do j = j + 1 end
    out[#out + 1] = i == j and tostring(ids[i]) or ids[i] .. "-" .. ids[j]
    i = j + 1
  end
  return table.concat(out, ",")
end

return M
