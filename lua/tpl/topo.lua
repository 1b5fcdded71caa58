-- SPDX-License-Identifier: Apache-2.0
--- Open a topology: from the machine at hand, from files (nvidia-smi text, NCCL and hwloc XML, tpl YAML), or from a table.
-- `tpl.topo(path)` is `tpl.topo.read(path)`. Whatever the way in, the result went through `finish`: usable devices, near NICs, islands, suggestions, doubts.
local err = require("tpl.err")
local graph = require("tpl.topo.graph")
local islands = require("tpl.topo.islands")
local near = require("tpl.topo.near")
local usable = require("tpl.topo.usable")

local M = {}

local function device_defaults(record)
  local index, hosts = {}, {}
  for _, host in ipairs(record.hosts) do hosts[host.id] = true end
  for _, d in ipairs(record.devices) do
    d.kind = d.kind or "gpu"
    d.host = d.host or record.hosts[1].id
    if not hosts[d.host] then
      record.hosts[#record.hosts + 1] = { id = d.host }
      hosts[d.host] = true
    end
    index[d.host] = index[d.host] or {}
    local kinds = index[d.host]
    d.index = d.index or kinds[d.kind] or 0
    kinds[d.kind] = d.index + 1
    d.uid = d.uid or d.uuid or (d.kind == "gpu" and "GPU" or d.kind) .. d.index
    d.labels = d.labels or {}
  end
end

local function check_names(record)
  local seen = {}
  for _, d in ipairs(record.devices) do
    if seen[d.uid] then
      err.throw { code = "format", where = record.source and record.source.files and record.source.files[1],
        message = ("two devices are called '%s'"):format(d.uid), hint = "uids must differ, also between hosts" }
    end
    seen[d.uid] = d
  end
  return seen
end

--- Drop links that join nothing: to a device that is not there, or to itself.
local function clean_links(record, devices)
  local kept = {}
  for _, link in ipairs(record.links) do
    if devices[link.a] and devices[link.b] and link.a ~= link.b then kept[#kept + 1] = link end
  end
  record.links = kept
end

--- A MIG slice is where its card is.
local function place_slices(record, devices)
  for _, d in ipairs(record.devices) do
    local card = d.kind == "mig" and d.mig and devices[d.mig.parent]
    if card then
      for _, field in ipairs { "pci", "numa", "cpus" } do
        if d[field] == nil then d[field] = card[field] end
      end
    end
  end
end

--- Complete a record in place and give its object. Safe to call on a finished record.
---@param record table  fields of interface.md; every one may be absent
---@return tpl.Topo
function M.finish(record)
  for _, name in ipairs { "hosts", "networks", "devices", "links", "nics", "doubts" } do record[name] = record[name] or {} end
  local first = record.devices[1]
  if not record.hosts[1] then record.hosts[1] = { id = first and first.host or "host0" } end
  for i, host in ipairs(record.hosts) do
    host.id = host.id or "host" .. i - 1
    for k, node in ipairs(host.numa or {}) do node.id = node.id or k - 1 end
  end
  record.source = record.source or { kind = "record", files = {} }
  device_defaults(record)
  local devices = check_names(record)
  place_slices(record, devices)
  clean_links(record, devices)
  usable.judge_all(record.devices)
  near.fill(record)
  local t = graph.new(record)
  t.islands = islands.find(t)
  t.suggest = require("tpl.topo.suggest").make(t)
  require("tpl.topo.doubts").add(t)
  return t
end

local function repeats(record)
  for _, host in ipairs(record.hosts or {}) do
    if (host["repeat"] or 1) ~= 1 then return true end
  end
  return false
end

local function expanded(record)
  if not repeats(record) then return record end
  return require("tpl.topo.expand").expand(record)
end

local function from_record(record)
  if type(record) ~= "table" then err.throw { code = "format", message = "a topology record is a table, not a " .. type(record) } end
  local function fail(path, message) err.throw { code = "format", where = path ~= "" and path or nil, message = message } end
  return M.finish(expanded(require("tpl.topo.import.record_schema").check(record, fail, function() end)))
end

--- Make a topology of a record given as a table, which is copied. Values are checked as those of a record in a file are; json.null is absent.
---@param record table
---@return tpl.Topo? topo
---@return tpl.Err? err    code "format", `where` is the field: "devices[2].numa"
function M.from_record(record) return err.try(from_record, record) end

--- Make the object of a record that is already finished, without completing it again.
---@param record table
---@return tpl.Topo
function M.new(record) return graph.new(record) end

local function read_file(path)
  local sys = require("tpl.core").sys
  local text, message, code = sys.read_file(path)
  if not text then err.throw(err.from_c(message, code, path)) end
  return text
end

local function read(paths)
  if type(paths) == "string" then paths = { paths } end
  local import, parts = require("tpl.topo.import"), {}
  for i, path in ipairs(paths) do parts[i] = import.read(read_file(path), path) end
  if not parts[1] then err.throw { code = "usage", message = "no topology file was given" } end
  local record = parts[1]
  if parts[2] then record = require("tpl.topo.merge").merge(parts) end
  return M.finish(expanded(record))
end

--- Read one file or several of the same machines; several are merged.
---@param paths string|string[]
---@return tpl.Topo? topo
---@return tpl.Err? err
function M.read(paths) return err.try(read, paths) end

--- Ask the machine at hand.
---@param opts? {root?: string}  root: a recorded tree instead of / (proc, sys, etc, dev)
---@return tpl.Topo? topo
---@return tpl.Err? err
function M.probe(opts)
  return err.try(function() return M.finish(require("tpl.topo.probe").read(opts or {})) end)
end

return setmetatable(M, { __call = function(_, paths) return M.read(paths) end })
