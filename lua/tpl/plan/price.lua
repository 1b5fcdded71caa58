-- SPDX-License-Identifier: Apache-2.0
--- Price a plan in time: what its devices need for a token, a prompt and all requests together (tpl.cost), with the stages and
--- shares that were planned. nil where the devices' speed is not known, or the model has no definition.
local candidates = require "tpl.place.candidates"
local cost = require "tpl.cost"
local place = require "tpl.place"
local rates = require "tpl.rates"

local M = {}

-- Shares of a stage in units of the tp axis.
local function shares_of(s)
  if not s.shares then return nil end
  return s.shares[1] and s.shares or s.shares.tp
end

--- Price the first replica; the others are alike.
---@param plan table
---@param more? table   wishes beside those of the deployment: prompt, prompts, depth, probe
---@return table?   as cost.estimate gives
function M.of(plan, more)
  if not plan.shape.has_definition then return nil end
  local stages = {}
  for i, s in ipairs(plan.stages) do
    stages[i] = { devices = s.devices, layers = { s.first, s.last }, shares = shares_of(s), mesh = tostring(s.mesh) }
  end
  local want = candidates.want(plan.topo, plan.shape, place.wish(plan.deploy))
  want.context, want.threads, want.chunk = plan.context, plan.threads, plan.deploy.step.tokens
  for k, v in pairs(more or {}) do want[k] = v end
  if plan.ranks[1].device.kind == "cpu" then
    -- How fast a recorded machine's CPU is, or this one's where `tpl bench probe` was never run, is not known.
    want.probe = want.probe or not plan.options.topo and rates.stored() or nil
    if not want.probe then return nil end
  end
  local e = cost.estimate(plan.topo, plan.shape, { stages = stages }, want)
  if not e then return nil end -- a device that no rates are known for
  return e
end

return M
