-- SPDX-License-Identifier: Apache-2.0
--- Measure one case of spec/bench/predict.lua in this process: open the engine, warm it, let all requests arrive together, and time the last
--- first token and the steps between tokens.
local engine = require("tpl.engine")
local makes = require("tpl.plan.make")
local deploys = require("tpl.deploy")
local sys = require("tpl.core").sys

local M = {}

local RUNS, LONG = 3, 4096 -- a case of so many prompt tokens is run once

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

-- Ticks of 10 ms that all processes, and this one, have had. Others' load is no fault of a prediction: samples that it disturbed are dropped.
local function ticks()
  local all, own = 0, 0
  local i = 0
  for n in (io.open("/proc/stat"):read("*l") .. " "):gmatch("(%d+) ") do
    i = i + 1
    if i ~= 4 and i ~= 5 and i <= 8 then all = all + tonumber(n) end -- but idle and waiting
  end
  i = 0
  for n in io.open("/proc/self/stat"):read("*a"):match("^.*%)(.*)$"):gmatch("%S+") do
    i = i + 1
    if i >= 12 and i <= 13 then own = own + tonumber(n) end
  end
  return all, own
end

--- Measure a case. Of its runs the best counts, as of the probe's passes: what disturbs a run makes it slower.
---@return {ttft_us: number, itl_us: number, foreign: number}   foreign: cores that others used meanwhile
function M.run(case)
  local plan = M.plan(case)
  local eng = assert(engine.open(plan, {}))
  local small = { batch = 1, prompt = 16, new = 3 }
  once(eng, small, plan, 0) -- touches every page of the weights
  local ttft, itl = math.huge, math.huge
  local all, own = ticks()
  local started = sys.now_us()
  for run = 1, case.batch * case.prompt >= LONG and 1 or RUNS do
    local a, b = once(eng, case, plan, run)
    ttft, itl = math.min(ttft, a), math.min(itl, b)
  end
  local all_now, own_now = ticks()
  local foreign = (all_now - all - (own_now - own)) / 100 / ((sys.now_us() - started) / 1e6)
  eng:close()
  return { ttft_us = ttft, itl_us = itl, foreign = foreign }
end

return M
