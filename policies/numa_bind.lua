-- SPDX-License-Identifier: Apache-2.0
--- No TP group across NUMA nodes. Heuristic: first the equal devices of one node alone, those with most memory first, then pipelines
--- of equal devices whose stages each stay in one node; the best price wins. A device whose node is not known is left out.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"
local pools = require "tpl.place.pools"
local requirements = require "tpl.place.requirements"

local function by_node(topo, uids)
  local nodes, list, unknown = {}, {}, {}
  for _, uid in ipairs(uids) do
    local d = topo:dev(uid)
    if d.numa == nil then
      unknown[#unknown + 1] = { uid = uid, why = "its NUMA node is not known" }
    else
      local key = ("%s NUMA node %d"):format(d.host or "", d.numa)
      if not nodes[key] then
        nodes[key] = { what = key, uids = {} }
        list[#list + 1] = nodes[key]
      end
      table.insert(nodes[key].uids, uid)
    end
  end
  return list, unknown
end

local function first_address(topo, uids)
  local least
  for _, uid in ipairs(uids) do
    local d = topo:dev(uid)
    local address = ("%s %s"):format(d.host or "", d.pci or d.uuid or d.uid)
    if not least or address < least then least = address end
  end
  return least
end

-- Most memory first; of equal ones that of the first address: the order of indices decides nothing.
local function by_memory(a, b)
  if a.bytes ~= b.bytes then return a.bytes > b.bytes end
  if a.key ~= b.key then return a.key < b.key end
  return a.first < b.first
end

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local quiet, excluded = pools.quiet(topo, want.uids, want.own)
  local nodes, unknown = by_node(topo, quiet)
  for _, x in ipairs(unknown) do excluded[#excluded + 1] = x end
  local attempts, all = {}, {}
  for _, node in ipairs(nodes) do
    for _, pool in ipairs(pools.alike(topo, node.uids)) do
      attempts[#attempts + 1] = { uids = pool.uids, what = node.what, excluded = excluded, bytes = pool.bytes, key = pool.key,
        first = first_address(topo, pool.uids) }
      for _, uid in ipairs(pool.uids) do all[#all + 1] = uid end
    end
  end
  table.sort(attempts, by_memory)
  for _, pool in ipairs(pools.alike(topo, all)) do
    attempts[#attempts + 1] = { uids = pool.uids, what = "stages in one NUMA node each", excluded = excluded }
  end
  return decide.choose(topo, model, want, attempts, function(c)
    for _, replica in ipairs(c.replicas) do
      if #requirements.unmet(topo, replica, {}, { same_numa = true }) > 0 then return false end
    end
    return true
  end)
end
