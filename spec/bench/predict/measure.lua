-- SPDX-License-Identifier: Apache-2.0
--- Measure one case of spec/bench/predict.lua in this process: open the engine, warm it, let all requests arrive together, and time the last
--- first token and the steps between tokens.
local engine = require("tpl.engine")
local makes = require("tpl.plan.make")
local deploys = require("tpl.deploy")

local M = {}

local RUNS, LONG = 2, 4096 -- a case of so many prompt tokens is run once

local function median(list)
  if #list == 0 then return nil end
  local sorted = {}
  for i, x in ipairs(list) do sorted[i] = x end
  table.sort(sorted)
  local half = math.floor(#sorted / 2)
  return #sorted % 2 == 1 and sorted[half + 1] or (sorted[half] + sorted[half + 1]) / 2
end
M.median = median

--- Plan a case.
---@return table plan
function M.plan(case)
  local d = assert(deploys.open(case.path, case.words))
  d.want.context = case.prompt + case.new + 16
  d.want.concurrency = case.batch
  return assert(makes.make(d, {}))
end

local function rows(case, plan, run)
  local out, low, high = {}, 3, plan.config.vocab - 1
  for row = 1, case.batch do
    local ids, x = {}, row * 7919 + run * 104729
    for i = 1, case.prompt do
      x = (x * 1103515245 + 12345) % 2147483648
      ids[i] = low + x % (high - low)
    end
    out[row] = { prompt_ids = ids, max_tokens = case.new, ignore_eos = true, temperature = 0 }
  end
  return out
end

local function once(eng, case, plan, run)
  local list = assert(eng:generate { rows = rows(case, plan, run) })
  local ttft, itl = 0, {}
  for i, r in ipairs(list) do
    if r.error then error(r.error.message) end
    ttft, itl[i] = math.max(ttft, r.ttft_us), r.itl_us.p50
  end
  return ttft, median(itl)
end

--- Measure a case.
---@return {ttft_us: number, itl_us: number}
function M.run(case)
  local plan = M.plan(case)
  local eng = assert(engine.open(plan, {}))
  local small = { batch = 1, prompt = 16, new = 3 }
  once(eng, small, plan, 0) -- touches every page of the weights
  local ttft, itl = {}, {}
  for run = 1, case.batch * case.prompt >= LONG and 1 or RUNS do ttft[run], itl[run] = once(eng, case, plan, run) end
  eng:close()
  return { ttft_us = median(ttft), itl_us = median(itl) }
end

return M
