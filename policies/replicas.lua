-- SPDX-License-Identifier: Apache-2.0
--- As many replicas as fit. Heuristic: the fewest devices that hold the model and want.context x want.concurrency make a replica
--- (TP in a linked group before a pipeline, by price), and every such group gets one.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local attempts = decide.attempts(topo, want.uids, want.own)
  for _, attempt in ipairs(attempts) do
    local least = math.huge
    for _, c in ipairs((candidates.enumerate(topo, model, want, attempt.uids))) do
      if c.fits then least = math.min(least, c.tp * c.pp) end
    end
    if least < math.huge then
      return decide.choose(topo, model, want, { attempt }, function(c) return c.tp * c.pp == least end)
    end
  end
  return decide.choose(topo, model, want, attempts)
end
