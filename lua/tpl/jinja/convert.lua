-- SPDX-License-Identifier: Apache-2.0
--- Converts what tpl.json decodes, and plain Lua tables, into template values. The copy also makes
--- sure that a template holds nothing but data: no functions, no userdata.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local values = require("tpl.jinja.values")
local number = require("tpl.jinja.number")

local M = {}

-- tpl.json stops at 64 levels; this only guards against tables that contain themselves.
local MAX_DEPTH = 200

local convert

local function convert_array(t, n, depth)
  local out = {}
  for i = 1, n do out[i] = convert(t[i], depth) end
  return values.list(out)
end

local function convert_object(t, keys, depth)
  local out = values.dict()
  for _, key in ipairs(keys) do
    -- A key can be gone from the table: json objects may be changed after decoding.
    if t[key] ~= nil then values.dict_set(out, key, convert(t[key], depth)) end
  end
  return out
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    if type(key) ~= "string" then errors.raise("TypeError", "key %s of a table is no string", tostring(key)) end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

-- Keys of a json object: those of the file first, then any that were added since.
local function object_keys(t, mt)
  local keys, seen, added = {}, {}, {}
  for _, key in ipairs(mt.keys or {}) do
    if not seen[key] then
      seen[key] = true
      keys[#keys + 1] = key
    end
  end
  for key in pairs(t) do
    if not seen[key] then added[#added + 1] = key end
  end
  table.sort(added)
  for _, key in ipairs(added) do keys[#keys + 1] = key end
  return keys
end

local function convert_table(t, depth)
  state.grant(8)
  if depth > MAX_DEPTH then errors.raise("RecursionError", "value nests more than %d levels", MAX_DEPTH) end
  local mt = getmetatable(t)
  local name = type(mt) == "table" and mt.__name
  if name == "json.real" then return values.float(t.value) end
  if name == "json.int" then return number.parse_int(t.text, 10) end
  if name == "json.array" then return convert_array(t, #t, depth) end
  if name == "json.object" then return convert_object(t, object_keys(t, mt), depth) end
  if #t > 0 then return convert_array(t, #t, depth) end
  return convert_object(t, sorted_keys(t), depth)
end

--- Template value of a decoded JSON value. Whole Lua numbers are ints; nil and null are None.
function convert(v, depth)
  local t = type(v)
  if t == "string" then
    state.grant(#v)
    return v
  end
  if t == "boolean" then return v end
  if t == "number" then
    if v == math.floor(v) and math.abs(v) ~= math.huge then return number.from_double(v) end
    return values.float(v)
  end
  if t == "nil" or t == "userdata" then return values.none end
  if t == "table" then return convert_table(v, (depth or 0) + 1) end
  return errors.raise("TypeError", "a %s cannot be given to a template", t)
end

M.value = convert
return M
