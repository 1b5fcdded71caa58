-- SPDX-License-Identifier: Apache-2.0
--- Put measured lines and predictions together: one row for a case and a figure. A case is predicted with the probes around it, so that a
--- machine that has become slower does not count as an error; what lies between two probes that differ is dropped.
local measure = require("measure")
local price = require("tpl.plan.price")

local M = {}

local AGREE = 0.15 -- two probes around a case may differ by this much

local function differs(a, b) return math.max(a, b) > (1 + AGREE) * math.min(a, b) end

-- The least and the greatest working set, all threads; the matrix peak of one core, as other guests on the host change it.
local function agree(before, after)
  if differs(before.core_gflop_s.bf16 or before.core_gflop_s.f32, after.core_gflop_s.bf16 or after.core_gflop_s.f32) then return false end
  for i, r in ipairs(before.read) do
    if differs(r.gb_s, after.read[i].gb_s) then return false end
  end
  return true
end

local function mean(a, b)
  if type(a) == "number" then return type(b) == "number" and (a + b) / 2 or a end
  if type(a) ~= "table" then return a end
  local out = {}
  for k, v in pairs(a) do out[k] = mean(v, b[k]) end
  return out
end

local plans = {}

local function plan_of(case)
  plans[case.name] = plans[case.name] or measure.plan(case)
  return plans[case.name]
end

--- Predict a case with a probe.
---@return {ttft_us: number, itl_us: number}
function M.predict(case, probe)
  local e = assert(price.of(plan_of(case), { prompt = case.prompt, prompts = case.batch, depth = case.prompt + case.new / 2, concurrency = case.batch,
    probe = probe }), "the plan has no price")
  return e
end

--- Make samples of lines: case, probe (mean of both), measured.
---@param lines table[]
---@return {case: table, probe: table, got: table, is_steady: boolean}[]
function M.samples(lines)
  local out = {}
  for _, l in ipairs(lines) do
    out[#out + 1] = { case = l.case, probe = mean(l.before, l.after), got = l.got, is_steady = agree(l.before, l.after) }
  end
  return out
end

--- Make rows: medians over the steady samples of a case, or over all where none is.
---@return {name: string, figure: string, measured: number, predicted: number, error: number, n: integer, steady: integer}[]
function M.rows(samples)
  local by, order = {}, {}
  for _, s in ipairs(samples) do
    local list = by[s.case.name]
    if not list then
      list = { steady = 0 }
      by[s.case.name], order[#order + 1] = list, s.case.name
    end
    list[#list + 1] = s
    if s.is_steady then list.steady = list.steady + 1 end
  end
  local out = {}
  for _, name in ipairs(order) do
    local list, sums = by[name], { ttft_us = {}, itl_us = {} }
    for _, s in ipairs(list) do
      if s.is_steady or list.steady == 0 then
        local e = M.predict(s.case, s.probe)
        for figure, t in pairs(sums) do t[#t + 1] = { measured = s.got[figure], predicted = e[figure] } end
      end
    end
    for _, figure in ipairs { "ttft_us", "itl_us" } do
      local measured, predicted, ratio = {}, {}, {}
      for i, x in ipairs(sums[figure]) do measured[i], predicted[i], ratio[i] = x.measured, x.predicted, x.predicted / x.measured end
      out[#out + 1] = { name = name, figure = figure, measured = measure.median(measured), predicted = measure.median(predicted),
        error = measure.median(ratio) - 1, n = #list, steady = list.steady }
    end
  end
  return out
end

return M
