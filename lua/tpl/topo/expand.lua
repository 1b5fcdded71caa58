-- SPDX-License-Identifier: Apache-2.0
--- Expand `repeat: N` on a host into N hosts: one recorded machine stands for a cluster of its kind.
-- Host ID becomes ID.0 .. ID.(N-1), its devices ID.i/UID. A network that names the host means all its copies. UUIDs belong to one card, so copies have none.
local err = require("tpl.err")

local M = {}

local MAX_HOSTS, MAX_DEVICES, MAX_LINKS = 16384, 65536, 2000000

local function copy(v)
  if type(v) ~= "table" then return v end
  local out = {}
  for key, x in pairs(v) do out[key] = copy(x) end
  return setmetatable(out, getmetatable(v))
end

local function fail(record, message)
  err.throw { code = "format", where = record.source and record.source.files and record.source.files[1], message = message }
end

--- List the copies of every host: {id, name(uid) -> new uid}; a host without `repeat` is its own only copy.
local function plan(record)
  local copies, total = {}, 0
  for _, h in ipairs(record.hosts or {}) do
    local n = h["repeat"] or 1
    if type(n) ~= "number" or n < 1 or n ~= math.floor(n) then fail(record, ("host %s: repeat is %s, expected a whole number of 1 or more"):format(tostring(h.id), tostring(n))) end
    total = total + n
    if total > MAX_HOSTS then fail(record, ("more than %d hosts"):format(MAX_HOSTS)) end
    local list = {}
    for i = 1, n do list[i] = n == 1 and h.id or h.id .. "." .. i - 1 end
    copies[h.id] = list
  end
  return copies
end

local function check_size(record, copies, host_of)
  local devices, links = 0, 0
  for _, d in ipairs(record.devices or {}) do devices = devices + #(copies[d.host] or { 1 }) end
  for _, l in ipairs(record.links or {}) do links = links + #(copies[host_of[l.a] or ""] or { 1 }) end
  if devices > MAX_DEVICES or links > MAX_LINKS then
    fail(record, ("%d devices with %d links, at most %d and %d are planned for"):format(devices, links, MAX_DEVICES, MAX_LINKS))
  end
end

local function copied(d, id)
  local c = copy(d)
  c.host, c.uid, c.uuid = id, id .. "/" .. d.uid, nil
  if c.mig and c.mig.parent then c.mig.parent = id .. "/" .. c.mig.parent end
  if c.busy then c.busy.pids = nil end
  return c
end

--- Devices host by host; those of a host that the record does not list come last.
local function expand_devices(record, copies, out)
  local by_host = {}
  for _, d in ipairs(record.devices or {}) do
    local key = copies[d.host] and d.host or ""
    by_host[key] = by_host[key] or {}
    table.insert(by_host[key], d)
  end
  for _, h in ipairs(record.hosts) do
    local list = copies[h.id]
    for _, id in ipairs(list) do
      for _, d in ipairs(by_host[h.id] or {}) do out[#out + 1] = #list > 1 and copied(d, id) or copy(d) end
    end
  end
  for _, d in ipairs(by_host[""] or {}) do out[#out + 1] = copy(d) end
end

--- Name a device in copy i of its host; uids of hosts that are not repeated stay.
local function namer(copies, host_of)
  return function(uid, i)
    local list = copies[host_of[uid] or ""]
    if not list or #list == 1 then return uid end
    return list[i] .. "/" .. uid
  end
end

local function copies_of(copies, host) return copies[host or ""] and #copies[host] or 1 end

local function expand_links(record, copies, host_of, name, out)
  for _, l in ipairs(record.links or {}) do
    local ha, hb = host_of[l.a], host_of[l.b]
    local n = copies_of(copies, ha)
    if ha ~= hb and (n > 1 or copies_of(copies, hb) > 1) then
      fail(record, ("a link from %s to %s, on a host that is repeated: which copy is unknown; give networks between hosts"):format(l.a, l.b))
    end
    for i = 1, n do
      local c = copy(l)
      c.a, c.b = name(l.a, i), name(l.b, i)
      out[#out + 1] = c
    end
  end
end

--- The host of a NIC: that of the devices it names, else the only one.
local function host_of_nic(record, nic, host_of)
  local uid = nic.near and nic.near[1] or next(nic.to or {})
  return nic.host or host_of[uid or ""] or (#record.hosts == 1 and record.hosts[1].id) or nil
end

local function expand_nics(record, copies, host_of, name, out)
  for _, nic in ipairs(record.nics or {}) do
    local host = host_of_nic(record, nic, host_of)
    local n = copies_of(copies, host)
    for i = 1, n do
      local c = copy(nic)
      if n > 1 then
        c.host = copies[host][i]
        c.name = nic.name and copies[host][i] .. "/" .. nic.name
        c.to = nic.to and {}
        for uid, word in pairs(nic.to or {}) do c.to[name(uid, i)] = word end
        for j, uid in ipairs(c.near or {}) do c.near[j] = name(uid, i) end
      end
      out[#out + 1] = c
    end
  end
end

--- Expand a record; without `repeat` it comes back as it is.
---@param record table   devices have uid and host
---@return table record  a new one where something is repeated; islands and suggestions are left to tpl.topo.finish
function M.expand(record)
  local copies, repeated, host_of = plan(record), false, {}
  for _, list in pairs(copies) do repeated = repeated or #list > 1 end
  for _, d in ipairs(record.devices or {}) do
    d.host = d.host or record.hosts and record.hosts[1] and record.hosts[1].id
    if repeated and not d.uid then d.uid = d.uuid or (d.kind == "cpu" and "cpu" or "GPU") .. (d.index or 0) end
    host_of[d.uid or ""] = d.host
  end
  if not repeated then return record end
  check_size(record, copies, host_of)
  local out = { hosts = {}, networks = {}, devices = {}, links = {}, nics = {} }
  for key, v in pairs(record) do if out[key] == nil and key ~= "islands" and key ~= "suggest" then out[key] = v end end
  for _, h in ipairs(record.hosts) do
    for _, id in ipairs(copies[h.id]) do
      local c = copy(h)
      c.id, c["repeat"] = id, nil
      out.hosts[#out.hosts + 1] = c
    end
  end
  for _, n in ipairs(record.networks or {}) do
    local c = copy(n)
    c.hosts = {}
    for _, id in ipairs(n.hosts or {}) do
      for _, one in ipairs(copies[id] or { id }) do c.hosts[#c.hosts + 1] = one end
    end
    out.networks[#out.networks + 1] = c
  end
  local name = namer(copies, host_of)
  expand_devices(record, copies, out.devices)
  expand_links(record, copies, host_of, name, out.links)
  expand_nics(record, copies, host_of, name, out.nics)
  return out
end

return M
