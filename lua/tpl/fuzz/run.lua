-- SPDX-License-Identifier: Apache-2.0
--- Try random layouts: every one that the planner accepts must give what one rank gives, in every op on every rank, as a typed graph and,
--- where the engine has kernels for it, as a lowered program with and without fusion. Counts which rules the accepted ones used.
local draw = require "tpl.fuzz.draw"
local err = require "tpl.err"
local fuse = require "tpl.plan.fuse"
local lower = require "tpl.plan.lower"
local lowered = require "tpl.fuzz.lowered"
local order = require "tpl.plan.order"
local rules = require "tpl.plan.rules"
local shrink = require "tpl.fuzz.shrink"
local typed = require "tpl.fuzz.typed"
local typing = require "tpl.plan.typing"
local util = require "tpl.util"

local M = {}

local TOLERANCE = 1e-9 -- of the largest magnitude of a value; doubles leave about 1e-14
local MOST_FAILURES = 3

-- -- One case -----------------------------------------------------------------------------------------------

--- Type a case; nil and the error where it is refused.
---@param case tpl.fuzz.Case
---@return tpl.Graph?
---@return tpl.Err?
function M.type(case)
  local m = draw.model(case)
  return err.try(typing.build, { trace = m.trace, model = m.model, config = m.config, mesh = draw.mesh(case), layout = draw.words(case),
    fixes = false, blocks = { blocks = case.c.block or 1 },
    dtype = function(name) return m.trace.weights[name].kind == "vector" and "f32" or "blocks" end })
end

--- Lower a typed case; nil and the error where there is no kernel.
---@return tpl.Lowered?
---@return tpl.Err?
function M.lower(case, graph)
  return err.try(lower.graph, graph, draw.model(case).config, function(name) return name end)
end

local function difference(case, graph, low)
  local m, feed = draw.model(case), draw.feed(case)
  local weights = draw.weights(case, m.trace)
  local one = typing.build { trace = m.trace, model = m.model, config = m.config, layout = {}, fixes = false }
  local whole, count = typed.values(typed.run(one, m.config, weights, feed))
  order.check(order.by_rank(graph))
  local found = typed.differs(typed.run(graph, m.config, weights, feed), whole, count, TOLERANCE)
  if found or not low then return found, "typed" end
  for _, how in ipairs { "lowered", "fused" } do
    found = lowered.differs { lowered = low, ops = fuse.run(low.ops, how == "lowered" and "all" or nil), weights = weights, feed = feed,
      whole = whole, n_whole = count, tolerance = TOLERANCE }
    if found then return found, how end
  end
end

local function describe(found, how)
  if found.what then return ("%s: op '%s': %s"):format(how, found.op, found.what) end
  return ("%s: op '%s', rank %d, entry %d: %.9g, one rank has %.9g"):format(how, found.op, found.rank, found.index, found.got, found.want)
end

---@class tpl.fuzz.Outcome
---@field how string           "refused" | "accepted" | "wrong"
---@field why string?          the refusal, or what is wrong
---@field graph tpl.Graph?
---@field low tpl.Lowered?
---@field no_kernel string?    why an accepted one could not be lowered

--- Try a case.
---@param case tpl.fuzz.Case
---@return tpl.fuzz.Outcome
function M.try(case)
  local graph, e = M.type(case)
  if not graph then
    local is_refusal = e.code == "layout_conflict" or e.code == "layout_error"
    return { how = is_refusal and "refused" or "wrong", why = is_refusal and e.message or e.traceback or tostring(e) }
  end
  local low, no_kernel = M.lower(case, graph)
  if no_kernel and no_kernel.code ~= "unsupported" then return { how = "wrong", why = no_kernel.traceback or tostring(no_kernel) } end
  local ok, found, how = xpcall(function() return difference(case, graph, low) end, function(raw)
    return err.is(raw) and tostring(raw) or debug.traceback(tostring(raw), 2)
  end)
  if not ok then return { how = "wrong", why = found } end
  if found then return { how = "wrong", why = describe(found, how) } end
  return { how = "accepted", graph = graph, low = low, no_kernel = no_kernel and no_kernel.message }
end

-- -- Many ---------------------------------------------------------------------------------------------------

-- Every row of the rule table, as typing counts it: "linear: R,R", "norm: S(n),R stats".
local function every_rule()
  local out = {}
  for op, t in pairs(rules) do
    for key in pairs(type(t) == "table" and rawget(t, "rows") or {}) do out[op .. ": " .. key] = 0 end
  end
  return out
end

local reshards = { "slice", "all_gather", "all_to_all", "all_reduce", "reduce_scatter", "all_reduce(lse)", "reduce_scatter(lse)", "gather" }

local function count_reshards(graph, into)
  local seen = {}
  for _, op in ipairs(graph.ops) do seen[op.attrs.op == "lse" and op.kind .. "(lse)" or op.kind] = true end
  for _, kind in ipairs(reshards) do if seen[kind] then into[kind] = into[kind] + 1 end end
end

local function failure(case, outcome, keep_whole)
  local small, why = case, outcome.why
  if not keep_whole then
    small = shrink.smallest(case, function(c) return M.try(c).how == "wrong" end)
    why = M.try(small).why
  end
  return { number = case.number, why = outcome.why, case = draw.text(case), smallest = draw.text(small), smallest_why = why }
end

---@class tpl.fuzz.Options
---@field draws integer?                 how many (3000)
---@field seed integer?                  (1)
---@field first integer?                 number of the first draw (1): a failing one can be drawn alone
---@field stop boolean?                  end at the first failure, and do not look for a smaller one
---@field seconds number?                end after so much processor time
---@field progress fun(n: integer)?
---@field on_accepted fun(case: tpl.fuzz.Case, outcome: tpl.fuzz.Outcome)?

---@class tpl.fuzz.Report
---@field seed integer
---@field draws integer
---@field accepted integer
---@field refused integer
---@field wrong integer
---@field lowered integer                accepted ones that ran as a program too
---@field rules table<string, integer>   accepted layouts that used a rule; every rule is there
---@field reshards table<string, integer> the same for what marks and samplers insert
---@field no_kernel table<string, integer> why accepted ones were not lowered
---@field failures table[]               the first few: {number, why, case, smallest, smallest_why}
---@field seconds number                 processor time

--- Draw and try layouts.
---@param o tpl.fuzz.Options?
---@return tpl.fuzz.Report
function M.run(o)
  o = o or {}
  local seed, first, start = o.seed or 1, o.first or 1, os.clock()
  local out = { seed = seed, draws = 0, accepted = 0, refused = 0, wrong = 0, lowered = 0, rules = every_rule(), reshards = {}, no_kernel = {},
    failures = {} }
  for _, kind in ipairs(reshards) do out.reshards[kind] = 0 end
  for number = first, first + (o.draws or 3000) - 1 do
    local case = draw.case(seed, number)
    local outcome = M.try(case)
    out.draws, out[outcome.how] = out.draws + 1, out[outcome.how] + 1
    if outcome.how == "accepted" then
      for key in pairs(outcome.graph.hits) do out.rules[key] = out.rules[key] + 1 end
      count_reshards(outcome.graph, out.reshards)
      if outcome.low then out.lowered = out.lowered + 1
      else
        local why = outcome.no_kernel:match("no kernel for (.*) in this version") or outcome.no_kernel
        out.no_kernel[why] = (out.no_kernel[why] or 0) + 1
      end
      if o.on_accepted then o.on_accepted(case, outcome) end
    elseif outcome.how == "wrong" and #out.failures < MOST_FAILURES then
      table.insert(out.failures, failure(case, outcome, o.stop))
    end
    if o.progress then o.progress(number - first + 1) end
    if o.stop and out.wrong > 0 or o.seconds and os.clock() - start > o.seconds then break end
  end
  out.seconds = os.clock() - start
  return out
end

--- List rules and reshards that fewer than `least` accepted layouts used, sorted.
---@param report tpl.fuzz.Report
---@param least integer
---@return string[]
function M.rare(report, least)
  local out = {}
  for _, t in ipairs { report.rules, report.reshards } do
    for name, n in util.pairs(t) do if n < least then out[#out + 1] = name end end
  end
  return out
end

return M
