-- SPDX-License-Identifier: Apache-2.0
--- Least time between tokens. Heuristic: as auto, with goal = "latency": TP as wide as it still helps, replicas on what is left.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  want.goal = "latency"
  return decide.choose(topo, model, want, decide.attempts(topo, want.uids, want.own))
end
