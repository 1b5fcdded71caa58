-- SPDX-License-Identifier: Apache-2.0
--- Price one replica: does it fit, how many KV tokens it holds, how fast it answers and what limits it. The heart of the
--- cost model; policies call it for every candidate, so it groups equal layers and equal ranks and makes few tables. Pure.
local device = require "tpl.cost.device"
local err = require "tpl.err"
local group = require "tpl.cost.group"
local memory = require "tpl.cost.memory"
local parts = require "tpl.cost.parts"
local pipeline = require "tpl.cost.pipeline"
local team = require "tpl.cost.team"

local M = {}

local max, min, ceil, floor = math.max, math.min, math.ceil, math.floor

local elements = { f32 = 4, f16 = 2, bf16 = 2, fp8 = 1, i8 = 1 }

local CHUNK = 512          -- prompt tokens of a step
-- What a served request is like unless want says so: the medians of a public trace of conversations were 1020 tokens in and 129 out
-- (Splitwise, arXiv:2311.18677).
local MIX_PROMPT, MIX_OUTPUT = 1024, 128
local COMM, STAGE, ROOF = 0.20, 0.10, 0.70

-- -- Wishes ------------------------------------------------------------------------------------------------------------

local function options(shape, want, is_cpu)
  local act = want.act and elements[want.act] or 2
  local context = want.context or min(8192, shape.context)
  local prompt = min(want.prompt or CHUNK, context)
  return {
    context = context, concurrency = max(1, want.concurrency or 16), prompt = prompt,
    mix_prompt = min(want.prompt or MIX_PROMPT, context), output = want.output or MIX_OUTPUT,
    depth = want.depth or max(1, ceil(context / 2)), chunk = want.chunk or CHUNK, usable = want.usable or 0.90,
    kv_element = elements[want.kv_dtype or "f16"] or 2, act_bytes = act, comm_element = is_cpu and 4 or act,
    cut_vocab = want.tp_cut_vocab ~= false, dtype = shape.dtype or "bf16", head_dtype = shape.head_dtype or shape.dtype or "bf16",
    step_tokens = want.step_tokens or CHUNK, prompts = want.prompts or 1, probe = want.probe, act = want.act,
  }
end

-- -- Stages ------------------------------------------------------------------------------------------------------------

local function rank_of(t, uid, part, opts)
  local dev = t:dev(uid)
  if not dev then err.throw { code = "missing", where = uid, message = "no such device in the topology" } end
  local d, e = device.at(t, dev, opts)
  if not d then err.throw(e) end
  local same = ("%.6f/%.6f/%.6f/%.6f"):format(part.attn, part.kv, part.ffn, part.expert)
  return { uid = uid, dev = dev, device = d, part = part, same = same }
end

local function make_stage(t, shape, spec, i, n_stages, opts)
  local n = #spec.devices
  local layers = spec.layers or { 0, shape.n_layer - 1 }
  local degrees = parts.degrees(spec.mesh, n)
  local stage = { shape = shape, first = layers[1], last = layers[2], ranks = {}, degrees = degrees, is_first = i == 1, is_last = i == n_stages,
    cut_vocab = opts.cut_vocab, sums = memory.sums(shape, layers[1], layers[2]) }
  local list = parts.of(shape, n, spec.shares, degrees, opts.cut_vocab)
  for k, uid in ipairs(spec.devices) do stage.ranks[k] = rank_of(t, uid, list[k], opts) end
  if n > 1 then
    stage.group = group.of(t, spec.devices)
    stage.tp_group = stage.group
    if degrees.dp > 1 and degrees.tp > 1 then -- the ranks of one batch part lie side by side
      local first = {}
      for k = 1, degrees.tp do first[k] = spec.devices[k] end
      stage.tp_group = group.of(t, first)
    end
  end
  return stage
end

-- -- Memory ------------------------------------------------------------------------------------------------------------

local function gib(n) return ("%.1f GiB"):format(n / 2 ^ 30) end

local function rank_bytes(stage, rank, i_stage, n_stages, opts)
  local shape = stage.shape
  local rows = min(opts.step_tokens, opts.concurrency)
  local capacity = memory.capacity(rank.dev, rank.device, opts.usable)
  local r = { uid = rank.uid, stage = i_stage - 1, free = rank.dev.free_bytes, capacity = capacity and floor(capacity),
    weights = ceil(memory.weights(shape, stage.sums, rank.part, stage.is_first, stage.is_last)),
    arena = ceil(memory.arena(shape, rank.part, opts.step_tokens, stage.is_last and rows or 0, opts.act_bytes)),
    comm = (#stage.ranks > 1 or n_stages > 1) and 2 * opts.step_tokens * shape.hidden * opts.comm_element or 0,
    other = ceil(memory.other(rank.device.kind, stage.group and stage.group.class, n_stages > 1)) }
  if not r.capacity and rank.device.kind ~= "cpu" then
    err.throw { code = "unsupported", where = rank.uid, message = "the topology does not say how much memory this device has",
      hint = "give mem_bytes in a record (tpl topo --record), or name a card: --assume gpu=h100-sxm-80gb" }
  end
  r.kv_rank = memory.kv(shape, stage.sums, rank.part, opts.kv_element)
  r.kv_per_token = r.kv_rank.per_token * rank.part.seqs
  r.kv_full_per_token, r.kv_window_bytes = r.kv_rank.full * rank.part.seqs, memory.window_bytes(r.kv_rank, opts.context, opts.concurrency)
  r.room = r.capacity and r.capacity - r.weights - r.arena - r.comm - r.other
  return r
end

local function price_memory(stages, shape, opts)
  local ranks, limiting, tokens = {}, 1, math.huge
  local most = max(opts.context, shape.context) * max(opts.concurrency, 1) * 64
  for i, stage in ipairs(stages) do
    for _, rank in ipairs(stage.ranks) do
      local r = rank_bytes(stage, rank, i, #stages, opts)
      ranks[#ranks + 1] = r
      local n = r.room and memory.kv_tokens(r.kv_rank, r.room, opts.concurrency, most) or most
      -- of two that hold as much, the one with less room
      if n < tokens or n == tokens and (r.room or math.huge) < (ranks[limiting].room or math.huge) then tokens, limiting = n, #ranks end
    end
  end
  for _, r in ipairs(ranks) do
    r.kv = ceil(memory.kv_bytes(r.kv_rank, tokens, opts.concurrency))
    r.stranded = r.room and max(0, r.room - r.kv) or 0
  end
  return ranks, limiting, tokens
end

local function why_not(ranks, limiting, tokens, opts)
  local needed = opts.context * opts.concurrency
  if tokens >= needed then return nil end
  local r = ranks[limiting]
  local kv = memory.kv_bytes(r.kv_rank, needed, opts.concurrency)
  local fixed = r.arena + r.comm + r.other
  return ("%s: %d tokens (%d x %d) need %d bytes (%s: weights %s, KV %s, buffers %s), %d are usable (%s)"):format(r.uid, needed,
    opts.concurrency, opts.context, r.weights + fixed + kv, gib(r.weights + fixed + kv), gib(r.weights), gib(kv), gib(fixed),
    r.capacity, gib(r.capacity))
end

-- -- Time --------------------------------------------------------------------------------------------------------------

local function largest(times)
  local us = { memory = pipeline.sum(times, "mem"), compute = pipeline.sum(times, "math"), comm = pipeline.sum(times, "comm"),
    latency = pipeline.sum(times, "launch") }
  local best = "memory"
  for _, k in ipairs { "compute", "comm", "latency" } do if us[k] > us[best] then best = k end end
  return best
end

-- Bytes that the ring of each group and each cut of the pipeline carry for one token, one way.
local function traffic(stages, opts)
  local out = {}
  for _, stage in ipairs(stages) do
    local n, row = #stage.ranks, stage.shape.hidden * opts.comm_element
    if n > 1 then
      local bytes = 2 * stage.sums.n_layer * row * 2 * (n - 1) / n
      for i = 1, n == 2 and 1 or n do out[#out + 1] = { a = stage.ranks[i].uid, b = stage.ranks[i % n + 1].uid, bytes = bytes } end
    end
    if stage.next_link then out[#out + 1] = { a = stage.next_a, b = stage.next_b, bytes = row } end
  end
  return out
end

local function warnings(e, times, opts)
  local out = {}
  local function add(code, text, ...) out[#out + 1] = { code = code, message = text:format(...) } end
  if e.comm_share > COMM then add("comm_over_20pct", "communication takes %.0f %% of a token", 100 * e.comm_share) end
  if #times > 1 then
    local mean = pipeline.sum(times, "us") / #times
    for i, s in ipairs(times) do
      local off = s.us / mean - 1
      if math.abs(off) > STAGE then
        add("stage_over_10pct", "stage %d takes %.0f %% %s than the mean", i - 1, 100 * math.abs(off), off > 0 and "more" or "less")
      end
    end
  end
  if opts.concurrency < e.min_concurrency then
    add("fill", "%d stages need %d requests at a time to be busy, %d are wanted", #times, e.min_concurrency, opts.concurrency)
  end
  if e.roofline_share < ROOF then
    add("under_70pct", "the estimate is %.0f %% of what the memory and the arithmetic allow", 100 * e.roofline_share)
  end
  return out
end

local function price_time(e, t, stages, opts)
  pipeline.connect(t, stages)
  local d = pipeline.decode(stages, opts.concurrency, opts.depth, opts)
  local first, fill = pipeline.prefill(stages, opts.prompt, opts), pipeline.prefill(stages, opts.mix_prompt, opts)
  e.itl_us, e.ttft_us, e.tok_s = d.itl, first.us + pipeline.step_us(stages), opts.concurrency / d.itl * 1e6
  if opts.prompts > 1 then e.ttft_us = pipeline.arrival(stages, opts.prompt, opts.prompts, opts) end
  e.bubble, e.min_concurrency = d.bubble, #stages
  local full = pipeline.served(stages, e.kv_tokens, opts)
  e.served_tok_s, e.served_concurrency = full.tok_s, full.concurrency
  -- A token's own steps and its part of the prompt: what an engine spends on it.
  local scale = opts.output / ceil(opts.concurrency / d.in_flight)
  local all = scale * pipeline.sum(d.times, "us") + fill.n * pipeline.sum(fill.times, "us")
  e.decode_comm_share = pipeline.sum(d.times, "comm") / pipeline.sum(d.times, "us")
  e.comm_share = (scale * pipeline.sum(d.times, "comm") + fill.n * pipeline.sum(fill.times, "comm")) / all
  local mean, most = pipeline.sum(d.times, "us") / #stages, 0
  e.stages = {}
  for i, s in ipairs(d.times) do
    most = max(most, s.us)
    e.stages[i] = { us_decode = s.us, us_prefill = first.times[i].us, comm_us_decode = s.comm }
  end
  e.stage_imbalance = most / mean - 1
  e.roofline_share = min(1, pipeline.sum(d.times, "ideal") / d.itl)
  e.bound = largest(d.times)
  e.link_bytes_per_token = traffic(stages, opts)
  e.warnings = warnings(e, d.times, opts)
end

---@class tpl.cost.Estimate
---@field fits boolean                 want.context x want.concurrency tokens fit
---@field fits_one boolean             one request of want.context fits
---@field why string?                  what does not fit, in bytes
---@field kv_tokens integer            tokens that fit, in requests of equal length, whole pages
---@field ranks {uid: string, stage: integer, weights: number, arena: number, comm: number, kv: number, kv_per_token: number, other: number,
---   capacity: number, free: number?, stranded: number}[]   bytes; kv: of kv_tokens
---@field limiting integer             index into ranks
---@field itl_us number                between two tokens of a request, want.concurrency at a time
---@field ttft_us number               of a prompt of want.prompt tokens on an idle replica; of the last one where want.prompts arrive together
---@field tok_s number                 decode, all requests together
---@field served_tok_s number          output tokens a second of a mix of prompts and answers with the cache full: what throughput compares
---@field served_concurrency integer
---@field comm_share number            of a token, its part of the prompt included
---@field decode_comm_share number     of a decode step
---@field bubble number                share of the stages' time that they stand still in decode
---@field min_concurrency integer
---@field stage_imbalance number       slowest stage over the mean, less one
---@field roofline_share number
---@field bound "memory"|"compute"|"comm"|"latency"
---@field stages {us_decode: number, us_prefill: number, comm_us_decode: number}[]
---@field link_bytes_per_token {a: string, b: string, bytes: number}[]
---@field warnings {code: string, message: string}[]
---@field calibrated boolean           with rates measured on this machine

local function estimate(t, shape, replica, want)
  local specs = replica.stages or { replica }
  local first = t:dev(specs[1].devices[1])
  local opts = options(shape, want, first and first.kind == "cpu")
  opts.probe = opts.probe or t.probe
  local stages = {}
  for i, spec in ipairs(specs) do stages[i] = make_stage(t, shape, spec, i, #specs, opts) end
  team.deal(stages, want.threads, t)
  local e = {}
  e.ranks, e.limiting, e.kv_tokens = price_memory(stages, shape, opts)
  e.why = why_not(e.ranks, e.limiting, e.kv_tokens, opts)
  e.fits = e.why == nil
  e.fits_one = e.kv_tokens >= opts.context
  price_time(e, t, stages, opts)
  e.calibrated = stages[1].ranks[1].device.source == "probe"
  for _, r in ipairs(e.ranks) do r.kv_rank, r.room = nil, nil end
  return e
end

--- Price one replica.
---@param t table         topology
---@param shape tpl.Shape
---@param replica {stages: {devices: string[], layers: integer[]?, shares: number[]?, mesh: string?}[]}
---@param want table      {context, concurrency, goal, prompt, prompts, output, depth, threads, kv_dtype, usable, act, tp_cut_vocab, probe}
---@return tpl.cost.Estimate?
---@return tpl.Err?       an unknown device or GPU
function M.of(t, shape, replica, want) return err.try(estimate, t, shape, replica, want or {}) end

-- What cutting into stages needs of the above.
M.options, M.make_stage, M.rank_bytes = options, make_stage, rank_bytes

return M
