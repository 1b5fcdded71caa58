-- SPDX-License-Identifier: Apache-2.0
--- One TP group over unequal devices. Heuristic: every quiet device takes part, its share of heads and columns follows the memory that
--- it has free, in whole groups of KV heads; the report prints what stays stranded.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"
local pools = require "tpl.place.pools"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local quiet, excluded = pools.quiet(topo, want.uids, want.own)
  local tp = want.tp or #quiet
  local why = candidates.forbids(model, tp, #quiet)
  if why then return nil, why end
  want.replicas = 1
  local list = candidates.one(topo, model, want, quiet, tp, 1)
  local uneven = #list > 1 and { list[2] } or list
  return decide.among(topo, model, want, uneven, { what = "all devices", excluded = excluded }, nil, list)
end
