-- SPDX-License-Identifier: Apache-2.0
--- Turn a topology into the values that are written: the fields of interface.md in their order, as JSON (unknown is null) or as a record in YAML
-- (unknown is left out). A record reads back as the same topology.
local json = require("tpl.json")

local M = {}

-- A shape is a list of {field, shape}; LIST is a list of plain values, an `each` a list of tables, ANY a value written as it is.
local ANY, LIST = {}, {}

local p2p = { { "read", ANY }, { "write", ANY } }

local shape = {
  { "source", { { "kind", ANY }, { "files", LIST } } },
  { "hosts", { each = {
    { "id", ANY }, { "repeat", ANY }, { "driver", ANY }, { "cuda", ANY },
    { "cpu", { { "vendor", ANY }, { "model", ANY }, { "isa", LIST } } },
    { "numa", { each = { { "id", ANY }, { "cpus", ANY }, { "mem_bytes", ANY } } } },
  } } },
  { "networks", { each = { { "hosts", LIST }, { "gb_s", ANY }, { "us", ANY } } } },
  { "devices", { each = {
    { "uid", ANY }, { "kind", ANY }, { "host", ANY }, { "index", ANY }, { "uuid", ANY }, { "pci", ANY }, { "name", ANY }, { "sm", ANY }, { "vbios", ANY },
    { "numa", ANY }, { "cpus", ANY }, { "mem_bytes", ANY }, { "free_bytes", ANY },
    { "mig", { { "mode", ANY }, { "pending", ANY }, { "parent", ANY }, { "profile", ANY } } },
    { "fabric", { { "state", ANY }, { "health", ANY }, { "cluster", ANY }, { "clique", ANY } } },
    { "pcie", { { "gen", ANY }, { "width", ANY } } }, { "busy", { { "pids", LIST }, { "used_bytes", ANY } } }, { "labels", LIST },
    { "health", { { "xid", ANY }, { "remapped", ANY }, { "ecc", ANY } } },
    { "usable", ANY }, { "why_not", { each = { { "code", ANY }, { "message", ANY } } } },
  } } },
  { "links", { each = {
    { "a", ANY }, { "b", ANY }, { "kind", ANY }, { "pcie", ANY }, { "nvlinks", ANY }, { "via_switch", ANY }, { "p2p", p2p }, { "p2p_ba", p2p },
    { "gb_s", ANY }, { "us", ANY }, { "gb_s_ba", ANY }, { "us_ba", ANY }, { "data_ok", ANY }, { "source", ANY },
  } } },
  { "nics", { each = { { "name", ANY }, { "device", ANY }, { "pci", ANY }, { "numa", ANY }, { "near", LIST } } } },
  { "islands", { each = { { "devices", LIST }, { "full", ANY }, { "fabric", ANY } } } },
  { "suggest", { { "tp2", LIST }, { "tp4", LIST }, { "advice", ANY } } },
  { "doubts", { each = { { "line", ANY }, { "code", ANY }, { "message", ANY } } } },
}

local convert

local function object(value, fields, with_null)
  value = type(value) == "table" and value or {}
  local keys, out, promised = {}, {}, {}
  local function put(key, x)
    if x == nil or x == json.null then
      if not with_null or not promised[key] then return end
      x = json.null
    end
    keys[#keys + 1], out[key] = key, x
  end
  for _, field in ipairs(fields) do
    promised[field[1]] = true
    put(field[1], convert(value[field[1]], field[2], with_null))
  end
  local more = {} -- what an importer adds (networks[].kind, nics[].to, ..) follows, sorted
  for key, x in pairs(value) do
    if type(key) == "string" and not promised[key] and type(x) ~= "function" then more[#more + 1] = key end
  end
  table.sort(more)
  for _, key in ipairs(more) do put(key, convert(value[key], ANY, with_null)) end
  return setmetatable(out, { __name = "json.object", keys = keys }), keys[1] ~= nil
end

local function any(value)
  if type(value) ~= "table" then return value end
  if getmetatable(value) == json.array_mt or value[1] ~= nil then
    local list = {}
    for i, x in ipairs(value) do list[i] = any(x) end
    return setmetatable(list, json.array_mt)
  end
  local fields = {}
  for key in pairs(value) do fields[#fields + 1] = tostring(key) end
  if not fields[1] then return nil end
  table.sort(fields)
  local out = {}
  for key, x in pairs(value) do out[tostring(key)] = any(x) end
  return setmetatable(out, { __name = "json.object", keys = fields })
end

--- Convert by shape. Without nulls, empty lists and empty tables are left out too.
function convert(value, kind, with_null)
  if kind == ANY then return any(value) end
  if value == json.null then value = nil end
  if kind == LIST or kind.each then
    local list = {}
    for i, x in ipairs(type(value) == "table" and value or {}) do
      list[i] = kind == LIST and any(x) or object(x, kind.each, with_null)
    end
    if not with_null and not list[1] then return nil end
    return setmetatable(list, json.array_mt)
  end
  if value == nil and with_null then return object({}, kind, true) end
  local out, filled = object(value, kind, with_null)
  return (filled or with_null) and out or nil
end

--- Give the JSON result of `tpl topo`: every promised field is there.
---@param t tpl.Topo
---@return table
function M.result(t) return (object(t, shape, true)) end

--- Give a topology as a record in YAML. Host names and other facts are as the input had them.
---@param t tpl.Topo
---@return string
function M.yaml(t) return require("tpl.yaml").encode((object(t, shape, false)), { flow = true }) end

return M
