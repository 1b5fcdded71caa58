-- SPDX-License-Identifier: Apache-2.0
--- Most tokens a second over all devices. Heuristic: as auto, with goal = "throughput": small groups, many replicas.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  want.goal = "throughput"
  return decide.choose(topo, model, want, decide.attempts(topo, want.uids, want.own))
end
