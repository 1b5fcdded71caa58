-- SPDX-License-Identifier: Apache-2.0
--- Check what was read from a manifest, so that nothing behind it meets a value of another type: people edit these files.
-- Only types and what is needed; what a manifest does not say is not compared. Unknown fields are a newer version's and are let be.
local json = require("tpl.json")
local placement = require("tpl.emit.placement")

local M = {}

local known = placement.known

local function is_list(v) return type(v) == "table" and (#v > 0 or next(v) == nil) end

local check

local function of_type(name, noun)
  return function(v) if type(v) ~= name then return noun end end
end

local text, number, flag = of_type("string", "a text"), of_type("number", "a number"), of_type("boolean", "true or false")

local function count(v) if type(v) ~= "number" or v < 0 or v ~= math.floor(v) then return "a whole number from 0" end end

-- fields: name -> rule; needed: list of names, one of each group must be there.
local function map(fields, needed)
  return function(v)
    if type(v) ~= "table" or (#v > 0) then return "a mapping" end
    for _, names in ipairs(needed or {}) do
      local has = false
      for name in names:gmatch("%w+") do has = has or known(v[name]) ~= nil end
      if not has then return "a mapping with " .. names end
    end
    return check(v, fields)
  end
end

local function list(rule, least)
  return function(v)
    if not is_list(v) or #v < (least or 0) then return least and least > 0 and "a list, not empty" or "a list" end
    for i = 1, #v do
      local want, at = rule(v[i])
      if want then return want, ("[%d]"):format(i) .. (at or "") end
    end
  end
end

function check(v, fields)
  for name, rule in require("tpl.util").pairs(fields) do
    local x = known(v[name])
    if x ~= nil then
      local want, at = rule(x)
      if want then return want, "." .. name .. (at or "") end
    end
  end
end

local function pair(v)
  if not is_list(v) or #v ~= 2 or count(v[1]) or count(v[2]) then return "a pair of layer numbers" end
end

local mig = map { mode = text, parent = text, profile = text, pending = text }
local p2p = map { read = text, write = text }

local rule = map({
  plan_hash = text, program_hash = text, version = text,
  model = map { arch = text, path = text, sha256 = text, config_sha256 = text, weight_bytes = number, params = number,
    files = list(map({ name = text, bytes = number, mtime = number, sha256 = text }, { "name", "bytes" })) },
  degrees = map { tp = number, pp = number, ep = number, dp = number },
  hosts = list(map({ id = text, driver = text, cuda = text }, { "id" })),
  devices = list(map({ uid = text, uuid = text, kind = text, pci = text, host = text, name = text, sm = text, vbios = text, numa = number,
    mem_bytes = number, mig = mig }, { "uid or uuid" }), 1),
  links = list(map({ a = text, b = text, kind = text, pcie = text, nvlinks = number, via_switch = flag, p2p = p2p, gb_s = number, us = number,
    source = text }, { "a", "b" })),
  stages = list(map({ replica = count, i = count, layers = pair, devices = list(text, 1), shares = list(number) }, { "devices" }), 1),
}, { "devices", "stages" })

-- Replicas count from 0 without a gap: a placement is a list.
local function gap(stages)
  local seen, most = {}, 0
  for _, s in ipairs(stages) do
    local n = known(s.replica) or 0
    seen[n], most = true, math.max(most, n)
  end
  if most > #stages then return 0 end
  for n = 0, most do if not seen[n] then return n end end
end

--- Check a manifest.
---@param m any
---@return string? message  nil: it is one
---@return string? path     "devices[2].numa", where a value is wrong
function M.check(m)
  if m == json.null or type(m) ~= "table" then return "not a manifest: no mapping" end
  local want, at = rule(m)
  if want then
    if not at then return "must be " .. want end
    at = at:sub(2)
    return ("%s must be %s"):format(at, want), at
  end
  local missing = gap(m.stages)
  if missing then return ("stages: there is no replica %d"):format(missing), "stages" end
end

return M
