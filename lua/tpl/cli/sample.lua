-- SPDX-License-Identifier: Apache-2.0
--- The row command `tpl sample`: what sampling parameters keep of a logit vector, and with which probabilities.
local err = require("tpl.err")
local json = require("tpl.json")
local out = require("tpl.cli.out")
local rows = require("tpl.cli.rows")

local M = {}

local function is_set(x) return x ~= nil and x ~= json.null end

local function bad(message) err.throw { code = "bad_row", message = message } end

--- Read the logits; null is minus infinity.
local function read_logits(row)
  if type(row.logits) ~= "table" or row.logits[1] == nil then bad("logits must be a list of numbers") end
  local list = {}
  for i = 1, #row.logits do
    local x = row.logits[i]
    if x == json.null then
      x = -math.huge
    elseif type(x) ~= "number" then
      bad(string.format("logits[%d] is no number", i - 1))
    end
    list[i] = x
  end
  return list
end

local function read_ids(row, vocab)
  if not is_set(row.prior) then return {} end
  return require("tpl.text").check_ids(row.prior, vocab)
end

local function sample(row)
  local logits = read_logits(row)
  local params = is_set(row.params) and row.params or {}
  if type(params) ~= "table" then bad("params must be an object") end
  local order = is_set(row.order) and row.order or nil
  if order and type(order) ~= "table" then bad("order must be a list") end
  local result, message, code = require("tpl.core").sampler.apply {
    logits = logits, prior = read_ids(row, #logits), params = params, order = order,
  }
  if not result then err.throw { code = (code or "bad_row"):lower(), message = message } end
  return { "kept", "probs" }, { kept = out.array(result.kept), probs = out.array(result.probs) }
end

function M.run(ctx)
  rows.stream(ctx, sample)
  return 0
end

return M
