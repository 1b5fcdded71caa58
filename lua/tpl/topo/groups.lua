-- SPDX-License-Identifier: Apache-2.0
--- Choose which devices work together: the best group of n, the best pairs, a partition. Pure: reads a topology, changes nothing.
-- Used for `suggest` and by policies. The ranking is in groups/score.lua. Groups form inside one host, and across hosts only when no host has
-- enough devices; then whole hosts are joined, those of one NVLink fabric first. Devices that are not usable, and MIG slices in groups of two or
-- more, are left out whatever the caller gives.
local order = require("tpl.topo.order")
local pair = require("tpl.topo.pair")
local score = require("tpl.topo.groups.score")
local search = require("tpl.topo.groups.search")
local view = require("tpl.topo.groups.view")

local M = {}

local function eligible(t, uids, n)
  local out, seen = {}, {}
  for _, uid in ipairs(uids or M.candidates(t)) do
    local d = t:dev(uid)
    if d and not seen[uid] and d.usable ~= false and not (n > 1 and d.kind == "mig") then out[#out + 1] = uid end
    seen[uid] = true
  end
  return out
end

--- List the devices that groups are made of: the usable GPUs, or on a machine without any GPU its CPU devices.
---@param t tpl.Topo
---@return string[]
function M.candidates(t)
  if t:ids { kind = "gpu" }[1] or t:ids { kind = "mig" }[1] then return t:ids { kind = "gpu", usable = true } end
  return t:ids { kind = "cpu", usable = true }
end

--- Sort uids into hosts, the hosts in stable order.
local function by_host(t, uids)
  local hosts, at = {}, {}
  for _, uid in ipairs(uids) do
    local id = t:dev(uid).host
    if not at[id] then
      at[id] = { id = id, uids = {} }
      hosts[#hosts + 1] = at[id]
    end
    table.insert(at[id].uids, uid)
  end
  table.sort(hosts, function(a, b) return order.before(a.id, b.id) end)
  return hosts
end

local function all_of(v)
  local pool = {}
  for i = 1, v.n do pool[i] = i end
  return pool
end

local function names(v, ids)
  local out = {}
  for i, x in ipairs(ids) do out[i] = v.uid[x] end
  return out
end

-- -- Across hosts ----------------------------------------------------------------------------------------------------

--- Gather hosts that can serve one group: those of one NVLink fabric, then all together.
local function domains(t, hosts)
  local fabrics, out, rest = {}, {}, {}
  for _, h in ipairs(hosts) do
    local fabric = t:fabric(h.uids[1])
    if fabric then
      if not fabrics[fabric] then
        fabrics[fabric] = {}
        out[#out + 1] = fabrics[fabric]
      end
      table.insert(fabrics[fabric], h)
    else
      rest[#rest + 1] = h
    end
  end
  if rest[1] then out[#out + 1] = rest end
  return out
end

--- Take hosts in turn, whole ones first, until n devices are there.
local function gather(t, hosts, n, nics)
  local sorted = {}
  for i, h in ipairs(hosts) do sorted[i] = { h = h, i = i } end
  table.sort(sorted, function(a, b)
    if #a.h.uids ~= #b.h.uids then return #a.h.uids > #b.h.uids end
    return a.i < b.i
  end)
  local group, used = {}, {}
  for _, entry in ipairs(sorted) do
    local want = n - #group
    if want == 0 then break end
    local uids = entry.h.uids
    if #uids > want then uids = M.best(t, uids, want, { nics = nics }) end
    for _, uid in ipairs(uids) do
      group[#group + 1] = uid
      used[uid] = true
    end
  end
  if #group < n then return nil end
  return group, used
end

local function across(t, hosts, n, nics)
  local best = nil
  for _, domain in ipairs(domains(t, hosts)) do
    best = best or gather(t, domain, n, nics)
  end
  return best or gather(t, hosts, n, nics)
end

local function partition_across(t, hosts, n, nics)
  local out = {}
  local function take(list)
    while true do
      local group, used = gather(t, list, n, nics)
      if not group then return list end
      out[#out + 1] = group
      local left = {}
      for _, h in ipairs(list) do
        local uids = {}
        for _, uid in ipairs(h.uids) do
          if not used[uid] then uids[#uids + 1] = uid end
        end
        if uids[1] then left[#left + 1] = { id = h.id, uids = uids } end
      end
      list = left
    end
  end
  local rest = {}
  for _, domain in ipairs(domains(t, hosts)) do
    for _, h in ipairs(take(domain)) do rest[#rest + 1] = h end
  end
  take(rest)
  return out
end

-- -- Public ----------------------------------------------------------------------------------------------------------

--- Find the best group of n devices.
---@param t tpl.Topo
---@param uids string[]?   to choose from; nil: all candidates
---@param n integer
---@param opts? {nics?: boolean}  nics: the job spans hosts, near NICs count
---@return string[]? group  in stable order; nil when there are fewer than n usable devices
---@return number[]? score  for `score.compare`; nil for a group over several hosts
function M.best(t, uids, n, opts)
  local nics = opts and opts.nics or false
  local list = eligible(t, uids, n)
  if #list < n or n < 1 then return nil end
  local hosts, best, best_score = by_host(t, list), nil, nil
  for _, h in ipairs(hosts) do
    if #h.uids >= n then
      local v = view.new(t, h.uids, nics)
      local ids, s = search.best(v, all_of(v), n)
      if not best or score.compare(s, best_score) < 0 then best, best_score = names(v, ids), s end
    end
  end
  if best then return best, best_score end
  return (across(t, hosts, n, nics))
end

local function sorted_groups(list)
  for i, entry in ipairs(list) do entry.i = i end
  table.sort(list, function(a, b)
    local c = score.compare(a.score, b.score)
    if c ~= 0 then return c < 0 end
    return a.i < b.i
  end)
  local out = {}
  for i, entry in ipairs(list) do out[i] = entry.uids end
  return out
end

--- Cut devices into groups of n, best first; devices left over are in none. Never across hosts, unless no host has n.
---@param t tpl.Topo
---@param uids string[]?
---@param n integer
---@param opts? {nics?: boolean}
---@return string[][]
function M.partition(t, uids, n, opts)
  local nics = opts and opts.nics or false
  local list = eligible(t, uids, n)
  if n < 1 then return {} end
  local hosts, found, largest = by_host(t, list), {}, 0
  for _, h in ipairs(hosts) do largest = math.max(largest, #h.uids) end
  if largest < n then return partition_across(t, hosts, n, nics) end
  for _, h in ipairs(hosts) do
    if #h.uids >= n then
      local v = view.new(t, h.uids, nics)
      for _, ids in ipairs(search.partition(v, all_of(v), n)) do
        table.sort(ids)
        found[#found + 1] = { uids = names(v, ids), score = score.of(v, ids) }
      end
    end
  end
  return sorted_groups(found)
end

--- Pair devices: the partition in pairs. The best pair that there is comes first, then the best of the others; among equal ones the choice looks ahead.
---@param t tpl.Topo
---@param uids string[]?
---@param opts? {nics?: boolean}
---@return string[][]
function M.matching(t, uids, opts) return M.partition(t, uids, 2, opts) end

local function facts_of(t, group)
  local v = view.new(t, group, false)
  return score.facts(v, all_of(v)), v
end

--- Compare two groups of devices by points 2 to 7; below 0 when A is better, 0 when neither is.
---@param t tpl.Topo
---@param group_a string[]
---@param group_b string[]
---@param opts? {nics?: boolean, pool?: string[]}  pool: what the groups were chosen from, for point 7
---@return integer
function M.compare(t, group_a, group_b, opts)
  local pool, seen = {}, {}
  local function add(list)
    for _, uid in ipairs(list) do
      if not seen[uid] then
        pool[#pool + 1] = uid
        seen[uid] = true
      end
    end
  end
  add(group_a)
  add(group_b)
  add(opts and opts.pool or {})
  local v, at = view.new(t, pool, opts and opts.nics), {}
  for i, uid in ipairs(v.uid) do at[uid] = i end
  local function positions(group)
    local ids = {}
    for i, uid in ipairs(group) do ids[i] = at[uid] end
    table.sort(ids)
    return ids
  end
  return score.compare((score.of(v, positions(group_a))), (score.of(v, positions(group_b))))
end

--- Find the worst pair of a group: fewest NVLinks, then the longest PCIe way. Nothing for a group of one.
---@param t tpl.Topo
---@param group string[]
---@return table? link  nil when the pair's link is unknown
---@return string? a
---@return string? b
function M.weakest(t, group)
  local worst_a, worst_b, worst_key
  for i, a in ipairs(group) do
    for j = i + 1, #group do
      local link = t:either(a, group[j])
      local key = (64 - math.min(63, pair.nvlinks(link))) * 128 + pair.rank(link)
      if not worst_key or key > worst_key then worst_a, worst_b, worst_key = a, group[j], key end
    end
  end
  if not worst_a then return nil end
  return t:link(worst_a, worst_b), worst_a, worst_b
end

--- Tell what a group is, for reasons and reports.
---@param t tpl.Topo
---@param group string[]
---@return {models: integer, joined: boolean, full: boolean, weakest: integer, total: integer, worst: integer, sockets: integer, nodes: integer}
--- joined: by NVLink; full: every pair; weakest and total in NVLinks; worst as tpl.topo.pair ranks; unknown sockets and nodes count as different
function M.describe(t, group) return (facts_of(t, group)) end

return M
