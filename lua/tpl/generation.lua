-- SPDX-License-Identifier: Apache-2.0
--- Generate for many rows together on an engine: requests in, tokens followed into text, stop strings, results.
--- A row is one of `tpl generate` (ids, prompt or messages, with parameters), or a request that was prepared
--- already (prompt_ids).
local err = require "tpl.err"
local find = require "tpl.find"
local json = require "tpl.json"

local M = {}

local function core() return require("tpl.core") end

-- What a row may ask for at most: the context, and what the KV cache holds.
local function max_tokens_of(self, row, n_prompt)
  if row.max_tokens then return row.max_tokens end
  return math.max(1, math.min(self.context, self.kv_tokens) - n_prompt)
end

local function biases_of(row)
  local ids, values = {}, {}
  for id, x in pairs(type(row.logit_bias) == "table" and row.logit_bias or {}) do
    ids[#ids + 1], values[#values + 1] = tonumber(id), x
  end
  return ids, values
end

-- -- Generating ---------------------------------------------------------------------------------------------

local function percentile(sorted, p)
  if #sorted == 0 then return json.null end
  return sorted[math.min(#sorted, math.max(1, math.ceil(p * #sorted)))]
end

-- Where the first complete stop string begins, looked for from a byte on: none begins in text that was shown already.
local function find_stop(text, stops, from)
  local best
  for _, s in ipairs(stops) do
    local at = s ~= "" and text:find(s, from, true)
    if at and (not best or at < best) then best = at end
  end
  return best
end

-- Bytes at the end that may be the start of a stop string, and must be held back.
local function held_back(text, stops)
  local most = 0
  for _, s in ipairs(stops) do
    for n = math.min(#s - 1, #text), most + 1, -1 do
      if text:sub(-n) == s:sub(1, n) then
        most = n
        break
      end
    end
  end
  return most
end

local Running = {}
Running.__index = Running

local function running(self, row, i, handle)
  local stops = row.stop
  if type(stops) == "string" then stops = { stops } end
  local r = setmetatable({ i = i, row = row, handle = handle, ids = {}, logprobs = {}, text = "", shown = 0,
    times = {}, stops = stops or {}, engine = self }, Running)
  if self.tokenizer then r.stream = self.tokenizer:stream { skip_special = true, prompt = 0 } end
  return r
end

-- Takes a token; gives the text that may be shown now.
function Running:token(e)
  self.ids[#self.ids + 1], self.times[#self.times + 1] = e.token, e.time_us
  if e.top then self.logprobs[#self.logprobs + 1] = { logprob = e.logprob, top = e.top } end
  if not self.stream then return "" end
  local is_end = self.engine.is_eog[e.token] and not self.row.ignore_eos
  self.text = self.text .. (is_end and "" or self.stream:push(e.token))
  return self:show(false)
end

function Running:show(is_last)
  local stop = find_stop(self.text, self.stops, self.shown + 1)
  if stop then
    self.text, self.stopped = self.text:sub(1, stop - 1), true
  end
  local until_byte = (is_last or stop) and #self.text or #self.text - held_back(self.text, self.stops)
  local out = self.text:sub(self.shown + 1, until_byte)
  self.shown = math.max(self.shown, until_byte)
  return out
end

function Running:finish(e)
  if self.stream and not self.stopped then self.text = self.text .. self.stream:flush() end
  self.reason = self.stopped and "stop" or e.finish
  return self:show(true)
end

local function itl_of(times)
  local gaps = {}
  for i = 2, #times do gaps[i - 1] = times[i] - times[i - 1] end
  table.sort(gaps)
  return { p50 = percentile(gaps, 0.5), p99 = percentile(gaps, 0.99) }
end

local function result_of(r, started)
  if r.reason == "numeric_error" then return { error = { code = "numeric_error",
    message = "no logit was a finite number" } } end
  local out = { ids = json.array(r.ids), prompt_ids = json.array(r.row.prompt_ids), text = r.stream and r.text
    or json.null, finish = r.reason,
    ttft_us = r.times[1] and math.floor(r.times[1] - started) or json.null, itl_us = itl_of(r.times) }
  if #r.logprobs > 0 then
    out.logprobs = json.array {}
    for i, p in ipairs(r.logprobs) do
      local top = json.array {}
      for k, x in ipairs(p.top) do top[k] = { id = x[1], logprob = x[2] } end
      out.logprobs[i] = { id = r.ids[i], logprob = p.logprob, top = top }
    end
  end
  return out
end

local neutral = { temperature = 0, top_k = 0, top_p = 1, min_p = 0, repetition_penalty = 1,
  frequency_penalty = 0, presence_penalty = 0 }

local function request_of(self, row)
  local q = { ids = row.prompt_ids, max_tokens = max_tokens_of(self, row, #row.prompt_ids),
    ignore_eos = row.ignore_eos, logprobs = row.logprobs or 0 }
  for key, default in pairs(neutral) do q[key] = row[key] or default end
  q.seed = row.seed or tonumber(find.env "TPL_SEED") or (q.temperature > 0 and core().sys.now_us() % 2 ^ 31) or 0
  q.bias_ids, q.biases = biases_of(row)
  return q
end

-- The rows of what a caller gave, and the other options.
local function read_options(opts)
  if opts.rows then return opts.rows, opts end
  if opts.ids or opts.prompt or opts.messages or opts.prompt_ids then return { opts }, {} end
  return opts, {}
end

-- Makes the request of a row; one that is prepared passes.
local function prepare(self, row, text)
  if row.prompt_ids then return row end
  local limits = { vocab = self.vocab, context = math.min(self.context, self.kv_tokens) }
  return require("tpl.params").request(row, text:ids(row, { "ids", "messages", "prompt" }), limits)
end

local function start(self, rows, text)
  local results, by_handle = {}, {}
  for i, row in ipairs(rows) do
    local request, e = err.try(prepare, self, row, text)
    local handle, bad
    if request then handle, bad = self:submit(request_of(self, request))
    else bad = { error = { code = e.code, message = e.message } } end
    if handle then by_handle[handle] = running(self, request, i, handle)
    else
      bad.id = row.id
      results[i] = bad
    end
  end
  return results, by_handle
end

--- See Engine:generate.
---@param self table   an engine
---@param opts table
---@return table[]
function M.run(self, opts)
  local rows, more = read_options(opts)
  local text = require("tpl.text").new(self.plan.tokenizer_path, self.vocab)
  self.tokenizer = more.tokenizer or self.tokenizer or text:maybe_quietly()
  text.tokenizer = self.tokenizer
  self.is_eog = {}
  for _, id in ipairs(require("tpl.engine").eog(self.plan, self.tokenizer)) do self.is_eog[id] = true end
  local started = core().sys.now_us()
  local results, by_handle = start(self, rows, text)
  local function tell(r, id, shown, logprob)
    if more.on_token and (id or shown ~= "") then more.on_token(r.i, { id = id, text = shown, logprob = logprob }) end
  end
  self:drain(function(e)
    local r = by_handle[e.handle]
    if e.token and not r.stopped then
      tell(r, e.token, r:token(e), e.logprob)
      if r.stopped then self:cancel(e.handle) end
    elseif e.finish then
      tell(r, nil, r:finish(e))
      results[r.i] = result_of(r, started)
      results[r.i].id = rows[r.i].id
    end
  end)
  return results
end

return M
