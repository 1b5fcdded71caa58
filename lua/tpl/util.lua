-- SPDX-License-Identifier: Apache-2.0
--- Give the few table helpers that plans need. Whatever ends up in a plan goes through the sorted forms, so that equal
--- inputs give an equal plan hash.
local M = {}

local rank = { number = 1, string = 2, boolean = 3 }

local function before(a, b)
  local ta, tb = type(a), type(b)
  if ta ~= tb then return (rank[ta] or 9) < (rank[tb] or 9) end
  if ta == "number" or ta == "string" then return a < b end
  return tostring(a) < tostring(b)
end

--- List the keys of a table in a fixed order: numbers, then strings.
function M.keys(t)
  local out = {}
  for k in pairs(t) do out[#out + 1] = k end
  table.sort(out, before)
  return out
end

--- Iterate like pairs, in the order of `keys`. This is tpl.pairs.
function M.pairs(t)
  local ks, i = M.keys(t), 0
  return function()
    i = i + 1
    local k = ks[i]
    if k ~= nil then return k, t[k] end
  end
end

--- Say whether a list holds a value.
function M.has(list, v)
  for _, x in ipairs(list) do if x == v then return true end end
  return false
end

--- Copy one level.
function M.copy(t)
  local out = {}
  for k, v in pairs(t) do out[k] = v end
  return out
end

--- Compare two values by content; metatables are not looked at.
function M.same(a, b)
  if a == b then return true end
  if type(a) ~= "table" or type(b) ~= "table" then return false end
  for k, v in pairs(a) do if not M.same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end

--- Make the list of f(value).
function M.map(list, f)
  local out = {}
  for i, v in ipairs(list) do out[i] = f(v) end
  return out
end

--- Compile a glob: '*' stands for any run of characters, everything else for itself.
---@return fun(name: string): boolean
function M.glob(pattern)
  if not pattern:find("*", 1, true) then return function(name) return name == pattern end end
  local p = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*") .. "$"
  return function(name) return name:find(p) ~= nil end
end

local words = "and break do else elseif end false for function goto if in local nil not or repeat return then true until while"
local reserved = {}
for w in words:gmatch("%S+") do reserved[w] = true end

--- Write a table key as Lua source: name or ["na.me"].
function M.key_text(k)
  if type(k) == "string" and k:match("^[%a_][%w_]*$") and not reserved[k] then return k end
  return "[" .. (type(k) == "string" and ("%q"):format(k) or tostring(k)) .. "]"
end

return M
