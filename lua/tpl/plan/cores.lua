-- SPDX-License-Identifier: Apache-2.0
--- Say which cores the threads of each rank run on. A CPU rank has the cores of its device; a rank on a GPU has those of
--- the GPU's NUMA node for its launching thread. More threads than cores is allowed: then they share. Pure.
local cpuset = require "tpl.topo.cpuset"

local M = {}

local function first(list, n)
  local out = {}
  for i = 1, n do out[i] = list[i] end
  return out
end

local function is_cpu(b) return b.device.kind == "cpu" end

-- Every core that some rank has, each once, in order.
local function all_cores(ranks)
  local seen, out = {}, {}
  for _, b in ipairs(ranks) do
    for _, c in ipairs(cpuset.parse(b.device.cpus) or {}) do
      if not seen[c] then
        seen[c] = true
        out[#out + 1] = c
      end
    end
  end
  table.sort(out)
  return out
end

--- Decide the threads of CPU ranks and give every rank its cores.
---@param ranks table[]      with device; get cores (a list, nil unknown), cpus (the same as text) and numa
---@param wanted integer?    threads per rank; nil: cores / ranks, at least 1
---@return integer threads
---@return boolean is_pinned  every thread has a core of its own
function M.assign(ranks, wanted)
  local on_cpu = {}
  for _, b in ipairs(ranks) do if is_cpu(b) then on_cpu[#on_cpu + 1] = b end end
  local cores = all_cores(on_cpu)
  local threads = wanted or math.max(1, math.floor(#cores / math.max(1, #on_cpu)))
  local is_pinned = #on_cpu > 0 and threads * #on_cpu <= #cores
  for _, b in ipairs(ranks) do
    local own = cpuset.parse(b.device.cpus) or {}
    b.numa = b.device.numa
    if is_cpu(b) and is_pinned and #own >= threads then own = first(own, threads) elseif is_cpu(b) then is_pinned = false end
    b.cores = #own > 0 and own or nil
    b.cpus = b.cores and cpuset.format(b.cores)
  end
  return threads, is_pinned
end

return M
