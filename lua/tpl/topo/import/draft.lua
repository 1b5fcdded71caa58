-- SPDX-License-Identifier: Apache-2.0
--- Collect what the text importers find until it is a record: devices by index, UUID or address, links by pair, NICs, doubts.
--- Several tables of one paste write into the same draft, so a matrix, a -L list and a P2P table become one record.
---
--- Contents: drafts and hosts - devices - links and NICs - the record (Draft:record)
local err = require("tpl.err")

local M = {}
local Draft, Host = {}, {}
Draft.__index, Host.__index = Draft, Host

local max_devices, max_hosts, max_doubts = 1024, 256, 200

-- -- Drafts and hosts ------------------------------------------------------------------------------------------------

---@class tpl.topo.Draft
---@field name string     the file, for messages
---@field hosts table[]
---@field doubts table[]

--- Start an empty draft.
---@param name string?  the file's name, for messages
---@return tpl.topo.Draft
function M.new(name)
  return setmetatable({ name = name or "topology", hosts = {}, doubts = {}, doubted = {}, kinds = {} }, Draft)
end

--- Add a host.
---@param name string?  as the text names it
function Draft:add_host(name)
  if #self.hosts >= max_hosts then err.throw { code = "format", message = "more than " .. max_hosts .. " hosts in one text", where = self.name } end
  local host = setmetatable({ draft = self, name = name, devices = {}, by_index = {}, links = {}, nics = {}, by_nic = {}, facts = {} }, Host)
  self.hosts[#self.hosts + 1] = host
  return host
end

--- Note something that had to be repaired, guessed, or stays unknown.
---@param line integer?
---@param code string      stable word
---@param message string   one line
function Draft:doubt(line, code, message)
  local key = code .. "\0" .. message
  if #self.doubts >= max_doubts or self.doubted[key] then return end
  self.doubted[key] = true
  self.doubts[#self.doubts + 1] = { line = line, code = code, message = message }
end

--- Note which importer found something.
function Draft:found(kind)
  if not self.kinds[kind] then
    self.kinds[kind] = true
    self.kinds[#self.kinds + 1] = kind
  end
end

-- -- Devices ---------------------------------------------------------------------------------------------------------

--- Normalise a PCI address: lower case, domain of four digits or more; nil when the text is none.
---@param text string?
---@return string?
function M.pci(text)
  local domain, rest = tostring(text):lower():match("^(%x+):(%x%x:%x%x%.%x)$")
  if not domain then
    domain, rest = "0", tostring(text):lower():match("^(%x%x:%x%x%.%x)$")
    if not rest then return nil end
  end
  domain = domain:gsub("^0+", "")
  return ("0"):rep(4 - #domain) .. domain .. ":" .. rest
end

--- Give the device with an index, made when it is new.
---@param index integer?  nil: always a new device
---@param kind string?    "gpu" by default
function Host:device(index, kind)
  local d = index and self.by_index[index]
  if d then return d end
  if #self.devices >= max_devices then
    err.throw { code = "format", message = "more than " .. max_devices .. " devices in one host", where = self.draft.name }
  end
  d = { kind = kind or "gpu", index = index, order = #self.devices + 1 }
  self.devices[d.order] = d
  if index then self.by_index[index] = d end
  return d
end

--- Give the first device whose field has a value.
function Host:find(field, value)
  for _, d in ipairs(self.devices) do
    if value ~= nil and d[field] == value then return d end
  end
  return nil
end

--- Count the GPUs.
function Host:gpus()
  local out = {}
  for _, d in ipairs(self.devices) do
    if d.kind == "gpu" then out[#out + 1] = d end
  end
  return out
end

--- Keep a UUID as the device's identity; one that a person blacked out is none.
function Host:identify(device, uuid, line)
  if not uuid then return end
  if not uuid:find("^[GM][PI][UG]%-[%x%-]+$") and not uuid:find("^MIG%-GPU%-[%x%-]+/%d+/%d+$") then
    self.draft:doubt(line, "uuid_unreadable", "a UUID is not hexadecimal (blacked out?): the index stands for it")
    return
  end
  if device.uuid and device.uuid ~= uuid then
    self.draft:doubt(line, "uuid_conflict", ("%s has two UUIDs: the first one is kept"):format(self.draft.label(device)))
    return
  end
  device.uuid = uuid
end

--- Name a device in a message.
function Draft.label(device)
  if device.index then return (device.kind == "mig" and "MIG " or "GPU") .. device.index end
  return device.uuid or device.pci or "a GPU without an index"
end

-- -- Links and NICs --------------------------------------------------------------------------------------------------

--- Give the link of two devices, made when it is new; facts with a direction are kept in `from[device]`.
function Host:link(a, b)
  if b.order < a.order then a, b = b, a end
  local key = a.order * 4096 + b.order
  local link = self.links[key]
  if not link then
    link = { a = a, b = b, from = { [a] = {}, [b] = {} } }
    self.links[key] = link
  end
  return link
end

--- Give the link of two devices if it is there.
function Host:has_link(a, b)
  if b.order < a.order then a, b = b, a end
  return self.links[a.order * 4096 + b.order]
end

--- Give the NIC with a name, made when it is new.
function Host:nic(name)
  local nic = self.by_nic[name]
  if not nic then
    if #self.nics >= max_devices then
      err.throw { code = "format", message = "more than " .. max_devices .. " network devices in one host", where = self.draft.name }
    end
    nic = { name = name, to = {} }
    self.by_nic[name] = nic
    self.nics[#self.nics + 1] = nic
  end
  return nic
end

-- -- The record ------------------------------------------------------------------------------------------------------

-- Two devices with the same UUID: the text was made unreadable on purpose, so neither is an identity.
local function drop_shared_uuids(draft)
  local seen = {}
  for _, host in ipairs(draft.hosts) do
    for _, d in ipairs(host.devices) do
      if d.uuid then
        local first = seen[d.uuid]
        if first then
          draft:doubt(nil, "uuid_repeated", ("several devices have the UUID %s: indices stand for them"):format(d.uuid))
          first.not_unique, d.not_unique = true, true
        end
        seen[d.uuid] = d
      end
    end
  end
  for _, host in ipairs(draft.hosts) do
    for _, d in ipairs(host.devices) do
      if d.not_unique then d.uuid, d.not_unique = nil, nil end
    end
  end
end

local function name_devices(host, id, several)
  local n = 0
  for _, d in ipairs(host.devices) do
    local own = d.uuid
    if not own then
      n = n + 1
      own = d.kind == "mig" and ("%s:mig%d"):format(d.parent and d.parent.uid or "GPU", d.index or n)
        or d.index and "GPU" .. d.index or d.pci or "GPU?" .. n
      if several and d.kind ~= "mig" then own = id .. "/" .. own end
    end
    d.uid, d.host = own, id
  end
end

local function directed(link)
  local there, back = link.from[link.a], link.from[link.b]
  local function p2p(facts)
    return facts.p2p and { read = facts.p2p.read, write = facts.p2p.write, nvlink = facts.p2p.nvlink,
      atomics = facts.p2p.atomics, pcie = facts.p2p.pcie }
  end
  local a, b = p2p(there), p2p(back)
  if a and b then
    local same = true
    for _, k in ipairs { "read", "write", "nvlink", "atomics", "pcie" } do same = same and a[k] == b[k] end
    if same then b = nil end
  end
  return a, b
end

local function plain_link(link)
  local p2p, p2p_ba = directed(link)
  return {
    a = link.a.uid, b = link.b.uid, kind = link.kind, pcie = link.pcie, nvlinks = link.nvlinks, via_switch = link.via_switch,
    p2p = p2p, p2p_ba = p2p_ba, gb_s = link.gb_s, source = link.gb_s and "stated" or nil,
  }
end

local device_fields = { "uid", "kind", "host", "index", "uuid", "pci", "name", "sm", "vbios", "numa", "cpus", "mem_bytes", "free_bytes",
  "fabric", "pcie", "busy", "labels", "health", "nvlink" }

local function plain_device(d)
  local out = {}
  for _, k in ipairs(device_fields) do out[k] = d[k] end
  if d.mig or d.parent then
    out.mig = { mode = d.mig and d.mig.mode, pending = d.mig and d.mig.pending, profile = d.mig and d.mig.profile, parent = d.parent and d.parent.uid }
  end
  return out
end

local function plain_nic(nic, host)
  local to
  for device, word in pairs(nic.to) do
    to = to or {}
    to[device.uid] = word
  end
  return { host = host, name = nic.name, device = nic.device, pci = nic.pci, numa = nic.numa, to = to }
end

local function sorted_links(host)
  local keys, out = {}, {}
  for key in pairs(host.links) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do out[#out + 1] = plain_link(host.links[key]) end
  return out
end

local function host_ids(hosts)
  local ids, used = {}, {}
  for i, host in ipairs(hosts) do
    local id = #hosts > 1 and host.name or "host" .. (i - 1)
    if used[id] then id = id .. "-" .. (i - 1) end
    ids[i], used[id] = id, true
  end
  return ids
end

--- Give the record; hosts on which nothing was found are left out.
---@return table record   the fields of `tpl topo`, without what is computed later (near, islands, usable, suggest)
function Draft:record()
  local hosts = {}
  for _, host in ipairs(self.hosts) do
    if #host.devices + #host.nics > 0 or host.seen then hosts[#hosts + 1] = host end
  end
  drop_shared_uuids(self)
  local kind = (self.kinds.matrix or self.kinds.p2p) and "matrix" or self.kinds.nvlink and "nvlink" or self.kinds[1]
  local record = { source = { kind = kind, files = { self.name } }, hosts = {}, networks = {}, devices = {},
    links = {}, nics = {}, doubts = self.doubts }
  for i, id in ipairs(host_ids(hosts)) do
    local host = hosts[i]
    record.hosts[i] = { id = id, driver = host.facts.driver, cuda = host.facts.cuda, cpu = host.facts.cpu, numa = host.facts.numa }
    name_devices(host, id, #hosts > 1)
    for _, d in ipairs(host.devices) do record.devices[#record.devices + 1] = plain_device(d) end
    for _, l in ipairs(sorted_links(host)) do record.links[#record.links + 1] = l end
    for _, n in ipairs(host.nics) do record.nics[#record.nics + 1] = plain_nic(n, id) end
  end
  return record
end

return M
