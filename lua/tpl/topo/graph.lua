-- SPDX-License-Identifier: Apache-2.0
--- Make the topology object that policies see: the record's own fields, and questions about devices, links, hosts and sockets.
-- Links are indexed once; nothing here chooses (tpl.topo.groups does) and nothing touches a device.
local order = require("tpl.topo.order")
local pair = require("tpl.topo.pair")
local sockets = require("tpl.topo.sockets")

local M = {}

---@class tpl.Topo
---@field source table
---@field hosts table[]
---@field networks table[]
---@field devices table[]
---@field links table[]
---@field nics table[]
---@field islands table[]
---@field suggest table
---@field doubts table[]
local Topo = {}
Topo.__index = Topo

-- Indices stand beside the object, so that its fields stay those of the record.
local index_of = setmetatable({}, { __mode = "k" })

local swapped = { p2p = "p2p_ba", p2p_ba = "p2p", gb_s = "gb_s_ba", gb_s_ba = "gb_s", us = "us_ba", us_ba = "us" }

--- Give a link as seen from its other end. Where the way back is not told apart, it is taken to be the same.
local function other_way(link)
  local back = {}
  for key, value in pairs(link) do back[swapped[key] or key] = value end
  back.a, back.b = link.b, link.a
  back.p2p, back.gb_s, back.us = link.p2p_ba or link.p2p, link.gb_s_ba or link.gb_s, link.us_ba or link.us
  back.p2p_ba, back.gb_s_ba, back.us_ba = link.p2p_ba and link.p2p, link.gb_s_ba and link.gb_s, link.us_ba and link.us
  return back
end

local function build(t)
  local index = { device = {}, link = {}, host = {}, network = {} }
  for _, d in ipairs(t.devices) do index.device[d.uid] = d end
  for _, h in ipairs(t.hosts) do index.host[h.id] = h end
  for _, link in ipairs(t.links) do
    index.link[link.a] = index.link[link.a] or {}
    index.link[link.b] = index.link[link.b] or {}
    index.link[link.a][link.b], index.link[link.b][link.a] = link, link
  end
  for _, network in ipairs(t.networks or {}) do
    local members = {}
    for _, id in ipairs(network.hosts or {}) do members[id] = true end
    index.network[#index.network + 1] = { network = network, members = members }
  end
  return index
end

--- Make the object of a record. Its tables are used, not copied; the links must not change afterwards.
---@param record table
---@return tpl.Topo
function M.new(record)
  for _, name in ipairs { "hosts", "networks", "devices", "links", "nics", "islands", "doubts" } do record[name] = record[name] or {} end
  record.suggest = record.suggest or { tp2 = {}, tp4 = {} }
  local t = setmetatable(record, Topo)
  index_of[t] = build(t)
  return t
end

--- Say whether a value is such an object.
function M.is(x) return getmetatable(x) == Topo end

--- Forget what was derived from fields that changed (NUMA, links, devices).
function Topo:reindex() index_of[self] = build(self) end

--- Give a device by uid, nil when there is none.
---@param uid string
---@return table?
function Topo:dev(uid) return index_of[self].device[uid] end

--- Give a host by id, nil when there is none.
---@param id string
---@return table?
function Topo:host(id) return index_of[self].host[id] end

--- Give the fastest network that joins two hosts, nil when none is known.
---@param a string  host id
---@param b string
---@return table?
function Topo:network(a, b)
  local best
  for _, entry in ipairs(index_of[self].network) do
    if entry.members[a] and entry.members[b] then
      local n = entry.network
      if not best or (n.gb_s or 0) > (best.gb_s or 0) then best = n end
    end
  end
  return best
end

--- Give the name of the NVLink fabric that a device shares with other hosts, nil without one. Two devices are in one fabric only if it is
--- completed and healthy, the cluster is not all zeros (that is a fabric of one host), and cluster and clique are equal.
---@param uid string
---@return string?
function Topo:fabric(uid)
  local d = self:dev(uid)
  local f = d and d.usable ~= false and d.fabric
  if type(f) ~= "table" or type(f.state) ~= "string" or f.state:lower() ~= "completed" or f.clique == nil then return nil end
  if type(f.cluster) ~= "string" or not f.cluster:find("[1-9a-fA-F]") then return nil end
  return f.cluster:lower() .. "/" .. tostring(f.clique)
end

local function across_hosts(t, da, db)
  local fabric = t:fabric(da.uid)
  if fabric and fabric == t:fabric(db.uid) then
    return { a = da.uid, b = db.uid, kind = "nvlink", via_switch = true, source = "assumed" }
  end
  local network = t:network(da.host, db.host)
  if not network then return nil end
  return { a = da.uid, b = db.uid, kind = "net", gb_s = network.gb_s, us = network.us, source = network.source or "stated" }
end

--- Give the link between two devices as seen from a; nil when nothing is known about the pair. Devices of two hosts have a link made up of
--- their network (kind "net"), or of the NVLink fabric that they share.
---@param a string
---@param b string
---@return table?
function Topo:link(a, b)
  local of_a = index_of[self].link[a]
  local link = of_a and of_a[b]
  if link then return link.a == a and link or other_way(link) end
  local da, db = self:dev(a), self:dev(b)
  if da and db and a ~= b and da.host ~= db.host then return across_hosts(self, da, db) end
end

--- Give the link of two devices without turning it round, for rules that do not care about the way.
function Topo:either(a, b)
  local of_a = index_of[self].link[a]
  return of_a and of_a[b] or self:link(a, b)
end

local function free(d)
  if d.free_bytes then return d.free_bytes end
  return d.mem_bytes and d.mem_bytes - ((d.busy or {}).used_bytes or 0)
end

local function passes(d, want)
  if want.kind and d.kind ~= want.kind then return false end
  if want.usable ~= nil and (d.usable ~= false) ~= want.usable then return false end
  if want.host and d.host ~= want.host then return false end
  if want.numa and d.numa ~= want.numa then return false end
  if want.name and d.name ~= want.name then return false end
  if want.sm and not (tonumber(d.sm) and tonumber(d.sm) >= tonumber(want.sm)) then return false end
  if want.min_free and not (free(d) and free(d) >= want.min_free) then return false end
  return true
end

local filters = { min_free = true, sm = true, host = true, numa = true, kind = true, usable = true, name = true }

--- List devices in index order. All conditions must hold; what a device does not tell fails its condition.
---@param want? {min_free?: number, sm?: string, host?: string, numa?: integer, kind?: string, usable?: boolean, name?: string}
--- min_free in bytes (total memory where the free memory is unknown); sm is the least compute capability, "9.0"
---@return string[] uids
function Topo:ids(want)
  want = want or {}
  for key in pairs(want) do
    if not filters[key] then error("topo:ids knows no condition '" .. tostring(key) .. "'", 2) end
  end
  local out = {}
  for _, d in ipairs(self.devices) do
    if passes(d, want) then out[#out + 1] = d.uid end
  end
  return out
end

--- List the devices with these indices, in the order given. MIG slices and CPUs have indices of their own and are not meant.
---@param want {ids: integer[], host?: string}
---@return string[] uids
function Topo:pick(want)
  local by_index = {}
  for _, d in ipairs(self.devices) do
    if d.kind == "gpu" and (not want.host or d.host == want.host) and d.index and not by_index[d.index] then by_index[d.index] = d.uid end
  end
  local out = {}
  for _, i in ipairs(want.ids or {}) do out[#out + 1] = by_index[i] end
  return out
end

local function gather(t, key_of)
  local groups, at = {}, {}
  for _, d in ipairs(t.devices) do
    local key = key_of(d)
    if key then
      if not at[key] then
        groups[#groups + 1] = {}
        at[key] = groups[#groups]
      end
      table.insert(at[key], d.uid)
    end
  end
  return groups
end

--- List groups of devices: "nvlink" (islands), "socket", "numa", "host", "name".
---@param what string
---@return string[][]
function Topo:groups(what)
  if what == "nvlink" then
    local out = {}
    for i, island in ipairs(self.islands) do out[i] = island.devices end
    return out
  end
  if what == "socket" then return gather(self, function(d) return self:socket(d.uid) end) end
  if what == "numa" then return gather(self, function(d) return self:numa_node(d.uid) end) end
  if what == "host" then return gather(self, function(d) return d.host end) end
  if what == "name" then return gather(self, function(d) return d.name end) end
  error("topo:groups knows nvlink, socket, numa, host, name, not '" .. tostring(what) .. "'", 2)
end

local function sides(t)
  local index = index_of[t]
  index.sockets = index.sockets or sockets.assign(t)
  return index.sockets
end

--- Give the name of the CPU socket of a device: a NUMA node, or the nodes that one socket is cut into. Equal for devices of one socket; nil unknown.
---@param uid string
---@return string?
function Topo:socket(uid) return sides(self).socket[uid] end

--- Give the name of the CPU socket of a device as far as the input tells it, without guessing from the numbers of NUMA nodes; nil unknown.
---@param uid string
---@return string?
function Topo:firm_socket(uid) return sides(self).firm[uid] end

--- Give the name of the NUMA node of a device, from its number or else its CPU list; nil unknown.
---@param uid string
---@return string?
function Topo:numa_node(uid) return sides(self).node[uid] end

--- Say whether peer access between two devices is refused.
function Topo:refused(a, b) return pair.refused(self:either(a, b)) end

--- Sort uids by host, PCI address, UUID and uid.
function Topo:sorted(uids) return order.sort(self, uids) end

return M
