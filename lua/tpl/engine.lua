-- SPDX-License-Identifier: Apache-2.0
--- Run a plan: load it, generate, score, keep logits, tap values. One engine, one owner; every call ends before
--- the next begins.
local err = require "tpl.err"
local find = require "tpl.find"
local json = require "tpl.json"

local M = {}

---@class tpl.Engine
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

-- Where the plan wants its ranks: cores as a list in text, memory of a NUMA node. nil when it names no place at all: the core then gives each thread a
-- core where there are enough.
local function places(plan)
  local out, any = {}, false
  for i, r in ipairs(plan.ranks or {}) do
    out[i] = { cpus = r.cpus, numa = r.numa }
    any = any or r.cpus ~= nil or r.numa ~= nil
  end
  return any and out or nil
end

-- A refused binding costs speed, not results: it is a warning.
local function warn_of_places(self, ranks)
  local plan, free = self.plan, {}
  for i, r in ipairs(self.box:stats().ranks) do
    if ranks[i].cpus and not r.is_pinned then free[#free + 1] = i - 1 end
  end
  if free[1] then
    plan:warn("cpu_binding", ("the system does not let rank %s run on the cores of the plan alone"):format(table.concat(free, ", ")))
  end
  local why, forbidden = self.box:numa_error()
  if why then
    plan:warn("numa_memory", ("memory is not bound to the ranks' NUMA nodes, cores are: %s%s"):format(why,
      forbidden and " (a container needs the capability SYS_NICE: --cap-add SYS_NICE)" or ""))
  end
end

local function open(plan, options)
  if not plan.checkpoint then
    err.throw { code = "format", where = plan.open.path, message = "holds no weights, there is nothing to run" }
  end
  local texts, fault = {}, options.fault or find.env "TPL_FAULT"
  for i, s in ipairs(plan.stages) do texts[i] = s.program end
  local self = setmetatable({ plan = plan, isa = isa_name(), context = plan.context, kv_tokens = plan.kv.tokens,
    vocab = plan.config.vocab }, Engine)
  local ranks = places(plan)
  self.box = check(core().engine.open {
    programs = texts, ranks = ranks, checkpoint = plan.checkpoint, threads = plan.threads, isa = self.isa, caps = plan:slot_caps(),
    kv_dtype = plan.kv.dtype, kv_page = plan.kv.page, kv_pages = plan.kv.pages,
    chunk = options.chunk or plan.deploy.step.chunk or 0, shuffle = find.env "TPL_PAGE_ORDER" == "shuffle",
    seed = tonumber(find.env "TPL_SEED") or 0, fault = fault, stall_s = options.stall_s,
    eog = options.eog or M.eog(plan, options.tokenizer), progress = options.progress,
  })
  if ranks then warn_of_places(self, ranks) end
  if fault and fault ~= "" and self.box:fault_hits() == 0 then
    plan:warn("fault", ("TPL_FAULT=%s acts nowhere in this plan"):format(fault), "TPL_FAULT")
  end
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
---@return tpl.Engine? engine
---@return tpl.Err?
function M.open(plan, options)
  return err.try(open, plan, options or {})
end

--- End the ranks and free everything. May be called twice.
function Engine:close()
  if self.box then self.box:close() end
  self.box = nil
end

-- -- Requests -----------------------------------------------------------------------------------------------

local function row_error(message, code, where)
  if where == "kv_full" then code = "kv_full"
  elseif code == "arg" then code = "bad_request" end
  return { error = { code = code, message = message } }
end

local function need_open(self)
  if not self.box then err.throw { code = "closed", exit = 1, message = "the engine is closed" } end
end

local function prompt_text(n_prompt, max_tokens)
  if max_tokens == 0 then return ("a prompt of %d"):format(n_prompt) end
  return ("a prompt of %d and up to %d tokens"):format(n_prompt, max_tokens)
end

--- Send a request; gives its handle, or nil and what to answer instead: {error={code, message}}.
---@param request table   as core.engine add takes it
function Engine:submit(request)
  need_open(self)
  local n_prompt, max_tokens = #request.ids, request.max_tokens
  if n_prompt + max_tokens > self.kv_tokens then
    return nil, row_error(("%s do not fit the KV cache of %d tokens"):format(prompt_text(n_prompt, max_tokens),
      self.kv_tokens), "kv_full")
  end
  if n_prompt + max_tokens > self.plan.config.context then
    return nil, row_error(("%s exceed the model's context of %d"):format(prompt_text(n_prompt, max_tokens),
      self.plan.config.context), "context_length")
  end
  local handle, message, code, where = self.box:add(request)
  if handle then return handle end
  return nil, row_error(message, code, where)
end

--- End a request within one step.
function Engine:cancel(handle) self.box:cancel(handle) end

--- Run until nothing is left; events go to `on`.
function Engine:drain(on)
  while not self.box:idle() do
    local events, message, code, where, hint = self.box:pump()
    if not events then err.throw(err.from_c(message, code, where, hint)) end
    for _, e in ipairs(events) do on(e) end
  end
end

--- Generate for all rows together. Takes a list of rows as in `tpl generate`, one such row, or {rows=,
--- on_token=, tokenizer=}; a row may be a request that was prepared already (prompt_ids).
---@param opts table
---@return table[]? results  aligned with rows: {id, ids, prompt_ids, text, finish, ttft_us, itl_us, logprobs?} or {id, error=}
---@return tpl.Err?
function Engine:generate(opts)
  return err.try(require("tpl.generation").run, self, opts)
end

-- -- Logits and scores --------------------------------------------------------------------------------------

-- Runs prompts for their rows; `done(i, rows)` for each, in order. Together: all in shared steps, else one
-- after the other. Rows in memory are freed when done returns true.
local function run_rows(self, rows, together, request, done)
  local handles, failed = {}, {}
  local function start(i)
    local q = request(rows[i], i)
    q.ids, q.max_tokens = rows[i].ids, 0
    handles[i], failed[i] = self:submit(q)
    self.last_ids = q.ids
  end
  local function take(i)
    if failed[i] then return done(i, nil, failed[i].error) end
    if done(i, check(self.box:take_rows(handles[i]))) then self.box:drop_rows(handles[i]) end
  end
  if together then
    for i = 1, #rows do start(i) end
    self:drain(function() end)
    for i = 1, #rows do take(i) end
  else
    for i = 1, #rows do
      start(i)
      self:drain(function() end)
      take(i)
    end
  end
end

--- Keep the logits of rows. positions: "all" or "last"; file(row) names a file that float32 rows are appended
--- to, else they are kept in memory until on_row returns; with keep, until the engine is closed.
---@class tpl.LogitsOpts
---@field rows {ids: integer[]}[]
---@field positions string?   "all" or "last"
---@field together boolean?
---@field file (fun(row: table, i: integer): string)?
---@field keep boolean?
---@field on_row fun(i: integer, result: table)

---@param opts tpl.LogitsOpts
---@return true?
---@return tpl.Err?
function Engine:each_logits(opts)
  return err.try(function()
    run_rows(self, opts.rows, opts.together, function(row, i)
      local path = opts.file and opts.file(row, i)
      return { rows = opts.positions or "all", sink = path and { file = path } or { memory = true } }
    end, function(i, rows, e)
      opts.on_row(i, rows or { error = e })
      return rows and not opts.keep
    end)
    return true
  end)
end

local Logits = { __name = "tpl.logits" }

-- logits[row][id], both from 0
function Logits.__index(l, row) return type(row) == "number" and l.data + row * l.vocab or nil end

--- Give the logits of one sequence of ids: logits[row][id] from 0, with fields rows, vocab, data (one FFI float
--- array) and argmax (a list). Alive as long as the engine.
---@param ids integer[]
function Engine:logits(ids)
  local out
  local _, e = self:each_logits { rows = { { ids = ids } }, keep = true, on_row = function(_, r) out = r end }
  if e then return nil, e end
  if out.error then return nil, err.new(out.error) end
  local ffi = require "ffi"
  return setmetatable({ data = ffi.cast("const float *", out.data), rows = out.rows, vocab = out.vocab,
    argmax = out.argmax }, Logits)
end

--- Score rows teacher-forced: log probability of every id given those before it.
---@param opts {rows: {ids: integer[]}[], top: integer?}
---@return table[]? results  {logprobs, greedy, top, sum} aligned with ids: nothing predicts the first id
---@return tpl.Err?
function Engine:score(opts)
  return err.try(function()
    local out = {}
    run_rows(self, opts.rows, true, function() return { rows = "all", sink = { top = opts.top or 0 } } end,
      function(i, rows, e)
      if e then
        out[i] = { error = e }
        return
      end
      local ids = opts.rows[i].ids
      local r = { logprobs = json.array { json.null }, greedy = json.array { false },
        top = json.array { json.array {} }, sum = 0 }
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

-- Names that a glob picks: values themselves, and marks, which stand for the value that is there. value name ->
-- names to show it under.
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

--- Run ids and keep the values whose names, or the names of marks where they are, match a glob; recombined over
--- ranks (see tpl.tap).
---@param opts {ids: integer[], at: string}|string  a glob alone: on the ids that follow, or that were run last
---@param ids integer[]?
---@return table[]? values  {name, op, stage, dims, placement, shape, rows, cols, data (double array), rank_shapes}
---@return tpl.Err?
function Engine:tap(opts, ids)
  return err.try(function()
    need_open(self)
    if type(opts) == "string" then opts = { at = opts, ids = ids or self.last_ids } end
    if not opts.ids then err.throw { code = "arg", message = "tap: no ids were given, and none were run before" } end
    local names = picked(self.plan, opts.at or "*")
    self.box:tap_begin()
    local function request() return { rows = "last", sink = { memory = true } } end
    local function done(_, _, bad)
      if bad then err.throw { code = bad.code, message = bad.message } end
      return true
    end
    local ok, e = pcall(run_rows, self, { { ids = opts.ids } }, false, request, done)
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
