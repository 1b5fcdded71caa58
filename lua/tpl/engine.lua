-- SPDX-License-Identifier: Apache-2.0
--- Run a plan: load it, generate, score, keep logits, tap values. One engine, one owner; every call ends before the next begins.
local err = require "tpl.err"
local find = require "tpl.find"
local json = require "tpl.json"

local M = {}

local Engine = { __name = "tpl.engine" }
Engine.__index = Engine

local function core() return require("tpl.core") end

local function check(value, message, code, where, hint)
  if value == nil then err.throw(err.from_c(message, code, where, hint)) end
  return value
end

-- -- Opening ------------------------------------------------------------------------------------------------

local function isa_name()
  return find.env "TPL_ISA" or core().kernels.isa_best()
end

local function open(plan, options)
  if not plan.checkpoint then
    err.throw { code = "format", where = plan.open.path, message = "holds no weights, there is nothing to run" }
  end
  local texts, d = {}, plan.deploy
  for i, s in ipairs(plan.stages) do texts[i] = s.program end
  local self = setmetatable({ plan = plan, isa = isa_name(), context = plan.context, kv_tokens = plan.kv.tokens, vocab = plan.config.vocab }, Engine)
  self.box = check(core().engine.open { programs = texts, checkpoint = plan.checkpoint, threads = plan.threads, isa = self.isa, kv_dtype = plan.kv.dtype,
    kv_page = plan.kv.page, kv_pages = plan.kv.pages, caps = plan:slot_caps(), fault = options.fault or find.env "TPL_FAULT", stall_s = options.stall_s,
    chunk = options.chunk or d.step.chunk or 0, shuffle = find.env "TPL_PAGE_ORDER" == "shuffle", seed = tonumber(find.env "TPL_SEED") or 0,
    eog = options.eog or M.eog(plan, options.tokenizer), progress = options.progress })
  self.stalls = {}
  return self
end

--- Ids that end generation: what the config says, and what the tokenizer knows besides.
function M.eog(plan, tokenizer)
  local ids, seen = {}, {}
  local function add(id)
    if type(id) == "number" and not seen[id] then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  local eos = plan.config.eos
  for _, id in ipairs(type(eos) == "table" and eos or { eos }) do add(id) end
  if tokenizer then
    for _, id in ipairs(tokenizer.eog_ids and tokenizer:eog_ids() or {}) do add(id) end
    add(tokenizer.eos_id)
  end
  return ids
end

--- Load a plan and start its ranks.
---@param plan table
---@param options {progress: function?, fault: string?, tokenizer: table?, chunk: integer?, eog: integer[]?, stall_s: number?}?
---@return table? engine
---@return tpl.Err?
function M.open(plan, options)
  return err.try(open, plan, options or {})
end

--- End the ranks and free everything. May be called twice.
function Engine:close()
  if self.box then self.box:close() end
  self.box = nil
end

-- -- Rows ---------------------------------------------------------------------------------------------------

local function row_error(message, code, where)
  if where == "kv_full" then code = "kv_full"
  elseif code == "arg" then code = "bad_request" end
  return { error = { code = code, message = message } }
end

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

local function check_length(self, n_prompt, max_tokens)
  if n_prompt + max_tokens > self.kv_tokens then
    return row_error(("a prompt of %d and up to %d tokens do not fit the KV cache of %d tokens"):format(n_prompt, max_tokens, self.kv_tokens), "kv_full")
  end
  if n_prompt + max_tokens > self.plan.config.context then
    return row_error(("a prompt of %d and up to %d tokens exceed the model's context of %d"):format(n_prompt, max_tokens, self.plan.config.context), "context_length")
  end
end

-- Sends a request; gives its handle, or a row error.
local function add(self, request)
  local handle, message, code, where = self.box:add(request)
  if handle then return handle end
  return nil, row_error(message, code, where)
end

-- Runs until nothing is left; events go to `on`.
local function drain(self, on)
  while not self.box:idle() do
    local events, message, code, where, hint = self.box:pump()
    if not events then err.throw(err.from_c(message, code, where, hint)) end
    for _, e in ipairs(events) do on(e) end
  end
end

-- -- Generating ---------------------------------------------------------------------------------------------

local function percentile(sorted, p)
  if #sorted == 0 then return json.null end
  return sorted[math.min(#sorted, math.max(1, math.ceil(p * #sorted)))]
end

-- The text up to the first stop string, if one is complete.
local function find_stop(text, stops)
  local best
  for _, s in ipairs(stops) do
    local at = s ~= "" and text:find(s, 1, true)
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
  local r = setmetatable({ i = i, row = row, handle = handle, ids = {}, logprobs = {}, text = "", shown = 0, times = {}, stops = stops or {}, engine = self }, Running)
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
  local stop = find_stop(self.text, self.stops)
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
  if r.reason == "numeric_error" then return { error = { code = "numeric_error", message = "no logit was a finite number" } } end
  local out = { ids = json.array(r.ids), prompt_ids = json.array(r.row.prompt_ids), text = r.stream and r.text or json.null, finish = r.reason,
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

local neutral = { temperature = 0, top_k = 0, top_p = 1, min_p = 0, repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0 }

local function request_of(self, row)
  local q = { ids = row.prompt_ids, max_tokens = max_tokens_of(self, row, #row.prompt_ids), ignore_eos = row.ignore_eos, logprobs = row.logprobs or 0 }
  for key, default in pairs(neutral) do q[key] = row[key] or default end
  q.seed = row.seed or tonumber(find.env "TPL_SEED") or (q.temperature > 0 and core().sys.now_us() % 2 ^ 31) or 0
  q.bias_ids, q.biases = biases_of(row)
  return q
end

--- Generate for all rows together. A row: prompt_ids, max_tokens, sampling parameters, stop, ignore_eos, logprobs.
---@param opts {rows: table[], on_token: (fun(row: integer, token: {id: integer, text: string, logprob: number}))?, tokenizer: table?}
---@return table[]? results  aligned with rows: {ids, prompt_ids, text, finish, ttft_us, itl_us, logprobs?} or {error=}
---@return tpl.Err?
function Engine:generate(opts)
  return err.try(function()
    self.tokenizer = opts.tokenizer or self.tokenizer
    self.is_eog = {}
    for _, id in ipairs(M.eog(self.plan, self.tokenizer)) do self.is_eog[id] = true end
    local results, by_handle, started = {}, {}, core().sys.now_us()
    for i, row in ipairs(opts.rows) do
      local q = request_of(self, row)
      local bad, handle = check_length(self, #q.ids, q.max_tokens), nil
      if not bad then handle, bad = add(self, q) end
      if bad then results[i] = bad else by_handle[handle] = running(self, row, i, handle) end
    end
    local function tell(r, id, text, logprob)
      if opts.on_token and (id or text ~= "") then opts.on_token(r.i, { id = id, text = text, logprob = logprob }) end
    end
    drain(self, function(e)
      local r = by_handle[e.handle]
      if e.token and not r.stopped then
        tell(r, e.token, r:token(e), e.logprob)
        if r.stopped then self.box:cancel(e.handle) end
      elseif e.finish then
        tell(r, nil, r:finish(e))
        results[r.i] = result_of(r, started)
      end
    end)
    return results
  end)
end

-- -- Logits and scores --------------------------------------------------------------------------------------

-- Runs prompts for their rows; `done(i, rows)` for each, in order. Together: all in shared steps, else one after the other.
local function run_rows(self, rows, together, request, done)
  local handles, failed = {}, {}
  local function start(i)
    local q = request(rows[i], i)
    q.ids, q.max_tokens = rows[i].ids, 0
    failed[i] = check_length(self, #q.ids, 0)
    if not failed[i] then handles[i], failed[i] = add(self, q) end
  end
  local function take(i)
    if failed[i] then return done(i, nil, failed[i].error) end
    done(i, check(self.box:take_rows(handles[i])))
  end
  if together then
    for i = 1, #rows do start(i) end
    drain(self, function() end)
    for i = 1, #rows do take(i) end
  else
    for i = 1, #rows do
      start(i)
      drain(self, function() end)
      take(i)
    end
  end
end

--- Keep the logits of rows. positions: "all" or "last"; file(row) names a file that float32 rows are appended to, else they are kept in memory.
---@param opts {rows: {ids: integer[]}[], positions: string?, together: boolean?, file: (fun(row: table, i: integer): string)?, on_row: fun(i: integer, result: table)}
---@return true?
---@return tpl.Err?
function Engine:each_logits(opts)
  return err.try(function()
    run_rows(self, opts.rows, opts.together, function(row, i)
      local path = opts.file and opts.file(row, i)
      return { rows = opts.positions or "all", sink = path and { file = path } or { memory = true } }
    end, function(i, rows, e) opts.on_row(i, rows or { error = e }) end)
    return true
  end)
end

local Logits = { __name = "tpl.logits" }

-- logits[row][id], both from 0
function Logits.__index(l, row) return type(row) == "number" and l.data + row * l.vocab or nil end

--- Give the logits of one sequence of ids: logits[row][id] from 0, with fields rows, vocab, data (one FFI float array) and argmax (a list). Alive as
--- long as the engine.
---@param ids integer[]
function Engine:logits(ids)
  local out
  local _, e = self:each_logits { rows = { { ids = ids } }, on_row = function(_, r) out = r end }
  if e then return nil, e end
  if out.error then return nil, err.new(out.error) end
  local ffi = require "ffi"
  return setmetatable({ data = ffi.cast("const float *", out.data), rows = out.rows, vocab = out.vocab, argmax = out.argmax }, Logits)
end

--- Score rows teacher-forced: log probability of every id given those before it.
---@param opts {rows: {ids: integer[]}[], top: integer?}
---@return table[]? results  {logprobs, greedy, top, sum} aligned with ids: nothing predicts the first id
---@return tpl.Err?
function Engine:score(opts)
  return err.try(function()
    local out = {}
    run_rows(self, opts.rows, true, function() return { rows = "all", sink = { top = opts.top or 0 } } end, function(i, rows, e)
      if e then
        out[i] = { error = e }
        return
      end
      local ids = opts.rows[i].ids
      local r = { logprobs = json.array { json.null }, greedy = json.array { false }, top = json.array { json.array {} }, sum = 0 }
      for k = 2, #ids do
        local top = json.array {}
        for j, x in ipairs(rows.top[k - 1]) do top[j] = { id = x[1], logprob = x[2] } end
        r.logprobs[k], r.greedy[k], r.top[k] = rows.logprob[k - 1], rows.argmax[k - 1] == ids[k], top
        r.sum = r.sum + rows.logprob[k - 1]
      end
      out[i] = r
    end)
    return out
  end)
end

-- -- Taps ---------------------------------------------------------------------------------------------------

-- Names that a glob picks: values themselves, and marks, which stand for the value that is there. value name -> names to show it under.
local function picked(plan, glob)
  local matches, out = require("tpl.util").glob(glob), {}
  local function show(value, name)
    out[value] = out[value] or {}
    table.insert(out[value], name)
  end
  for _, s in ipairs(plan.stages) do
    for _, op in ipairs(s.lowered.ops) do
      for _, v in ipairs(op.outs) do if matches(v.name) then show(v.name, v.name) end end
    end
    local seen = {}
    for _, m in ipairs(s.graph.marks) do
      local v = s.lowered.values[m.value.id]
      local name = seen[m.full] and m.full .. ":" .. v.name or m.full -- keys and values share a mark
      seen[m.full] = true
      if v and v.name ~= m.full and matches(m.full) then show(v.name, name) end
    end
  end
  return out
end

--- Run ids and keep the values whose names, or the names of marks where they are, match a glob; recombined over ranks (see tpl.tap).
---@param opts {ids: integer[], at: string}
---@return table[]? values  {name, op, stage, dims, placement, shape, rows, cols, data (double array), rank_shapes}
---@return tpl.Err?
function Engine:tap(opts)
  return err.try(function()
    local names = picked(self.plan, opts.at or "*")
    self.box:tap_begin()
    local ok, e = pcall(run_rows, self, { { ids = opts.ids } }, false, function() return { rows = "last", sink = { memory = true } } end, function(_, _, bad)
      if bad then err.throw { code = bad.code, message = bad.message } end
    end)
    local kept, out = {}, {}
    for _, t in ipairs(self.box:tap_end()) do if names[t.name] then kept[#kept + 1] = t end end
    if not ok then error(e, 0) end
    for _, v in ipairs(require("tpl.tap").recombine(self.plan, kept)) do
      for _, name in ipairs(names[v.name]) do
        local shown = require("tpl.util").copy(v)
        shown.name = name
        out[#out + 1] = shown
      end
    end
    return out
  end)
end

--- Figures since the engine was opened.
function Engine:stats()
  local s = self.box:stats()
  s.isa, s.variants = self.isa, self.box:variants()
  return s
end

return M
