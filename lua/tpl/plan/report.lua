-- SPDX-License-Identifier: Apache-2.0
--- Say what a plan is, in the fields of `tpl plan` (interface.md section 4). What is not known, or comes with a
--- later issue, is null or [].
local index_ranges = require "tpl.plan.index_ranges"
local json = require "tpl.json"

local M = {}

local null = json.null

local function array(t) return json.array(t) end

local function or_null(x) if x == nil then return null end return x end

local function list(t) return array { unpack(t or {}) } end

local function numbers(first, count)
  local out = array {}
  for i = 0, count - 1 do out[i + 1] = first + i end
  return out
end

-- -- Model -----------------------------------------------------------------------------------------------------------

local function count_params(plan)
  local n, seen = 0, {}
  for _, s in ipairs(plan.stages) do
    if not s.lowered then return plan.shape.params end
    for _, w in ipairs(s.lowered.weights) do
      if not seen[w.name] then
        seen[w.name] = true
        n = n + w.rows * w.cols
      end
    end
  end
  return n
end

local function file_bytes(plan)
  if not plan.checkpoint then return nil end
  local n = 0
  for _, t in ipairs(plan.checkpoint:tensors()) do n = n + t.bytes end
  return n
end

local function model(plan)
  return { arch = plan.config.arch, params = or_null(count_params(plan)), weight_bytes = or_null(file_bytes(plan) or plan.shape.weight_bytes),
    format = plan.checkpoint and plan.checkpoint:kind() or null, sha256 = null, path = or_null(plan.open.path),
    n_head = or_null(plan.shape.n_head), n_kv = or_null(plan.shape.n_kv) }
end

-- -- Stages and ranks ------------------------------------------------------------------------------------------------

-- The most that a cut can reach of an even one, since all wait for the fullest rank: bytes of weights on all ranks over
-- the number of ranks times those of the fullest.
local function balance(plan, s)
  local sum, most, n = 0, 0, 0
  for _, b in ipairs(plan.ranks) do
    if b.stage == s and b.replica == 0 then sum, most, n = sum + b.weights, math.max(most, b.weights), n + 1 end
  end
  return most > 0 and sum / (n * most) or 1
end

local function programs(s)
  local out = array {}
  for i, kind in ipairs(s.lowered and { "decode", "mixed" } or {}) do out[i] = { kind = kind, ops = #s.lowered.ops, hash = s.hash } end
  return out
end

-- Shares as they were given, per axis.
local function shares_of(s)
  if not s.shares then return nil end
  return s.shares[1] and { tp = list(s.shares) } or s.shares
end

local function stage(plan, s)
  local axes = array {}
  for i, a in ipairs(s.mesh.axes) do axes[i] = { name = a, size = s.mesh.size[a], kind = or_null(s.mesh.kind[a]) } end
  return { i = s.i, layers = array { s.first, s.last }, axes = axes, ranks = numbers(s.first_rank, #s.devices),
    programs = programs(s), balance = balance(plan, s), shares = or_null(shares_of(s)),
    layout = s.file or (type(s.layout) == "string" and s.layout) or null }
end

-- Every dim that some weight splits, with this rank's ranges.
local function shards(s, r)
  local out = {}
  for _, w in pairs(s.graph.weights) do
    for _, p in pairs(w.pl) do
      if p.k == "S" and not out[p.dim] then
        local ranges = array {}
        for i, g in ipairs(index_ranges.held(s.graph, w.pl, p.dim, r)) do ranges[i] = array { g[1], g[2] } end
        out[p.dim] = ranges
      end
    end
  end
  return out
end

local function rank(plan, b)
  local s, coord = b.stage, {}
  for _, a in ipairs(s.mesh.axes) do coord[a] = s.mesh:coord(b.local_rank, a) end
  return { rank = b.rank, stage = s.i, replica = b.replica, coord = coord, uid = b.device.uid, cpus = list(b.cores), numa = or_null(b.numa),
    shards = s.graph and shards(s, b.local_rank) or b.shards or {},
    bytes = { weights = b.weights, arena = b.arena, comm = b.comm, kv = b.kv, io = b.io, other = b.other,
      total = b.total, capacity = or_null(b.capacity), stranded = or_null(b.stranded) },
    read_bytes = or_null(b.read), kv_tokens = plan.kv.tokens }
end

local function replicas(plan)
  local out = array {}
  for i, replica in ipairs(plan.placed.replicas) do
    local devices = array {}
    for _, s in ipairs(replica.stages) do
      for _, uid in ipairs(s.devices) do devices[#devices + 1] = uid end
    end
    out[i] = { i = i - 1, ranks = numbers((i - 1) * plan.n_ranks, plan.n_ranks), devices = devices }
  end
  return out
end

local function kv(plan)
  local domains, groups = array {}, array {}
  for i, s in ipairs(plan.stages) do
    domains[i] = { stage = s.i, ranks = numbers(s.first_rank, #s.devices), pages = plan.kv.pages }
  end
  groups[1] = { name = "full", kind = "paged" }
  return { tokens = plan.kv.tokens, page = plan.kv.page, dtype = plan.kv.dtype, groups = groups,
    domains = domains, max_len = plan.context,
    max_concurrency = plan.kv.tokens / plan.context, limiting_rank = plan.limiting.rank }
end

-- Largest degrees over the stages; pp is the number of stages, dp the ranks that batch axes part.
local function degrees(plan)
  local d = { tp = 1, pp = #plan.stages, ep = plan.ep or 1, dp = 1 }
  for _, s in ipairs(plan.stages) do
    local dp = 1
    for _, axis in ipairs(s.mesh.axes) do
      if s.mesh.kind[axis] == "batch" then dp = dp * s.mesh.size[axis] end
    end
    d.dp, d.tp = math.max(d.dp, dp), math.max(d.tp, s.mesh.n / dp)
  end
  return d
end

-- -- The whole -------------------------------------------------------------------------------------------------------

local function choice(plan)
  local reasons = list(plan.placed.reasons)
  if plan.ranks[1].device.kind == "cpu" then
    reasons[#reasons + 1] = ("%d CPU rank%s with %d thread%s each"):format(plan.n_ranks, plan.n_ranks > 1 and "s" or "", plan.threads,
      plan.threads > 1 and "s" or "")
  end
  local alternatives = array {}
  for i, x in ipairs(plan.placed.alternatives) do alternatives[i] = { name = x.name, score = or_null(x.score), why = x.why } end
  return { policy = plan.placed.policy, where = plan.placed.where or null, reasons = reasons, excluded = list(plan.placed.excluded),
    alternatives = alternatives }
end

-- Link bytes and stages are lists also when they are empty.
local function cost(plan)
  local c = plan.cost
  if not c then return null end
  local stages, links = array {}, array {}
  for i, s in ipairs(c.stages or {}) do stages[i] = { us_decode = or_null(s.us_decode), us_prefill = or_null(s.us_prefill) } end
  for i, l in ipairs(c.link_bytes_per_token or {}) do links[i] = { a = l.a, b = l.b, bytes = math.ceil(l.bytes) } end
  return { ttft_us = or_null(c.ttft_us), itl_us = or_null(c.itl_us), tok_s = or_null(c.tok_s), comm_share = or_null(c.comm_share),
    bubble = or_null(c.bubble), min_concurrency = or_null(c.min_concurrency), stage_imbalance = or_null(c.stage_imbalance),
    roofline_share = or_null(c.roofline_share), bound = or_null(c.bound), stages = stages, link_bytes_per_token = links,
    calibrated = c.calibrated == true }
end

--- Make the report of a plan.
---@param plan table
---@return table
function M.make(plan)
  local stages, ranks, hashes = array {}, array {}, {}
  for i, s in ipairs(plan.stages) do stages[i], hashes[i] = stage(plan, s), s.hash end
  for i, b in ipairs(plan.ranks) do ranks[i] = rank(plan, b) end
  local program_hash = #hashes == 1 and hashes[1] or #hashes > 1 and require("tpl.core").hash.sha256(table.concat(hashes, "\n")) or null
  return { plan_hash = plan.hash, program_hash = program_hash, model = model(plan), stages = stages,
    ranks = ranks, kv = kv(plan), collectives = require("tpl.plan.collectives").of(plan),
    cost = cost(plan), choice = choice(plan), env = list(plan.env), fits = true, moves = list(plan.moves), replicas = replicas(plan),
    degrees = degrees(plan), emit = null, why_not = null, act = plan.deploy.act, threads = plan.threads }
end

return M
