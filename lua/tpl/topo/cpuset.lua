-- SPDX-License-Identifier: Apache-2.0
--- Read and compare CPU sets written as text ("0-3,8"), the form of Linux, nvidia-smi and tpl's records.
-- Records keep the text; whoever needs numbers parses it here. A text that is none gives nil, never an empty set.
local M = {}

M.MOST = 65536 -- CPU numbers above this are taken for a damaged text

--- Parse a CPU list.
---@param text string?   "0-3,8"; nil, "" and "N/A" are no list
---@return integer[]? cpus   ascending, each once; nil when the text is no CPU list
function M.parse(text)
  if type(text) ~= "string" then return nil end
  local seen, list = {}, {}
  for part in (text .. ","):gmatch("([^,]*),") do
    local first, last = part:match("^%s*(%d+)%s*%-%s*(%d+)%s*$")
    if not first then
      first = part:match("^%s*(%d+)%s*$")
      last = first
    end
    first, last = tonumber(first), tonumber(last)
    if not first or last < first or last > M.MOST then return nil end
    for cpu = first, last do
      if not seen[cpu] then list[#list + 1] = cpu end
      seen[cpu] = true
    end
  end
  if #list == 0 then return nil end
  table.sort(list)
  return list
end

--- Write CPU numbers as a list with ranges.
---@param cpus integer[]  ascending
---@return string
function M.format(cpus)
  local parts, i = {}, 1
  while i <= #cpus do
    local j = i
    while cpus[j + 1] == cpus[j] + 1 do j = j + 1 end
    parts[#parts + 1] = i == j and tostring(cpus[i]) or cpus[i] .. "-" .. cpus[j]
    i = j + 1
  end
  return table.concat(parts, ",")
end

--- Give a CPU list in its one written form, so that equal sets are equal texts; nil when it is none.
---@param text string?
---@return string?
function M.normal(text)
  local cpus = M.parse(text)
  return cpus and M.format(cpus)
end

--- Count the CPUs of a list; nil when it is none.
---@param text string?
---@return integer?
function M.count(text)
  local cpus = M.parse(text)
  return cpus and #cpus
end

local function as_set(cpus)
  local set = {}
  for _, cpu in ipairs(cpus) do set[cpu] = true end
  return set
end

--- Give the CPUs that both lists hold; nil when there is none or one is no list.
---@param a string?
---@param b string?
---@return string?
function M.both(a, b)
  local left, right = M.parse(a), M.parse(b)
  if not left or not right then return nil end
  local set, out = as_set(right), {}
  for _, cpu in ipairs(left) do
    if set[cpu] then out[#out + 1] = cpu end
  end
  return out[1] and M.format(out) or nil
end

--- Say whether every CPU of `inner` is in `outer`; nil when one is no list.
---@param outer string?
---@param inner string?
---@return boolean?
function M.contains(outer, inner)
  local all, some = M.parse(outer), M.parse(inner)
  if not all or not some then return nil end
  local set = as_set(all)
  for _, cpu in ipairs(some) do
    if not set[cpu] then return false end
  end
  return true
end

return M
