-- SPDX-License-Identifier: Apache-2.0
--- Make a plan: from a deployment, a machine and a model's headers to devices, typed stages, programs, memory, a price and
--- a report. Nothing is loaded and no thread is started. Equal inputs give equal programs and hashes.
local choices = require "tpl.plan.choices"
local cores = require "tpl.plan.cores"
local deploys = require "tpl.deploy"
local err = require "tpl.err"
local fuse = require "tpl.plan.fuse"
local lower = require "tpl.plan.lower"
local machine = require "tpl.plan.machine"
local memory = require "tpl.plan.memory"
local moves = require "tpl.plan.moves"
local nccl_env = require "tpl.nccl_env"
local opening = require "tpl.plan.opening"
local outline = require "tpl.plan.outline"
local partition = require "tpl.plan.partition"
local place = require "tpl.place"
local price = require "tpl.plan.price"
local programs = require "tpl.plan.program"
local ranks = require "tpl.plan.ranks"
local report = require "tpl.plan.report"
local stage_context = require "tpl.plan.stage_context"
local stages = require "tpl.plan.stages"
local typing = require "tpl.plan.typing"
local util = require "tpl.util"

local M = {}

local MIN_ROWS = 64 -- output rows of a step, so that scoring need not go one row at a time

local Plan = { __name = "tpl.plan" }
Plan.__index = Plan

local function core() return require("tpl.core") end

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

local function is_on_cpu(self, spec) return self.topo:dev(spec.devices[1]).kind == "cpu" end

local function build_stage(self, spec, i)
  local origin, model, names = self.deploy.origin, self.model, self.config.names
  local graph = typing.build { model = model, config = self.config, mesh = stages.mesh(spec), layout = spec.layout,
    shares = spec.shares, first = spec.first, last = spec.last, dtype = self.dtype, stage = i - 1,
    where = origin and origin.where, find = self.where_to_look }
  local act, is_deterministic = self.deploy.act, self.options.deterministic
  local lowered = lower.graph(graph, self.config, function(name) return model:tensor(names, name) end,
    act == "f32" or is_deterministic)
  lowered.ops = fuse.run(lowered.ops, self.options.no_fuse)
  local wants = is_on_cpu(self, spec) and wanted_form(act, is_deterministic)
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
      mesh = graph.mesh, file = graph.file, layout = spec.layout, devices = spec.devices, shares = spec.shares }
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

-- -- Threads ------------------------------------------------------------------------------------------------

local function plan_context(self)
  local d = self.deploy
  local context = math.min(d.want.context or math.min(8192, self.config.context), self.config.context)
  if d.want.context and d.want.context > context then
    self:warn("context", ("want.context %d is more than the model's limit of %d"):format(d.want.context, context), "want.context")
  end
  self.context = context
  self.kv = { page = d.kv.page, dtype = d.kv.dtype == "auto" and (d.act == "f32" and "f32" or "f16") or d.kv.dtype }
end

-- -- The plan -----------------------------------------------------------------------------------------------

local function plan_hash(self)
  local parts = { "tpl-plan 1", self.deploy.act, self.kv.dtype, self.kv.page, self.kv.pages, self.threads }
  for _, s in ipairs(self.stages) do parts[#parts + 1] = s.hash end
  for i, p in ipairs(parts) do parts[i] = tostring(p) end
  return core().hash.sha256(table.concat(parts, "\n"))
end

local function place_on(self, given)
  if self.options.topo then machine.check(self.machine, self.machine:ids { kind = "gpu", usable = true }) end
  self.placed = self.options.placed or place.resolve { topo = self.machine, deploy = self.deploy, shape = self.shape, stages = given,
    mesh_n = stages.mesh_n(self.deploy), has_gpu_backend = self.options.topo ~= nil }
  self.topo = self.placed.topo
end

-- Decide the devices and give the stages of the first replica: all replicas are cut alike.
local function plan_placement(self, cost, head)
  local deploy = self.deploy
  local context = { n_layer = self.config.n_layer, cost = cost, head_cost = head, script = stage_context.new { topo = self.machine,
    model = self.config, shape = self.shape, want = deploy.want, costs = cost, head_cost = head } }
  local given = stages.given(deploy, context)
  place_on(self, given)
  local placed = self.placed.replicas[1].stages
  for i, s in ipairs(given or {}) do s.devices = placed[i].devices end
  return given or stages.placed(placed, deploy, context)
end

-- The devices that talk to each other: one list for each replica.
local function replica_groups(self)
  local out = {}
  for i, replica in ipairs(self.placed.replicas) do
    out[i] = {}
    for _, s in ipairs(replica.stages) do
      for _, uid in ipairs(s.devices) do table.insert(out[i], uid) end
    end
  end
  return out
end

local make

-- The KV tokens of the same plan with other shares of its one stage; nil when it does not come to be.
local function with_shares(self, shares)
  local options, placed = util.copy(self.options), util.copy(self.placed)
  placed.replicas = util.map(placed.replicas, function(replica)
    local stage = util.copy(replica.stages[1])
    stage.shares = shares
    return { stages = { stage } }
  end)
  options.placed, options.is_trial = placed, true
  local p = err.try(make, self.deploy, options)
  return p and p.kv.tokens
end

-- What every plan ends with, once its ranks have bytes.
local function finish(self)
  self.cost = price.of(self)
  choices.check_require(self)
  self.moves = self.options.is_trial and {} or moves.of(self, with_shares)
  self.env = nccl_env.make(self.topo, replica_groups(self))
  self.hash = plan_hash(self)
  self.report = report.make(self)
  return self
end

function make(deploy, options)
  local open = opening.model(deploy, options.outline)
  local self = setmetatable({ deploy = deploy, options = options, open = open, config = open.config, checkpoint = open.checkpoint,
    tokenizer_path = open.tokenizer, warnings = open.warnings, shape = open.shape, machine = machine.of(options) }, Plan)
  plan_context(self)
  if open.refused then
    outline.fill(self, plan_placement(self, outline.layer_costs(self.shape)))
    return finish(self)
  end
  local def = opening.definition(deploy, open)
  self.model, self.model_file, self.where_to_look, self.dtype = def.model, def.model_file, def.look, def.dtype
  plan_stages(self, plan_placement(self, opening.layer_costs(def.trace, def.dtype)))
  ranks.make(self)
  self.threads, self.is_pinned = cores.assign(self.ranks, deploy.threads)
  ranks.size(self)
  return finish(self)
end

--- Note something that a user should know and that stops nothing.
function Plan:warn(code, message, where)
  self.warnings[#self.warnings + 1] = { code = code, message = message, where = where }
end

--- Capacities of a step slot, as core.engine.open wants them.
function Plan:slot_caps() return ranks.slot_caps(self) end

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
---@field topo tpl.Topo?                           a recorded machine instead of this one
---@field outline boolean?                         a model without a definition gives a plan of its memory
---@field placed table?                            a placement that was decided already (a manifest's)

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
