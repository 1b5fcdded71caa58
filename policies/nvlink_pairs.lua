-- SPDX-License-Identifier: Apache-2.0
--- TP=2 inside NVLink pairs, pipelines across them. Heuristic: pairs of equal devices by a best matching over the NVLink links
--- whose P2P is not refused; devices without a partner stay free. Refuses a machine without such a pair.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"
local groups = require "tpl.topo.groups"
local links = require "tpl.topo.pair"
local pools = require "tpl.place.pools"

local function nvlink_pairs(topo, uids)
  local out = {}
  for _, pair in ipairs(groups.matching(topo, uids)) do
    if links.nvlinks(topo:link(pair[1], pair[2])) > 0 then out[#out + 1] = pair end
  end
  return out
end

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local quiet, excluded = pools.quiet(topo, want.uids, want.own)
  local list, n_pairs = {}, 0
  for _, pool in ipairs(pools.alike(topo, quiet)) do
    local found = nvlink_pairs(topo, pool.uids)
    n_pairs = n_pairs + #found
    for pp = want.pp or 1, want.pp or math.min(#found, model.n_layer) do
      for _, c in ipairs(candidates.one(topo, model, want, pool.uids, 2, pp, found)) do list[#list + 1] = c end
    end
  end
  if n_pairs == 0 then return nil, "no two equal devices are joined by NVLink" end
  return decide.among(topo, model, want, list, { what = "NVLink pairs", excluded = excluded })
end
