-- SPDX-License-Identifier: Apache-2.0
--- Reads "a.b.0" paths for the `attribute` argument of filters.
local unicode = require("tpl.jinja.unicode")
local values = require("tpl.jinja.values")
local access = require("tpl.jinja.access")

local M = {}

local function parts_of(attribute)
  if attribute == nil or attribute == values.none then return {} end
  local s = values.text(attribute)
  if not s then return { attribute } end
  local parts = {}
  for part in (s .. "."):gmatch("([^.]*)%.") do
    parts[#parts + 1] = part:find("^%d+$") and tonumber(part) or part
  end
  return parts
end

--- Key that ignores case: strings are lowered, other values stay.
function M.ignore_case(v)
  local s = values.text(v)
  return s and unicode.lower(s) or v
end

local function walk(item, parts, default)
  for i = 1, #parts do
    item = access.getitem(item, parts[i])
    if default ~= nil and default ~= values.none and values.is_undefined(item) then item = default end
  end
  return item
end

--- fn(item) -> the value at the path; `post` is applied to it.
function M.getter(attribute, post, default)
  local parts = parts_of(attribute)
  return function(item)
    local v = walk(item, parts, default)
    if post then v = post(v) end
    return v
  end
end

--- fn(item) -> list of the values at comma-separated paths, to sort by.
function M.multi_getter(attribute, post)
  local paths = {}
  local s = attribute ~= nil and values.text(attribute)
  if s then
    for path in (s .. ","):gmatch("([^,]*),") do paths[#paths + 1] = parts_of(path) end
  else
    paths[1] = parts_of(attribute)
  end
  return function(item)
    local out = {}
    for i = 1, #paths do
      local v = walk(item, paths[i])
      if post then v = post(v) end
      out[i] = v
    end
    return values.list(out)
  end
end

return M
