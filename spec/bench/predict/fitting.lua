-- SPDX-License-Identifier: Apache-2.0
--- Fit the constants of lua/tpl/cost/cpu.lua to calibration cases: steps of each constant in turn, up or down by a factor, while the sum of
--- squared logarithms of predicted over measured, medians of each case, falls (beyond 25 % it counts linearly, so that a disturbed case does
--- not rule).
local cpu = require("tpl.cost.cpu")
local rows = require("rows")

local M = {}

local names = { "bandwidth", "overlap", "unpack", "row", "expand", "matrix", "attend_few", "attend_many", "element", "op_us", "sync", "meet", "collective", "hand_us",
  "turn_us" }
local most = { bandwidth = 1, matrix = 1, overlap = 4 }
local KNEE, PRIOR = 0.25, 0.01 -- PRIOR: a constant that the data say little of stays near where it was

local function loss(samples, start)
  local sum = 0
  for _, r in ipairs(rows.rows(samples)) do
    local x = math.abs(math.log(1 + r.error))
    sum = sum + (x < KNEE and x * x or KNEE * (2 * x - KNEE))
  end
  for _, k in ipairs(names) do sum = sum + PRIOR * math.log(cpu.constants[k] / start[k]) ^ 2 end
  return sum
end

--- Fit, and print the constants and how well they do.
function M.run(lines)
  local samples, start, c = {}, {}, cpu.constants
  for _, s in ipairs(rows.samples(lines)) do
    if s.case.kind == "fit" then samples[#samples + 1] = s end
  end
  for _, k in ipairs(names) do start[k] = c[k] end
  local best, factor = loss(samples, start), 1.5
  io.write(("%d samples, loss %.3f\n"):format(#samples, best))
  while factor > 1.02 do
    local moved = false
    for _, k in ipairs(names) do
      for _, f in ipairs { factor, 1 / factor } do
        local old = c[k]
        c[k] = math.min(old * f, most[k] or math.huge)
        local now = loss(samples, start)
        if now < best - 1e-6 then best, moved = now, true else c[k] = old end
      end
    end
    if not moved then factor = math.sqrt(factor) end
  end
  io.write(("loss %.3f\n"):format(best))
  for _, k in ipairs(names) do io.write(("  %-12s %.3g\n"):format(k, c[k])) end
  for _, r in ipairs(rows.rows(samples)) do
    io.write(("%-46s %-7s measured %9.2f ms, predicted %9.2f ms, %+4.0f %%\n"):format(r.name, r.figure:sub(1, 4), r.measured / 1e3, r.predicted / 1e3,
      100 * r.error))
  end
end

return M
