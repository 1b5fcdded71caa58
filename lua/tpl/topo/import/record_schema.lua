-- SPDX-License-Identifier: Apache-2.0
--- Describe the fields of a topology record (design/interface.md, `tpl topo`): types, ranges, words. A pure table and a walk over it.
-- Whatever a field's type, absent (or null) is allowed: unknown. A field that is not described is kept and reported, since a newer version may write it.
local cpuset = require("tpl.topo.cpuset")
local json = require("tpl.json")
local suggest = require("tpl.suggest")
local util = require("tpl.util")

local M = {}

local MOST = 2 ^ 53

local function text(v) return type(v) == "string", "a text" end
local function flag(v) return type(v) == "boolean", "true or false" end
local function number(v) return type(v) == "number" and v >= 0 and v < math.huge, "a number of 0 or more" end
local function whole(v) return type(v) == "number" and v >= 0 and v < MOST and v == math.floor(v), "a whole number of 0 or more" end
local function any() return true end

local function between(least, most)
  return function(v) return type(v) == "number" and v == math.floor(v) and v >= least and v <= most, ("a whole number from %d to %d"):format(least, most) end
end

local function word(...)
  local words = { ... }
  return function(v) return util.has(words, v), "one of " .. table.concat(words, ", ") end
end

--- A text that YAML reads as a number when it is not quoted: `sm: 9.0`, `cpus: 5`.
local function spelled(format)
  return function(v)
    if type(v) == "number" and v >= 0 and v < 1e6 then return true, nil, format:format(v) end
    return type(v) == "string", "a text"
  end
end

local function cpus(v)
  local ok, _, instead = spelled("%d")(v)
  local set = ok and (instead or v)
  return ok and (set == "" or cpuset.parse(set) ~= nil), "a CPU list such as 0-15,32-47", instead
end

local function list(of) return { list = of } end

local function fields(t) return { fields = t } end

local numa = between(0, 65535)
local path = word("pix", "pxb", "phb", "node", "sys")
local status = word("ok", "cns", "gns", "tns", "ns", "dr", "u")
local p2p = fields { read = status, write = status, atomics = status, nvlink = status, pcie = status }
local doubt = fields { line = whole, code = text, message = text, file = text }
local reason = fields { code = text, message = text }

M.record = fields {
  schema = text, source = fields { kind = text, files = list(text) },
  hosts = list(fields {
    id = text, ["repeat"] = between(1, 65536), driver = spelled("%.14g"), cuda = spelled("%.1f"),
    numa = list(fields { id = numa, cpus = cpus, mem_bytes = whole, package = any, distances = list(number) }),
    cpu = fields { vendor = text, model = text, isa = list(text), arch = text },
  }),
  networks = list(fields { hosts = list(text), gb_s = number, us = number, kind = text }),
  devices = list(fields {
    uid = text, kind = word("gpu", "mig", "cpu"), host = text, index = whole, uuid = text, pci = text, name = text, sm = spelled("%.1f"), vbios = text,
    numa = numa, cpus = cpus, mem_bytes = whole, free_bytes = whole,
    mig = fields { mode = word("on", "off"), pending = any, parent = text, profile = text },
    fabric = fields { state = text, status = text, health = text, cluster = text, clique = any },
    pcie = fields { gen = between(1, 8), width = between(1, 64) },
    busy = fields { pids = list(whole), used_bytes = whole }, labels = list(text),
    health = fields { xid = any, remapped = any, ecc = any, lost = flag, reset_required = flag, state = text }, nvlink = any, usable = flag, why_not = list(reason),
  }),
  links = list(fields {
    a = text, b = text, kind = word("nvlink", "c2c", "pix", "pxb", "phb", "node", "sys", "net", "shm"), pcie = path, nvlinks = between(0, 1024),
    via_switch = flag, p2p = p2p, p2p_ba = p2p, gb_s = number, us = number, gb_s_ba = number, us_ba = number, data_ok = flag,
    source = word("measured", "stated", "assumed"),
  }),
  nics = list(fields { name = text, device = text, pci = text, host = text, numa = numa, near = list(text), to = { map = path }, gb_s = number, gdr = flag }),
  islands = list(fields { devices = list(text), full = flag, fabric = text }),
  suggest = any, doubts = list(doubt),
}

local function shown(v)
  if v == json.null then return "null" end
  if type(v) == "string" then return ("'%s'"):format(v:sub(1, 40)) end
  if type(v) == "table" then return getmetatable(v) == json.array_mt and "a list" or "a mapping" end
  return tostring(v)
end

local function is_list(v) return type(v) == "table" and (getmetatable(v) == json.array_mt or #v > 0 or next(v) == nil) end

local check

local function check_fields(v, rules, at, out)
  if type(v) ~= "table" or (is_list(v) and next(v) ~= nil) then out.fail(at, v, "a mapping") end
  local result = {}
  for _, key in ipairs(util.keys(v)) do
    local value, where = v[key], (at == "" and "" or at .. ".") .. tostring(key)
    if value ~= json.null then
      if rules[key] then
        result[key] = check(value, rules[key], where, out)
      else
        result[key] = out.plain(value)
        out.unknown(where, suggest.hint(tostring(key), util.keys(rules), "fields"))
      end
    end
  end
  return result
end

function check(v, rule, at, out)
  local described = type(rule) == "table"
  if described and rule.fields then return check_fields(v, rule.fields, at, out) end
  if described then
    if (rule.list and not is_list(v)) or type(v) ~= "table" then out.fail(at, v, rule.list and "a list" or "a mapping") end
    local result = {}
    for _, key in ipairs(util.keys(v)) do
      local where = rule.list and ("%s[%d]"):format(at, key) or at .. "." .. tostring(key)
      if v[key] ~= json.null then result[key] = check(v[key], rule.list or rule.map, where, out)
      elseif rule.list then out.fail(where, v[key], "no null in a list") end
    end
    return result
  end
  if rule == any then return out.plain(v) end
  local ok, wanted, instead = rule(v)
  if not ok then out.fail(at, v, wanted) end
  if instead then return instead end
  return v
end

--- Check a decoded record; plain tables without null come back.
---@param value any
---@param fail fun(path: string, message: string)          raises
---@param unknown fun(path: string, hint: string?)         called for every field that is not described
---@return table
function M.check(value, fail, unknown)
  local out = { unknown = unknown }
  function out.fail(at, v, wanted) fail(at, ("%s is %s, expected %s"):format(at == "" and "the record" or "'" .. at .. "'", shown(v), wanted)) end
  function out.plain(v)
    if type(v) ~= "table" then return v end
    local result = {}
    for key, x in pairs(v) do if x ~= json.null then result[key] = out.plain(x) end end
    return result
  end
  return check(value, M.record, "", out)
end

return M
