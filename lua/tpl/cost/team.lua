-- SPDX-License-Identifier: Apache-2.0
--- Share a CPU among the ranks that run on it: cores by their threads, memory bandwidth by how many of them read at a time. A
--- GPU has its own of both and is left alone. Pure.
local M = {}

-- A team on a share of the cores draws more than that share of the bandwidth while the others wait: one of two cores read 16 to
-- 19 of 34 GB/s on one machine and 42 of 50 on another (facts/perf.md sections 0a, 0b).
local ALONE = 1.4

local made = setmetatable({}, { __mode = "k" })

local function copy(d, share, active)
  local out = {}
  for k, v in pairs(d) do out[k] = v end
  out.flops = {}
  for k, v in pairs(d.flops) do out.flops[k] = v * share end
  out.mem_gb_s = d.mem_gb_s * math.min(1 / active, ALONE * share, 1)
  return out
end

-- The device as one rank sees it; the same table for the same question.
local function seen_by(d, share, active)
  made[d] = made[d] or {}
  local key = ("%.6f/%d"):format(share, active)
  made[d][key] = made[d][key] or copy(d, share, active)
  return made[d][key]
end

--- Note for each rank on a CPU which share of the cores it has.
---@param stages table[]
---@param threads integer?   of a rank; nil: the cores are dealt out evenly
---@param cores integer?     of the machine, as probed
function M.deal(stages, threads, cores)
  local on_host = {}
  for _, stage in ipairs(stages) do
    for _, r in ipairs(stage.ranks) do
      if r.device.kind == "cpu" then on_host[r.dev.host or 0] = (on_host[r.dev.host or 0] or 0) + 1 end
    end
  end
  for _, stage in ipairs(stages) do
    for _, r in ipairs(stage.ranks) do
      if r.device.kind == "cpu" then
        local n = on_host[r.dev.host or 0]
        local wanted = threads and cores and threads / cores or 1 / n
        r.whole, r.share = r.device, math.min(1, wanted, math.max(wanted, 1) / n)
      end
    end
  end
end

--- Set the devices for work in which `in_flight` stages are busy at a time.
function M.set(stages, in_flight)
  for _, stage in ipairs(stages) do
    for _, r in ipairs(stage.ranks) do
      if r.whole then r.device = seen_by(r.whole, r.share, #stage.ranks * math.min(in_flight, #stages)) end
    end
  end
end

return M
