-- SPDX-License-Identifier: Apache-2.0
--- Answer for a plan's choice: does it keep what the site requires, and why was another one not taken.
local candidates = require "tpl.place.candidates"
local err = require "tpl.err"
local json = require "tpl.json"
local order = require "tpl.place.order"
local place = require "tpl.place"
local requirements = require "tpl.place.requirements"
local util = require "tpl.util"

local M = {}

--- Throw (exit 4) when `require` of the deployment is unmet; every unmet one is named.
---@param plan table
function M.check_require(plan)
  local required = plan.deploy.require
  if not required or next(required) == nil then return end
  local facts = { kv_tokens = plan.kv.tokens, itl_us = plan.cost and plan.cost.itl_us }
  local unmet = {}
  for _, replica in ipairs(plan.placed.replicas) do
    unmet = requirements.unmet(plan.topo, replica, facts, required)
    if #unmet > 0 then break end
  end
  if #unmet == 0 then return end
  local lines = util.map(unmet, function(u) return #unmet > 1 and ("%s: %s"):format(u.field, u.message) or u.message end)
  err.throw { code = "require", exit = 4, where = "require" .. (#unmet == 1 and "." .. unmet[1].field or ""), message = table.concat(lines, "; "),
    unmet = unmet, hint = "other devices, another layout, or a requirement that this machine can keep" }
end

local function parse(text)
  local out = {}
  for key, value in text:gmatch("(%w+)%s*=%s*(%d+)") do
    if key ~= "tp" and key ~= "pp" then
      err.throw { code = "usage", where = "--why-not", message = ("'%s' cannot be asked for, tp and pp can"):format(key) }
    end
    out[key] = tonumber(value)
  end
  if not next(out) or out.tp == 0 or out.pp == 0 or text:gsub("%w+%s*=%s*%d+", ""):find("[^%s,]") then
    err.throw { code = "usage", where = "--why-not", message = ("'%s' is not of the form \"tp=4\" or \"tp=2 pp=2\""):format(text) }
  end
  return out
end

local function or_null(x) if x == nil then return json.null end return x end

local function is_taken(plan, asked)
  local first = plan.placed.replicas[1].stages
  return (not asked.tp or #first[1].devices == asked.tp) and (not asked.pp or #first == asked.pp)
end

-- The same wish with another cut, priced on the devices that may be used.
local function priced(plan, asked)
  local deploy = util.copy(plan.deploy)
  deploy.mesh, deploy.pp = nil, 1
  deploy.given = nil
  local uids = place.usable(plan.topo, deploy, plan.placed.kinds)
  local want = candidates.want(plan.topo, plan.shape, place.wish(deploy, asked.tp))
  want.pp = asked.pp
  local list, refused = candidates.enumerate(plan.topo, plan.shape, want, uids)
  return order.sort(list, want.goal)[1], refused[1], list
end

-- The size alone, without the pipeline that makes it fit, when only the size was asked for.
local function too_small(asked, best, list)
  if asked.pp or best.pp == 1 then return nil end
  for _, c in ipairs(list) do
    if c.pp == 1 and not c.fits then return c end
  end
end

--- Say why a cut was not taken: the rule that forbids it, or the price that lost.
---@param plan table
---@param text string     "tp=4", "tp=2 pp=2"
---@return table   {asked, taken, rule, why, price{tok_s, itl_us, kv_tokens, replicas}, chosen{the same}}; times and tokens of one replica
function M.why_not(plan, text)
  local asked = parse(text)
  local out = { asked = text, taken = is_taken(plan, asked), rule = json.null, why = json.null, price = json.null, chosen = json.null }
  local chosen = plan.cost
  if chosen then out.chosen = { tok_s = or_null(chosen.tok_s), itl_us = or_null(chosen.itl_us), kv_tokens = plan.kv.tokens,
      replicas = #plan.placed.replicas } end
  if out.taken then
    out.why = "it is what this plan does"
    return out
  end
  local best, refused, list = priced(plan, asked)
  if not best then
    out.rule, out.why = refused.rule or "forbidden", refused.why
  elseif not best.fits then
    out.rule, out.why = "memory", ("%s: %s"):format(best.name, best.why)
  elseif best.unmet > 0 then
    out.rule, out.why = "require", ("%s: %s"):format(best.name, best.why)
  else
    local small = too_small(asked, best, list)
    out.rule, out.why = small and "memory" or "price", ("%s: %s"):format(best.name, best.why)
    if small then out.why = ("%s: %s; with a pipeline %s"):format(small.name, small.why, out.why) end
    if plan.placed.reasons[1] then out.why = ("%s; taken: %s"):format(out.why, plan.placed.reasons[1]) end
    out.price = { tok_s = best.estimate.tok_s, itl_us = best.estimate.itl_us, kv_tokens = best.estimate.kv_tokens, replicas = best.n }
  end
  return out
end

return M
