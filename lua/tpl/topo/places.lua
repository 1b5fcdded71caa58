-- SPDX-License-Identifier: Apache-2.0
--- Say where ranks run: the cores and the memory of the NUMA node that their device hangs on. Pure: the topology is an argument.
-- CPU ranks that share a device get a part of its cores each, in order, so that no two spin on one core; where there are fewer cores than ranks they
-- share them all. A GPU's rank has little to do on the CPU and may use all cores of its node, as NCCL and nvidia-smi have it.
local cpuset = require("tpl.topo.cpuset")

local M = {}

-- Part i (from 1) of n of a list of cores, even to one core.
local function part(cores, i, n)
  if n > #cores then return cores end
  local out = {}
  for k = math.floor(#cores * (i - 1) / n) + 1, math.floor(#cores * i / n) do out[#out + 1] = cores[k] end
  return out
end

--- Give the place of each rank.
---@param topo tpl.Topo
---@param uids string[]   the device of each rank, in rank order; a device may come several times
---@return {cpus: string?, numa: integer?, cores: integer?}[]  cores: how many; a field is nil where the topology does not tell it
function M.of(topo, uids)
  local sharers, seen, out = {}, {}, {}
  for _, uid in ipairs(uids) do sharers[uid] = (sharers[uid] or 0) + 1 end
  for i, uid in ipairs(uids) do
    local d = topo:dev(uid)
    local cores = d and cpuset.parse(d.cpus)
    out[i] = { numa = d and d.numa }
    if cores then
      seen[uid] = (seen[uid] or 0) + 1
      local own = d.kind == "cpu" and part(cores, seen[uid], sharers[uid]) or cores
      out[i].cpus, out[i].cores = cpuset.format(own), #own
    end
  end
  return out
end

return M
