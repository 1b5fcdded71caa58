-- SPDX-License-Identifier: Apache-2.0
--- One pipeline over all devices. Heuristic: every quiet device is a stage (want.pp: so many), layers are cut so that the slowest
--- stage is as fast as possible and none holds more than its memory; the embedding counts with the first stage, the head with the last.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"
local pools = require "tpl.place.pools"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local quiet, excluded = pools.quiet(topo, want.uids, want.own)
  local tp = want.tp or 1
  local pp = want.pp or math.min(math.floor(#quiet / tp), model.n_layer)
  if pp < 1 then return nil, "no device may be used" end
  want.replicas = 1
  local list = candidates.one(topo, model, want, quiet, tp, pp)
  return decide.among(topo, model, want, list, { what = "a pipeline", excluded = excluded })
end
