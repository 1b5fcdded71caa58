-- SPDX-License-Identifier: Apache-2.0
--- Read topology records: the result of `tpl topo` as YAML, or as JSON with or without its envelope (topo/write.lua writes them).
-- What a field may be is in record_schema.lua. A wrong type or a name that leads nowhere is refused with file and line: a policy tested on a
-- record that was half understood would be tested on another machine.
local err = require("tpl.err")
local json = require("tpl.json")
local pci = require("tpl.topo.import.pci")
local schema = require("tpl.topo.import.record_schema")
local yaml = require("tpl.yaml")

local M = {}

local MAX_UNKNOWN = 50 -- reported; each costs a look through the text
local MAX_DEVICES = 4096 -- more belong into `repeat`

local keys = { "source", "hosts", "networks", "devices", "links", "nics", "islands", "suggest", "doubts" }

--- Say whether a text looks like a record: YAML or JSON with one of a record's keys at the top.
---@param text string
---@return boolean
function M.detect(text)
  if text:find("^%s*{") then
    for _, key in ipairs(keys) do
      if text:find('"' .. key .. '"%s*:') then return true end
    end
    return false
  end
  for _, key in ipairs(keys) do
    if text:find("^" .. key .. ":") or text:find("\n" .. key .. ":") then return true end
  end
  return false
end

local function decode(text, name)
  if text:find("^%s*{") then -- JSON is YAML but for tabs and a few escapes, and its own reader has better messages
    local value, message, code, where = json.decode(text, { where = name })
    if not message then return value end
    local as_yaml = yaml.decode(text, { where = name }) -- YAML may begin with a brace too
    if as_yaml ~= nil then return as_yaml end
    err.throw(err.from_c(message, code, where or name))
  end
  local value, e = yaml.decode(text, { where = name })
  if e then err.throw(e) end
  return value
end

--- Give a function that says in which line a path stands, or what is around it.
local function locator(text, prefix)
  return function(path)
    local full = prefix .. path
    while full ~= "" do
      local line = yaml.line(text, full)
      if line then return line end
      full = full:match("^(.*)[.%[][^.%[]*$") or ""
    end
  end
end

local function check_links(record, known, fail)
  local seen = {}
  for i, link in ipairs(record.links or {}) do
    local at = ("links[%d]"):format(i)
    for _, side in ipairs { "a", "b" } do
      if not link[side] then fail(at, "a link without '" .. side .. "'") end
      if not known[link[side]] then fail(at .. "." .. side, ("'%s' is no device of this record"):format(link[side])) end
    end
    if link.a == link.b then fail(at, ("a link from '%s' to itself"):format(link.a)) end
    local key = link.a < link.b and link.a .. "\0" .. link.b or link.b .. "\0" .. link.a
    if seen[key] then fail(at, ("a second link between '%s' and '%s'"):format(link.a, link.b)) end
    seen[key] = true
    if not link.kind then
      link.kind = (link.nvlinks or 0) > 0 and "nvlink" or link.pcie
      if not link.kind then fail(at, "a link without 'kind'") end
    end
  end
end

local function check_lists(record, known, fail)
  for i, nic in ipairs(record.nics or {}) do
    if not nic.name then fail(("nics[%d]"):format(i), "a NIC without 'name'") end
    for j, uid in ipairs(nic.near or {}) do
      if not known[uid] then fail(("nics[%d].near[%d]"):format(i, j), ("'%s' is no device of this record"):format(uid)) end
    end
    for uid in pairs(nic.to or {}) do
      if not known[uid] then fail(("nics[%d].to"):format(i), ("'%s' is no device of this record"):format(uid)) end
    end
  end
  for i, island in ipairs(record.islands or {}) do
    for j, uid in ipairs(island.devices or {}) do
      if not known[uid] then fail(("islands[%d].devices[%d]"):format(i, j), ("'%s' is no device of this record"):format(uid)) end
    end
  end
end

local function check_hosts(record, fail)
  local hosts = {}
  for i, h in ipairs(record.hosts or {}) do
    h.id = h.id or "host" .. i - 1
    if hosts[h.id] then fail(("hosts[%d]"):format(i), ("a second host '%s'"):format(h.id)) end
    hosts[h.id] = true
  end
  if not record.hosts or not record.hosts[1] then
    record.hosts = {}
    for _, d in ipairs(record.devices or {}) do
      local id = d.host or "host0"
      if not hosts[id] then record.hosts[#record.hosts + 1], hosts[id] = { id = id }, true end
    end
    if not record.hosts[1] then record.hosts[1], hosts.host0 = { id = "host0" }, true end
  end
  for i, n in ipairs(record.networks or {}) do
    for j, id in ipairs(n.hosts or {}) do
      if not hosts[id] then fail(("networks[%d].hosts[%d]"):format(i, j), ("'%s' is no host of this record"):format(id)) end
    end
  end
  return hosts
end

local function check_devices(record, hosts, fail)
  local known, uuids, count = {}, {}, {}
  for i, d in ipairs(record.devices or {}) do
    local at = ("devices[%d]"):format(i)
    d.kind, d.host = d.kind or "gpu", d.host or record.hosts[1].id
    if not hosts[d.host] then fail(at .. ".host", ("'%s' is no host of this record"):format(d.host)) end
    local slot = d.host .. "\0" .. d.kind
    d.index = d.index or count[slot] or 0
    count[slot] = d.index + 1
    if d.pci then
      local address = pci.address(d.pci)
      if not address then fail(at .. ".pci", ("'%s' is no PCI address such as 0000:0f:00.0"):format(d.pci)) end
      d.pci = address
    end
    d.uid = d.uid or d.uuid or (d.kind == "gpu" and "GPU" or d.kind) .. d.index
    if known[d.uid] then fail(at, ("a second device '%s'"):format(d.uid)) end
    if d.uuid and uuids[d.uuid] then fail(at .. ".uuid", ("two devices have the UUID %s"):format(d.uuid)) end
    if d.free_bytes and d.mem_bytes and d.free_bytes > d.mem_bytes then fail(at .. ".free_bytes", "more is free than there is") end
    known[d.uid], uuids[d.uuid or ""] = true, d.uuid and true or nil
  end
  return known
end

-- Every field of a record may be absent, but an object with other keys only is another program's file.
local function json_of_something_else(value)
  if type(value) ~= "table" or next(value) == nil or #value > 0 then return false end
  for key in pairs(value) do
    if schema.record.fields[key] then return false end
  end
  return true
end

--- Read a record.
---@param text string
---@param name string
---@return tpl.TopoRecord   null is nil; unknown fields are kept and are doubts
function M.read(text, name)
  local value, prefix = decode(text, name), ""
  if type(value) == "table" and type(value.result) == "table" and value.schema ~= nil then
    value, prefix = value.result, "result."
  end
  local line_of = locator(text, prefix)
  local function fail(path, message)
    local line = path ~= "" and line_of(path)
    err.throw { code = "format", where = line and name .. ":" .. line or name, message = message }
  end
  if type(value) == "table" and type(value.devices) == "table" and #value.devices > MAX_DEVICES then
    fail("devices", ("more than %d devices; a host may have 'repeat'"):format(MAX_DEVICES))
  end
  if json_of_something_else(value) then fail("", "JSON that is no record: none of its keys is a field of one") end
  local extra = {}
  local record = schema.check(value, fail, function(path, hint)
    if #extra == MAX_UNKNOWN then return end
    extra[#extra + 1] = { line = line_of(path), code = "unknown_field", message = ("'%s' is no field of a record: kept, not used%s"):format(path, hint and "; " .. hint or "") }
  end)
  local known = check_devices(record, check_hosts(record, fail), fail)
  check_links(record, known, fail)
  check_lists(record, known, fail)
  record.source = record.source or {}
  record.source.kind, record.source.files = record.source.kind or "record", { name }
  record.links, record.devices, record.nics, record.doubts = record.links or {}, record.devices or {}, record.nics or {}, record.doubts or {}
  for _, d in ipairs(extra) do record.doubts[#record.doubts + 1] = d end
  return record
end

return M
