-- SPDX-License-Identifier: Apache-2.0
--- No TP group across NUMA nodes. Heuristic: first the devices of one node alone, then pipelines whose stages each stay in one
--- node; the best price wins. A device whose node is not known is left out.
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

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local quiet, excluded = pools.quiet(topo, want.uids)
  local nodes, unknown = by_node(topo, quiet)
  for _, x in ipairs(unknown) do excluded[#excluded + 1] = x end
  local attempts, all = {}, {}
  for _, node in ipairs(nodes) do
    for _, pool in ipairs(pools.alike(topo, node.uids)) do
      attempts[#attempts + 1] = { uids = pool.uids, what = node.what, excluded = excluded }
      for _, uid in ipairs(pool.uids) do all[#all + 1] = uid end
    end
  end
  attempts[#attempts + 1] = { uids = all, what = "stages in one NUMA node each", excluded = excluded }
  return decide.choose(topo, model, want, attempts, function(c)
    return #requirements.unmet(topo, c.replicas[1], {}, { same_numa = true }) == 0
  end)
end
