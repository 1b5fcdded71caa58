-- SPDX-License-Identifier: Apache-2.0
--- Merge what several files say of the same machines into one record: a matrix, a -L list, a P2P table, an XML.
-- Devices are matched by UUID, else PCI address, else index. A later file adds facts. Where two files disagree there is a doubt, and the record
-- keeps what is worse or unknown: a contradiction is never resolved to the better side.
--
-- Contents: copies and names - hosts - devices (merge/devices.lua) - links (merge/links.lua) - NICs - M.merge
local devices = require("tpl.topo.merge.devices")
local links = require("tpl.topo.merge.links")
local util = require("tpl.util")

local M = {}

local function copy(v)
  if type(v) ~= "table" then return v end
  local out = {}
  for key, x in pairs(v) do out[key] = copy(x) end
  return setmetatable(out, getmetatable(v))
end

local function file_of(part) return part.source and part.source.files and part.source.files[1] or part.source and part.source.kind or "input" end

local function has_code(part, code)
  for _, d in ipairs(part.doubts or {}) do if d.code == code then return true end end
  return false
end

--- Say whether a part's silence about NVLink means that there is none. Only a source that shows NVLink of every pair says so.
local function speaks_of_nvlink(part)
  for _, code in ipairs { "nvlink_unstated", "mp_hides_nvlink", "truncated", "self_link" } do
    if has_code(part, code) then return false end
  end
  for _, link in ipairs(part.links or {}) do if link.kind == "nvlink" then return true end end
  local kind = part.source and part.source.kind
  return kind == "matrix" or kind == "probe" or kind == "record" or kind == "merged"
end

-- -- Hosts -----------------------------------------------------------------------------------------------------------

local function host_by_id(record, id)
  for _, h in ipairs(record.hosts) do if h.id == id then return h end end
end

local function is_unnamed(id) return id == nil or id:find("^host%d*$") ~= nil end

--- The host of `out` that a part's host is: of the same id; the only one, where either side has no real name; that of a device with the
--- same UUID; else a new one.
local function match_host(out, part, host)
  local same = host_by_id(out, host.id)
  if same then return same end
  if #out.hosts == 1 and #part.hosts == 1 and (is_unnamed(out.hosts[1].id) or is_unnamed(host.id)) then return out.hosts[1] end
  for _, d in ipairs(part.devices) do
    for _, e in ipairs(out.devices) do
      if d.host == host.id and d.uuid and d.uuid == e.uuid then return host_by_id(out, e.host) end
    end
  end
end

local function merge_numa(into, from)
  local by_id = {}
  for _, n in ipairs(into) do by_id[n.id or ""] = n end
  for _, n in ipairs(from or {}) do
    local own = by_id[n.id or ""]
    if own then
      own.cpus, own.mem_bytes = own.cpus or n.cpus, own.mem_bytes or n.mem_bytes
    else
      into[#into + 1] = n
    end
  end
end

local function rename_host(out, from, to)
  for _, list in ipairs { out.devices, out.nics } do
    for _, d in ipairs(list) do if d.host == from then d.host = to end end
  end
  for _, n in ipairs(out.networks) do
    for i, id in ipairs(n.hosts or {}) do if id == from then n.hosts[i] = to end end
  end
end

--- Merge the hosts; gives the ids of the part as ids of `out`.
local function merge_hosts(out, part, say)
  local ids = {}
  for _, host in ipairs(part.hosts) do
    local own = match_host(out, part, host)
    if not own then
      out.hosts[#out.hosts + 1] = host
      ids[host.id] = host.id
    else
      if is_unnamed(own.id) and not is_unnamed(host.id) then
        rename_host(out, own.id, host.id)
        own.id = host.id
      end
      ids[host.id] = own.id
      for _, key in ipairs { "driver", "cuda" } do
        if own[key] and host[key] and own[key] ~= host[key] then
          say("contradiction", ("host %s: %s is %s and here %s: the first is kept"):format(own.id, key, own[key], host[key]))
        end
        own[key] = own[key] or host[key]
      end
      own["repeat"] = own["repeat"] or host["repeat"]
      own.cpu = own.cpu or host.cpu
      for key, v in pairs(own.cpu and host.cpu or {}) do if own.cpu[key] == nil then own.cpu[key] = v end end
      own.numa = own.numa or {}
      merge_numa(own.numa, host.numa)
    end
  end
  return ids
end

-- -- NICs ------------------------------------------------------------------------------------------------------------

local function same_nic(a, b)
  local da, db = a.device or a.name, b.device or b.name
  if da == db or a.name == b.name and not (a.device and b.device) then return true end
  return a.pci ~= nil and a.pci == b.pci and not (a.device and b.device)
end

local function merge_nics(out, part, name_of, ids, say, weak)
  for _, nic in ipairs(part.nics or {}) do
    local to = {}
    for uid, word in pairs(nic.to or {}) do to[name_of[uid] or uid] = word end
    nic.to = next(to) and to or nil
    nic.near = nic.near and util.map(nic.near, function(uid) return name_of[uid] or uid end)
    nic.host = ids[nic.host or ""] or nic.host
    local own
    for _, n in ipairs(out.nics) do
      if not own and same_nic(n, nic) and not (n.host and nic.host and n.host ~= nic.host) then own = n end
    end
    if not own then
      out.nics[#out.nics + 1] = nic
    else
      for _, key in ipairs { "host", "device", "pci", "numa", "gb_s", "gdr" } do if own[key] == nil then own[key] = nic[key] end end
      own.to = own.to or {}
      for uid, word in util.pairs(nic.to or {}) do own.to[uid] = links.path_word(own.to[uid], word, own.name .. " to " .. uid, say, weak) end
      if own.to and next(own.to) then own.near = nil else own.near = own.near or nic.near end -- finish finds the nearest by `to`
    end
  end
end

-- -- All -------------------------------------------------------------------------------------------------------------

local function as_part(record)
  local part = copy(record)
  for _, key in ipairs { "hosts", "devices", "links", "nics", "doubts", "networks" } do part[key] = part[key] or {} end
  if not part.hosts[1] then part.hosts[1] = { id = "host0" } end
  for _, d in ipairs(part.devices) do
    d.host = d.host or part.hosts[1].id
    d.kind = d.kind or "gpu"
  end
  part.silent = not speaks_of_nvlink(part)
  part.weak = part.source and (part.source.kind == "nccl-xml" or part.source.kind == "hwloc-xml") or false
  part.by_order = has_code(part, "index_by_order")
  part.file = file_of(part)
  for _, d in ipairs(part.doubts) do d.file = d.file or part.file end
  return part
end

local function add_doubts(out, part)
  for _, d in ipairs(part.doubts) do out.doubts[#out.doubts + 1] = d end
end

-- Doubts of one file that another one answered.
local function drop_answered(out)
  local any = false
  for _, link in ipairs(out.links) do any = any or link.kind == "nvlink" end
  local kept = {}
  for _, d in ipairs(out.doubts) do
    local answered = any and (d.code == "nvlink_unstated" or d.code == "mp_hides_nvlink") or d.code == "index_by_order" and not out.by_order
    if not answered then kept[#kept + 1] = d end
  end
  out.doubts = kept
end

local function merge_networks(out, part, ids)
  for _, n in ipairs(part.networks) do
    n.hosts = n.hosts and util.map(n.hosts, function(id) return ids[id] or id end)
    local known = false
    for _, own in ipairs(out.networks) do known = known or util.same(own, n) end
    if not known then out.networks[#out.networks + 1] = n end
  end
end

local function add_part(out, part)
  local function say(code, message) out.doubts[#out.doubts + 1] = { file = part.file, code = code, message = message .. " (" .. part.file .. ")" } end
  local ids = merge_hosts(out, part, say)
  for _, d in ipairs(part.devices) do d.host = ids[d.host] or d.host end
  local name_of = devices.merge(out, part, say)
  for _, d in ipairs(part.devices) do
    if d.mig and d.mig.parent then d.mig.parent = name_of[d.mig.parent] or d.mig.parent end
  end
  links.merge(out, part, name_of, say)
  merge_nics(out, part, name_of, ids, say, part.weak or out.weak)
  merge_networks(out, part, ids)
  add_doubts(out, part)
  out.silent = out.silent and part.silent
  out.weak = out.weak and part.weak
  for _, f in ipairs(part.source and part.source.files or {}) do out.source.files[#out.source.files + 1] = f end
end

--- Merge partial records of the same machines, in the order given; the records themselves stay as they are.
---@param records table[]   at least one
---@return table record     source.kind "merged" for two or more; islands and suggestions are left to tpl.topo.finish
function M.merge(records)
  local out = as_part(records[1])
  out.source = out.source or {}
  out.source.files = out.source.files or {}
  out.islands, out.suggest = nil, nil
  for i = 2, #records do add_part(out, as_part(records[i])) end
  if #records > 1 then out.source.kind = "merged" end
  devices.settle(out, links, #records > 1)
  drop_answered(out)
  out.silent, out.weak, out.by_order, out.file = nil, nil, nil, nil
  return out
end

return M
