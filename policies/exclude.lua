-- SPDX-License-Identifier: Apache-2.0
--- Keep off what is somebody else's. Heuristic: besides what no policy may use (MIG parents, lost devices, a fabric that is not
--- healthy), devices with a label or a process on them are left alone, and so are all models but the one with most memory; on the
--- rest the best price wins.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"
local pools = require "tpl.place.pools"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  if #pools.quiet(topo, want.uids) == 0 then return nil, "every device is in use by somebody else" end
  return decide.choose(topo, model, want, { decide.attempts(topo, want.uids)[1] })
end
