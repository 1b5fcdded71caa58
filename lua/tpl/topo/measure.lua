-- SPDX-License-Identifier: Apache-2.0
--- Measure the links of a record on the machine that it describes: both ways, with the data checked. What was measured stands above what was assumed.
-- One way to measure per kind of device (`M.kinds`): CPU devices through shared memory, by ranks on the cores of both NUMA nodes (core/comm/pair.h). The
-- pairs of GPUs come with that backend, as another entry. A device is no pair with itself, so a machine of one NUMA node has nothing to measure.
local err = require("tpl.err")

local M = {}

local BYTES, ROUND_TRIPS = 32 * 2 ^ 20, 2000

-- -- Kinds -----------------------------------------------------------------------------------------------------------

local function through_memory(a, b, options)
  local t, message, code, where = require("tpl.core").comm.time_pair { a = { cpus = a.cpus, numa = a.numa }, b = { cpus = b.cpus, numa = b.numa },
    bytes = options.bytes or BYTES, iters = options.iters or ROUND_TRIPS }
  if not t then return nil, err.from_c(message, code, where) end
  return t
end

---@class tpl.Measured
---@field gb_s number       from a to b, 1e9 bytes/s
---@field us number         a word one way
---@field data_ok boolean   what arrived was what was sent

--- How a kind is measured one way: fun(a: table, b: table, options: table): tpl.Measured?, tpl.Err?
M.kinds = { cpu = through_memory }

--- Measure one pair of devices of a kind, both ways.
---@param kind string      "cpu"
---@param a table          devices of a record
---@param b table
---@param options {bytes: integer?, iters: integer?}?
---@return {gb_s: number, us: number, gb_s_ba: number, us_ba: number, data_ok: boolean}?
---@return tpl.Err?        code "unsupported" for a kind that cannot be measured yet
function M.pair(kind, a, b, options)
  local one_way = M.kinds[kind]
  if not one_way then
    return nil, err.new { code = "unsupported", where = "topo --measure", message = ("pairs of kind '%s' cannot be measured in this version"):format(kind) }
  end
  if not a.cpus and kind == "cpu" or not b.cpus and kind == "cpu" then
    return nil, err.new { code = "arg", where = "topo --measure", message = ("%s or %s has no cores in the record"):format(a.uid, b.uid) }
  end
  local there, e = one_way(a, b, options or {})
  if not there then return nil, e end
  local back, e2 = one_way(b, a, options or {})
  if not back then return nil, e2 end
  return { gb_s = there.gb_s, us = there.us, gb_s_ba = back.gb_s, us_ba = back.us, data_ok = there.data_ok and back.data_ok }
end

-- -- Records ---------------------------------------------------------------------------------------------------------

local function link_of(record, a, b)
  for _, l in ipairs(record.links) do
    if l.a == a.uid and l.b == b.uid then return l, false end
    if l.a == b.uid and l.b == a.uid then return l, true end
  end
  local l = { a = a.uid, b = b.uid, kind = a.kind == "cpu" and "sys" or nil }
  record.links[#record.links + 1] = l
  return l, false
end

local function store(record, a, b, m)
  local l, turned = link_of(record, a, b)
  l.gb_s, l.gb_s_ba, l.us, l.us_ba = m.gb_s, m.gb_s_ba, m.us, m.us_ba
  if turned then l.gb_s, l.gb_s_ba, l.us, l.us_ba = m.gb_s_ba, m.gb_s, m.us_ba, m.us end
  l.data_ok, l.source = m.data_ok, "measured"
end

-- Pairs that are worth a look: both usable, of one host and one kind. Slices of a card have no link of their own.
local function pairs_of(record)
  local out = {}
  for i, a in ipairs(record.devices) do
    for j = i + 1, #record.devices do
      local b = record.devices[j]
      if a.kind == b.kind and a.kind ~= "mig" and a.host == b.host and a.usable ~= false and b.usable ~= false then out[#out + 1] = { a, b } end
    end
  end
  return out
end

--- Measure every pair of the devices of a record that can be measured, and note in its doubts what could not.
---@param record table     of this machine (probe); links are filled
---@param options {bytes: integer?, iters: integer?, progress: (fun(done: integer, of: integer))?}?
---@return integer measured  pairs
function M.record(record, options)
  local list, done, refused = pairs_of(record), 0, {}
  local function doubt(code, message) record.doubts[#record.doubts + 1] = { code = code, message = message } end
  for i, p in ipairs(list) do
    local a, b = p[1], p[2]
    local m, e = M.pair(a.kind, a, b, options)
    if m then
      store(record, a, b, m)
      done = done + 1
      if not m.data_ok then doubt("data_wrong", ("%s - %s: what arrived was not what was sent"):format(a.uid, b.uid)) end
    elseif not refused[a.kind .. e.code] then
      refused[a.kind .. e.code] = true
      doubt("not_measured", ("%s - %s: %s"):format(a.uid, b.uid, e.message))
    end
    if options and options.progress then options.progress(i, #list) end
  end
  if #list == 0 then
    doubt("nothing_to_measure", "there is no pair of devices on this machine: one NUMA node, and memory within it is no link")
  end
  return done
end

return M
