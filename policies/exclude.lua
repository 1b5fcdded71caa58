-- SPDX-License-Identifier: Apache-2.0
--- Keep off what is somebody else's. Heuristic: besides what no policy may use (MIG parents, lost devices, a fabric that is not
--- healthy), devices with a label or a process on them are left alone, and so are all models but the one with most memory; on the
--- rest the best price wins.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"

return function(topo, model, want)
  want = candidates.want(topo, model, want)
  local attempts = decide.attempts(topo, want.uids)
  if not attempts[1] then return nil, "every device is in use or of another model" end
  return decide.choose(topo, model, want, { attempts[1] })
end
