-- SPDX-License-Identifier: Apache-2.0
--- The built-in choice. Heuristic: price every TP size and pipeline depth on equal, quiet devices (tpl.cost) and take the best for
--- want.goal that holds want.context x want.concurrency; mixed models and busy devices only where nothing else holds it. TP groups
--- are the best linked ones (NVLink, then near PCIe, then one NUMA node); what fits one device becomes replicas. On a machine of
--- CPUs: one rank for each NUMA node.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  if decide.is_cpus(topo, want.uids) then return decide.cpus(topo, model, want) end
  return decide.choose(topo, model, want, decide.attempts(topo, want.uids, want.own))
end
