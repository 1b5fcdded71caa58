-- SPDX-License-Identifier: Apache-2.0
--- Make a plan: from a deployment and a model's headers to typed stages, programs, memory and a report. Nothing
--- is loaded and no thread is started. Equal inputs give equal programs and hashes.
local budget = require "tpl.plan.budget"
local configs = require "tpl.config"
local deploys = require "tpl.deploy"
local err = require "tpl.err"
local find = require "tpl.find"
local fuse = require "tpl.plan.fuse"
local lower = require "tpl.plan.lower"
local memory = require "tpl.plan.memory"
local models = require "tpl.model"
local partition = require "tpl.plan.partition"
local programs = require "tpl.plan.program"
local report = require "tpl.plan.report"
local stages = require "tpl.plan.stages"
local storage = require "tpl.plan.storage"
local typing = require "tpl.plan.typing"

local M = {}

local MOST_TOP = 20          -- log probabilities a request may ask for
local POOL_PER_SEQUENCE = 1024 -- two words for each of 512 biases
local MIN_ROWS = 64          -- output rows of a step, so that scoring need not go one row at a time

local Plan = { __name = "tpl.plan" }
Plan.__index = Plan

local function core() return require("tpl.core") end

-- -- Inputs -------------------------------------------------------------------------------------------------

local function refuse_later(deploy)
  local where = deploy.origin and deploy.origin.where
  local function no(field, what)
    err.throw { code = "not_in_version", where = where or field,
      message = field .. ": " .. what .. " is not in this version" }
  end
  if deploy.place ~= "auto" then no("place", "a placement policy") end
  if deploy.replicas and deploy.replicas > 1 then no("replicas", "more than one replica") end
  if deploy.devices.only or deploy.devices.exclude then no("devices", "choosing devices") end
end

local function open_model(deploy)
  local found, e = find.model(deploy.model, deploy.origin and deploy.origin.dir)
  if not found then err.throw(e) end
  local open
  open, e = configs.open(found)
  if not open then err.throw(e) end
  return open
end

local torch_types = { bfloat16 = "bf16", float16 = "f16", float32 = "f32" }

-- Layouts and model definitions lie beside deploy.lua. A model's own folder never gives code, unless a
-- deploy.lua was written there.
local function where_to_look(deploy, open)
  local origin = deploy.origin or {}
  return { dir = origin.dir, model_folder = not origin.file and open.path == open.dir and open.dir or nil }
end

-- The storage type of a weight: of its tensor, or where there are no weights yet what the config says.
local function dtype_of(open, model, config)
  local known = {}
  return function(name)
    if known[name] == nil then
      local tensor_name = model:tensor(config.names, name)
      local tensor = open.checkpoint and tensor_name and open.checkpoint:tensor(tensor_name)
      if open.checkpoint and not tensor then
        err.throw { code = "format", where = open.path, message = ("the checkpoint has no tensor '%s' for weight '%s'"):format(tostring(tensor_name), name) }
      end
      known[name] = tensor and tensor.dtype or torch_types[config.dtype] or config.dtype or "bf16"
    end
    return known[name]
  end
end

local function check_types(trace, dtype, where)
  for _, w in ipairs(trace.weight_list) do
    local name = dtype(w.name)
    if not storage.types[name] then
      err.throw { code = "unsupported", where = where, message = ("weight '%s' is stored as %s, which this version does not compute with"):format(w.name, name) }
    end
    if w.kind == "vector" and storage.elements(name) > 1 then
      err.throw { code = "unsupported", where = where, message = ("vector '%s' is stored in blocks (%s)"):format(w.name, name) }
    end
  end
end

-- Every tensor must have the shape the model gives its weight, or a file that lies is only found while loading.
local function check_shapes(open, model, config, trace)
  if not open.checkpoint then return end
  for _, w in ipairs(trace.weight_list) do
    local name = model:tensor(config.names, w.name)
    local tensor = open.checkpoint:tensor(name)
    local rows, cols = 1, 1
    for i, d in ipairs(w.dims) do
      if i <= w.n_out and w.kind ~= "vector" then rows = rows * trace.sizes[d] else cols = cols * trace.sizes[d] end
    end
    local n = 1
    for _, d in ipairs(tensor.dims) do n = n * d end
    local is_ok = n == rows * cols and (w.kind == "vector" or tensor.dims[#tensor.dims] == cols)
    if not is_ok then
      err.throw { code = "format", where = open.path, message = ("tensor '%s' is [%s], the config says [%d,%d]"):format(name, table.concat(tensor.dims, ","), rows, cols) }
    end
  end
end

local function layer_costs(trace, dtype)
  local cost, head = {}, 0
  for i = 1, trace.n_layer do cost[i] = 0 end
  for _, w in ipairs(trace.weight_list) do
    local n = 1
    for _, d in ipairs(w.dims) do n = n * trace.sizes[d] end
    local bytes = storage.bytes(dtype(w.name), n)
    if w.layer >= 0 then cost[w.layer + 1] = cost[w.layer + 1] + bytes
    elseif w.uses.linear then head = head + bytes end
  end
  return cost, head
end

-- -- Stages -------------------------------------------------------------------------------------------------

local function lcm_of_divs(lowered, sym)
  local n = 1
  for _, l in ipairs(lowered) do
    for _, op in ipairs(l.ops) do
      for _, v in ipairs(op.outs) do if v.sym == sym then n = partition.lcm(n, v.div) end end
    end
  end
  return n
end

local function round_up(n, unit) return math.ceil(n / unit) * unit end

-- The form of rows that products with weights of a type take, by `act` and --deterministic; nil: always floats.
local function wanted_form(act, is_deterministic)
  local wants = core().kernels.wants
  if act == "f32" then return nil end
  if act == "bf16" then return function() return "bf16" end end
  return function(dtype)
    local form = wants(dtype)
    -- q8_bf16 and bf16 rows are multiplied by other code when a step has many rows than when it has few
    return not is_deterministic and form or form == "q8_bf16" and "q8" or "f32"
  end
end

local function build_stage(self, spec, i)
  local origin, model, names = self.deploy.origin, self.model, self.config.names
  local graph = typing.build { model = model, config = self.config, mesh = stages.mesh(spec), layout = spec.layout,
    shares = spec.shares, first = spec.first, last = spec.last, dtype = self.dtype, stage = i - 1,
    where = origin and origin.where, find = self.where_to_look }
  local act, is_deterministic = self.deploy.act, self.options.deterministic
  local lowered = lower.graph(graph, self.config, function(name) return model:tensor(names, name) end,
    act == "f32" or is_deterministic)
  lowered.ops = fuse.run(lowered.ops, self.options.no_fuse)
  local wants = wanted_form(act, is_deterministic)
  if wants then lowered.ops = fuse.quantise(lowered.ops, wants) end
  return graph, lowered
end

local function step_caps(self, lowered)
  local d = self.deploy
  return { tok = round_up(d.step.tokens, lcm_of_divs(lowered, "tok")), seq = d.want.concurrency,
    out = round_up(math.max(d.want.concurrency, MIN_ROWS), lcm_of_divs(lowered, "out")), vocab = self.config.vocab }
end

local function plan_stages(self, specs)
  self.stages, self.lowered = {}, {}
  for i, spec in ipairs(specs) do
    local graph, lowered = build_stage(self, spec, i)
    self.stages[i] = { i = i - 1, first = spec.first, last = spec.last, graph = graph, lowered = lowered,
      mesh = graph.mesh, file = graph.file, layout = spec.layout }
    self.lowered[i] = lowered
  end
  self.caps = step_caps(self, self.lowered)
  self.n_ranks = 0
  for _, s in ipairs(self.stages) do
    s.first_rank = self.n_ranks
    s.memory = memory.plan(s.lowered.ops, self.caps)
    s.program = programs.text(s.lowered, { stage = s.i, first_rank = s.first_rank, caps = self.caps,
      memory = s.memory, kinds = "decode,mixed" })
    s.hash = core().hash.sha256(s.program)
    self.n_ranks = self.n_ranks + s.mesh.n
  end
end

-- -- Memory -------------------------------------------------------------------------------------------------

local function rank_bytes(self, s, r)
  local weights, file = budget.weight_bytes(s.lowered, r, core().kernels.pack_bytes, storage.bytes)
  return { rank = s.first_rank + r - 1, local_rank = r - 1, stage = s, weights = weights, read = file,
    arena = budget.arena_bytes(s.lowered, s.memory, self.caps, r),
    kv_per_token = budget.kv_bytes_per_token(s.lowered, r, self.kv.dtype == "f16" and 2 or 4), comm = 0, io = 0,
      other = budget.OTHER }
end

-- Bytes of a stage channel: a ring of slots of one step's activations for every rank of the next stage.
local function add_cuts(self)
  for i = 1, #self.stages - 1 do
    local slot = self.caps.tok * self.config.hidden * 4
    for _, r in ipairs(self.ranks) do
      if r.stage == self.stages[i + 1] then r.comm = r.comm + slot * (#self.stages + 1) end
    end
  end
end

local function slot_caps(self)
  local c = self.caps
  return { tok = c.tok, seq = c.seq, out = c.out, vocab = c.vocab, top = MOST_TOP, logit_rows = c.out,
    pages = self.kv.pages + c.seq,
    pool = self.kv.pages * self.kv.page + c.seq * POOL_PER_SEQUENCE }
end

local function plan_memory(self)
  local d = self.deploy
  local context = math.min(d.want.context or math.min(8192, self.config.context), self.config.context)
  if d.want.context and d.want.context > context then
    self:warn("context", ("want.context %d is more than the model's limit of %d"):format(d.want.context, context), "want.context")
  end
  self.context = context
  self.kv = { page = d.kv.page, dtype = d.kv.dtype == "auto" and (d.act == "f32" and "f32" or "f16") or d.kv.dtype }
  self.ranks = {}
  local fixed, per_token = 0, 0
  for _, s in ipairs(self.stages) do
    for r = 1, s.mesh.n do
      local b = rank_bytes(self, s, r)
      self.ranks[#self.ranks + 1] = b
      fixed, per_token = fixed + b.weights + b.arena + b.other, per_token + b.kv_per_token
    end
  end
  add_cuts(self)
  local available = self.options.available_bytes or core().sys.mem_available()
  self.kv.tokens, self.kv.pages = budget.kv({ tokens = d.kv.tokens, page = d.kv.page, context = context,
    concurrency = d.want.concurrency }, fixed, per_token, available)
  self.ranks[1].io = core().engine.step_bytes(slot_caps(self)) * (#self.stages + 1)
  self.available = available
  for _, b in ipairs(self.ranks) do
    b.kv = b.kv_per_token * self.kv.pages * self.kv.page
    b.total = b.weights + b.arena + b.comm + b.kv + b.io + b.other
    b.capacity = available and math.floor(available * budget.USABLE / #self.ranks) or nil
  end
end

local function check_require(self)
  local want = self.deploy.require
  for _, field in ipairs { "link", "same_numa", "itl_ms" } do
    if want[field] ~= nil then
      err.throw { code = "require", exit = 4, where = "require." .. field,
        message = "cannot be known in this version" }
    end
  end
  if want.kv_tokens and self.kv.tokens < want.kv_tokens then
    err.throw { code = "require", exit = 4, where = "require.kv_tokens",
      message = ("the KV cache has %d tokens, %d are required"):format(self.kv.tokens, want.kv_tokens) }
  end
end

-- -- Threads ------------------------------------------------------------------------------------------------

local function plan_threads(self)
  local cpus = self.options.cpus or core().sys.cpus()
  self.cpus = cpus
  self.threads = self.deploy.threads or math.max(1, math.floor(cpus / self.n_ranks))
  self.is_pinned = self.threads * self.n_ranks <= cpus
end

-- -- The plan -----------------------------------------------------------------------------------------------

local function plan_hash(self)
  local parts = { "tpl-plan 1", self.deploy.act, self.kv.dtype, self.kv.page, self.kv.pages, self.threads }
  for _, s in ipairs(self.stages) do parts[#parts + 1] = s.hash end
  for i, p in ipairs(parts) do parts[i] = tostring(p) end
  return core().hash.sha256(table.concat(parts, "\n"))
end

local function make(deploy, options)
  refuse_later(deploy)
  local open = open_model(deploy)
  local look = where_to_look(deploy, open)
  local model, model_file = models.load(open.config.arch, look)
  local self = setmetatable({ deploy = deploy, options = options, open = open, config = open.config,
    checkpoint = open.checkpoint,
    model = model, model_file = model_file, where_to_look = look, tokenizer_path = open.tokenizer,
      warnings = open.warnings }, Plan)
  self.dtype = dtype_of(open, model, self.config)
  local trace = typing.trace(model, self.config)
  check_types(trace, self.dtype, open.path)
  check_shapes(open, model, self.config, trace)
  local cost, head = layer_costs(trace, self.dtype)
  plan_stages(self, stages.resolve(deploy, { n_layer = self.config.n_layer, cost = cost, head_cost = head,
    script = { model = self.config, want = deploy.want, layer_costs = function() return cost end } }))
  plan_threads(self)
  plan_memory(self)
  check_require(self)
  self.hash = plan_hash(self)
  self.report = report.make(self)
  return self
end

--- Note something that a user should know and that stops nothing.
function Plan:warn(code, message, where)
  self.warnings[#self.warnings + 1] = { code = code, message = message, where = where }
end

--- Capacities of a step slot, as core.engine.open wants them.
function Plan:slot_caps() return slot_caps(self) end

--- The program text of all stages, one after the other.
function Plan:text()
  local out = {}
  for i, s in ipairs(self.stages) do out[i] = s.program end
  return table.concat(out)
end

--- The journey of the activations through every stage, as lines.
function Plan:explain()
  local explain, out = require "tpl.plan.explain", {}
  for _, s in ipairs(self.stages) do
    if #self.stages > 1 then out[#out + 1] = ("stage %d: layers %d to %d, mesh %s"):format(s.i, s.first, s.last,
      tostring(s.mesh)) end
    for _, line in ipairs(explain.lines(s.graph)) do out[#out + 1] = line end
  end
  return out
end

---@class tpl.PlanOptions
---@field no_fuse string|table<string, boolean>?  "all", or passes to leave out
---@field cpus integer?                           instead of this machine's
---@field available_bytes integer?                instead of this machine's

--- Make a plan.
---@param deploy tpl.Deploy|table|string  a deployment or its fields, the path of a deploy.lua, or a model
---@param options tpl.PlanOptions?
---@param words table?                 key=value words, with a path or model
---@return table? plan
---@return tpl.Err?
function M.make(deploy, options, words)
  if type(deploy) == "string" then
    local d, e = deploys.open(deploy, words or options)
    if not d then return nil, e end
    deploy, options = d, words and options or nil
  elseif not deploys.is(deploy) then
    local d, e = err.try(deploys.new, deploy)
    if not d then return nil, e end
    deploy = d
  end
  return err.try(make, deploy, options or {})
end

return M
