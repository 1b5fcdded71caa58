-- SPDX-License-Identifier: Apache-2.0
--- Try a placement policy on many imagined machines (or on recorded ones), and shrink the machines on which it breaks a property.
local err = require("tpl.err")
local imagine = require("tpl.policy.imagine")
local models = require("tpl.policy.models")
local properties = require("tpl.policy.properties")
local shrink = require("tpl.policy.shrink")
local util = require("tpl.util")

local M = {}

---@class tpl.policy.TestOptions
---@field random integer?      how many machines to draw (500)
---@field seed integer?        (1)
---@field first integer?       number of the first draw (1): a failing one can be drawn alone
---@field records table[]?     {record=, name=}: try these machines, with every imagined model, and draw none
---@field stop boolean?        end at the first failure
---@field progress fun(n: integer, of: integer)?

---@class tpl.policy.TestReport
---@field policy tpl.Policy
---@field seed integer
---@field machines integer
---@field placed integer       cases with a placement
---@field refused integer      cases that the policy refused
---@field census table<string, integer>?
---@field failed table<string, integer>   property -> cases; every property is there
---@field failures {failure: tpl.policy.Failure, case: tpl.policy.Case, drawn: tpl.policy.Case}[]   the first of each property, shrunk

-- The labels of a machine: a deployment may exclude them.
local function first_label(record)
  for _, d in ipairs(record.devices) do
    if d.labels and d.labels[1] then return d.labels[1] end
  end
end

local function cases_of(records)
  local out = {}
  for i, r in ipairs(records) do
    local label = first_label(r.record)
    for _, model in ipairs(models.names) do
      for _, goal in ipairs { "latency", "throughput" } do
        for _, devices in ipairs { {}, label and { exclude = { label } } or nil } do
          out[#out + 1] = { seed = 0, number = i, kinds = { r.name }, record = r.record, model = model, thorough = true,
            want = { context = 2048, concurrency = 1, goal = goal, kv_dtype = "f16", act = "bf16", usable = 0.9, require = {}, devices = devices } }
        end
      end
    end
  end
  return out
end

local function note(p, report, case, failure)
  local n = report.failed[failure.property]
  report.failed[failure.property] = n + 1
  if n > 0 then return end
  local start = case
  if failure.record then
    start = {}
    for k, v in pairs(case) do start[k] = v end
    start.record, failure.record = failure.record, nil
  end
  local small, why = start, failure
  if not failure.stopped then small, why = shrink.smallest(p, start, failure) end
  table.insert(report.failures, { failure = why, case = small, drawn = case })
end

local function check_exceptions(p)
  for name in util.pairs(p.except) do
    if not properties.optional[name] then
      err.throw { code = "policy_error", where = p.where, message = ("except: '%s' cannot be left out"):format(name),
        hint = "only " .. table.concat(util.keys(properties.optional), ", ") }
    end
  end
end

--- Try a policy. Throws when its file leaves out a property that none may break.
---@param p tpl.Policy
---@param o tpl.policy.TestOptions?
---@return tpl.policy.TestReport
function M.run(p, o)
  o = o or {}
  check_exceptions(p)
  local seed, first = o.seed or 1, o.first or 1
  local report = { policy = p, seed = seed, machines = 0, placed = 0, refused = 0, failed = {}, failures = {} }
  for _, property in ipairs(properties.list) do report.failed[property[1]] = 0 end
  local cases = o.records and cases_of(o.records)
  local n = cases and #cases or o.random or 500
  report.census = not cases and imagine.census() or nil
  for i = 1, n do
    local case = cases and cases[i] or imagine.draw(seed, first + i - 1)
    if report.census then for _, kind in ipairs(case.kinds) do report.census[kind] = report.census[kind] + 1 end end
    local failure, how = properties.check(p, case, { thorough = case.thorough })
    report.machines = report.machines + 1
    if failure then note(p, report, case, failure) else report[how] = report[how] + 1 end
    if o.progress then o.progress(i, n) end
    if failure and (o.stop or failure.stopped) then break end
  end
  return report
end

return M
