-- SPDX-License-Identifier: Apache-2.0
--- Check the parameters of a generation request; one request must never harm others (facts: reliability.md 2.C).
local err = require("tpl.err")
local json = require("tpl.json")

local M = {}

local function bad(message, ...)
  err.throw { code = "bad_param", message = string.format(message, ...) }
end

local function is_set(x) return x ~= nil and x ~= json.null end

local function shown(x)
  return type(x) == "number" and string.format("%.14g", x) or type(x) == "string" and string.format("%q", x) or "a " .. type(x)
end

--- What each number may be: lowest, highest, whole, neutral value. top_p 0 keeps the best token, as if it were tiny.
local numbers = {
  { "temperature", 0, 1e4, false, 0 }, { "top_k", -1, 2 ^ 31 - 1, true, 0 }, { "top_p", 0, 1, false, 1 }, { "min_p", 0, 1, false, 0 },
  { "repetition_penalty", 1e-3, 1e3, false, 1 }, { "frequency_penalty", -1e3, 1e3, false, 0 }, { "presence_penalty", -1e3, 1e3, false, 0 },
  { "seed", 0, 2 ^ 53, true, nil }, { "max_tokens", 1, 2 ^ 31 - 1, true, nil }, { "logprobs", 0, 20, true, nil },
}

local function read_number(row, rule)
  local name, low, high, whole, neutral = unpack(rule, 1, 5)
  local x = row[name]
  if not is_set(x) then return neutral end
  if type(x) ~= "number" or not (x >= low and x <= high) or (whole and x ~= math.floor(x)) then
    bad("%s is %s, a %snumber from %.14g to %.14g is needed", name, shown(x), whole and "whole " or "", low, high)
  end
  return x
end

local function read_bias(row, vocab)
  if not is_set(row.logit_bias) then return nil end
  if type(row.logit_bias) ~= "table" or row.logit_bias[1] ~= nil then bad("logit_bias must be an object of id: number") end
  local out = {}
  for key, x in pairs(row.logit_bias) do
    local id = type(key) == "string" and key:find("^%d+$") and tonumber(key)
    if not id or id >= (vocab or 2 ^ 31) then bad("logit_bias has the key %s, a token id is needed", shown(key)) end
    if type(x) ~= "number" or x ~= x or math.abs(x) > 1e4 then bad("logit_bias of %d is %s, a number from -1e4 to 1e4 is needed", id, shown(x)) end
    out[id] = x
  end
  return out
end

local function read_stop(row)
  local stop = row.stop
  if not is_set(stop) then return nil end
  if type(stop) == "string" then stop = { stop } end
  if type(stop) ~= "table" or (next(stop) ~= nil and stop[1] == nil) or #stop > 64 then bad("stop must be a text or a list of at most 64") end
  local out = {}
  for i = 1, #stop do
    if type(stop[i]) ~= "string" or stop[i] == "" then bad("stop[%d] is %s, a text that is not empty is needed", i - 1, shown(stop[i])) end
    out[i] = stop[i]
  end
  return out
end

local function read_flag(row, name)
  if not is_set(row[name]) then return false end
  if type(row[name]) ~= "boolean" then bad("%s is %s, true or false is needed", name, shown(row[name])) end
  return row[name]
end

--- Make the request of a row.
---@param row table            as decoded; unknown keys are ignored
---@param prompt_ids integer[]
---@param limits {vocab?: integer, context?: integer, seed?: integer}
---@return table
function M.request(row, prompt_ids, limits)
  if #prompt_ids == 0 then bad("the prompt is empty: at least one token is needed") end
  local request = { prompt_ids = prompt_ids }
  for _, rule in ipairs(numbers) do request[rule[1]] = read_number(row, rule) end
  if request.top_k == -1 then request.top_k = 0 end
  if request.logprobs == 0 then request.logprobs = nil end
  request.logit_bias = read_bias(row, limits.vocab)
  request.stop = read_stop(row)
  request.ignore_eos = read_flag(row, "ignore_eos")
  request.seed = request.seed or limits.seed
  if request.max_tokens == nil and limits.context then
    request.max_tokens = math.max(1, limits.context - #prompt_ids)
  end
  return request
end

return M
