-- SPDX-License-Identifier: Apache-2.0
--- Put measured lines and predictions together: one row for a case and a figure. A case is predicted with the probes around it, so that a
--- machine that has become slower does not count as an error; what lies between two probes that differ is dropped.
local measure = require("measure")
local price = require("tpl.plan.price")

local M = {}

local AGREE = 0.25   -- the probes before and after a case may differ by this much
local FOREIGN = 0.3 -- of a core, that other processes may use meanwhile
local WINDOW = 2     -- probes on either side whose median a case is predicted with: one probe of a shared cache is chance

local function differs(a, b) return math.max(a, b) > (1 + AGREE) * math.min(a, b) end

local function matrix_of(p) return p.core_gflop_s.bf16 or p.core_gflop_s.f32 end

-- Arithmetic and the bandwidth of what stays in the cache; that of memory changes between any two probes where others share it.
local function agree(before, after)
  return not differs(matrix_of(before), matrix_of(after)) and not differs(before.read[1].gb_s, after.read[1].gb_s)
end

-- The median of each figure of some probes.
local function middle(list)
  local first = list[1]
  if type(first) == "number" then return measure.median(list) end
  if type(first) ~= "table" then return first end
  local out = {}
  for k in pairs(first) do
    local values = {}
    for i, p in ipairs(list) do values[i] = p[k] end
    out[k] = middle(values)
  end
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

-- All probes in order; the one before line i and the one after it are i and i + 1 (a new round begins with one of its own).
local function probes_of(lines)
  local out, at = {}, {}
  for i, l in ipairs(lines) do
    local new = i == 1 or l.round ~= lines[i - 1].round
    if new then out[#out + 1] = l.before end
    at[i] = #out
    out[#out + 1] = l.after
  end
  return out, at
end

--- Give the median of all probes.
function M.middle_probe(lines) return middle((probes_of(lines))) end

--- Make samples of lines.
---@param lines table[]
---@return {case: table, probe: table, got: table, is_steady: boolean}[]
function M.samples(lines)
  local out, probes, at = {}, probes_of(lines)
  for i, l in ipairs(lines) do
    local near = {}
    for k = math.max(1, at[i] - WINDOW + 1), math.min(#probes, at[i] + WINDOW) do near[#near + 1] = probes[k] end
    out[i] = { case = l.case, probe = middle(near), got = l.got, is_steady = agree(l.before, l.after) and l.got.foreign <= FOREIGN }
  end
  return out
end

--- Make rows: medians over the steady samples of a case; over all where none is, and then `kept` is 0.
---@return {name: string, figure: string, measured: number, predicted: number, error: number, n: integer, kept: integer}[]
function M.rows(samples)
  local by, order = {}, {}
  for _, s in ipairs(samples) do
    local list = by[s.case.name]
    if not list then
      list = { kept = 0 }
      by[s.case.name], order[#order + 1] = list, s.case.name
    end
    list[#list + 1] = s
    if s.is_steady then list.kept = list.kept + 1 end
  end
  local out = {}
  for _, name in ipairs(order) do
    local list, at = by[name], { ttft_us = {}, itl_us = {} }
    for _, s in ipairs(list) do
      if s.is_steady or list.kept == 0 then
        local e = M.predict(s.case, s.probe)
        for figure, t in pairs(at) do t[#t + 1] = { measured = s.got[figure], predicted = e[figure] } end
      end
    end
    for _, figure in ipairs { "ttft_us", "itl_us" } do
      local measured, predicted, ratio = {}, {}, {}
      for i, x in ipairs(at[figure]) do measured[i], predicted[i], ratio[i] = x.measured, x.predicted, x.predicted / x.measured end
      out[#out + 1] = { name = name, figure = figure, measured = measure.median(measured), predicted = measure.median(predicted),
        error = measure.median(ratio) - 1, n = #list, kept = list.kept }
    end
  end
  return out
end

return M
