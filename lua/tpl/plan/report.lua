-- SPDX-License-Identifier: Apache-2.0
--- Say what a plan is, in the fields of `tpl plan` (interface.md section 4). What is not known, or comes with a
--- later issue, is null or [].
local json = require "tpl.json"
local index_ranges = require "tpl.plan.index_ranges"

local M = {}

local null = json.null

local function array(t) return json.array(t) end

local function or_null(x) if x == nil then return null end return x end

local function count_params(plan)
  local n, seen = 0, {}
  for _, s in ipairs(plan.stages) do
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
  if not plan.checkpoint then return null end
  local n = 0
  for _, t in ipairs(plan.checkpoint:tensors()) do n = n + t.bytes end
  return n
end

local function model(plan)
  return { arch = plan.config.arch, params = count_params(plan), weight_bytes = file_bytes(plan),
    format = plan.checkpoint and plan.checkpoint:kind() or null, sha256 = null }
end

local function numbers(first, count)
  local out = array {}
  for i = 0, count - 1 do out[i + 1] = first + i end
  return out
end

-- The most that a cut can reach of an even one, since all wait for the fullest rank: bytes of weights on all ranks over
-- the number of ranks times those of the fullest.
local function balance(plan, s)
  local sum, most = 0, 0
  for _, b in ipairs(plan.ranks) do
    if b.stage == s then sum, most = sum + b.weights, math.max(most, b.weights) end
  end
  return most > 0 and sum / (s.mesh.n * most) or 1
end

local function stage(plan, s)
  local axes = array {}
  for i, a in ipairs(s.mesh.axes) do axes[i] = { name = a, size = s.mesh.size[a], kind = or_null(s.mesh.kind[a]) } end
  local list = array {}
  for i, kind in ipairs { "decode", "mixed" } do list[i] = { kind = kind, ops = #s.lowered.ops, hash = s.hash } end
  return { i = s.i, layers = array { s.first, s.last }, axes = axes, ranks = numbers(s.first_rank, s.mesh.n),
    programs = list, balance = balance(plan, s),
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
  local s, r, coord = b.stage, b.local_rank, {}
  for _, a in ipairs(s.mesh.axes) do coord[a] = s.mesh:coord(r, a) end
  local cpus = numbers(plan.is_pinned and b.rank * plan.threads or 0, plan.is_pinned and plan.threads or plan.cpus)
  return { rank = b.rank, stage = s.i, replica = 0, coord = coord, uid = "cpu" .. b.rank, cpus = cpus,
    numa = null, shards = shards(s, r),
    bytes = { weights = b.weights, arena = b.arena, comm = b.comm, kv = b.kv, io = b.io, other = b.other,
      total = b.total, capacity = or_null(b.capacity), stranded = 0 },
    read_bytes = b.read, kv_tokens = plan.kv.tokens }
end

local function limiting_rank(plan)
  local most
  for _, b in ipairs(plan.ranks) do
    if not most or b.total > most.total then most = b end
  end
  return most.rank
end

local function kv(plan)
  local domains, groups = array {}, array {}
  for i, s in ipairs(plan.stages) do domains[i] = { stage = s.i, ranks = numbers(s.first_rank, s.mesh.n),
    pages = plan.kv.pages } end
  groups[1] = { name = "full", kind = "paged" }
  return { tokens = plan.kv.tokens, page = plan.kv.page, dtype = plan.kv.dtype, groups = groups,
    domains = domains, max_len = plan.context,
    max_concurrency = plan.kv.tokens / plan.context, limiting_rank = limiting_rank(plan) }
end

-- Payload of a collective on the member that brings most: rows of the step times its local columns.
local function payload(op, tokens)
  local v, most = op.ins[1], 0
  for _, c in ipairs(v.cols) do most = math.max(most, c) end
  local rows = v.sym == "tok" and tokens or 1
  return math.ceil(rows / v.div) * most * 4, most
end

local function collectives(plan)
  local out = array {}
  for _, s in ipairs(plan.stages) do
    for _, op in ipairs(s.lowered.ops) do
      if op.axes then
        for _, g in ipairs(s.mesh:groups(op.axes)) do
          local members = array {}
          for i, r in ipairs(g) do members[i] = s.first_rank + r end
          local decode, cols = payload(op, 1)
          out[#out + 1] = { i = #out, kind = op.kind, stage = s.i, axes = array { unpack(op.axes) },
            group = members, mark = op.mark, op = op.name, dtype = "f32",
            count = cols, bytes = { decode = decode, prefill = (payload(op, 512)) },
              us = { decode = null, prefill = null } }
        end
      end
    end
  end
  return out
end

-- Largest degrees over the stages; pp is the number of stages.
local function degrees(plan)
  local tp = 1
  for _, s in ipairs(plan.stages) do tp = math.max(tp, s.mesh.n) end
  return { tp = tp, pp = #plan.stages, ep = 1, dp = 1 }
end

--- Make the report of a plan.
---@param plan table
---@return table
function M.make(plan)
  local stages, ranks, hashes = array {}, array {}, {}
  for i, s in ipairs(plan.stages) do stages[i], hashes[i] = stage(plan, s), s.hash end
  for i, b in ipairs(plan.ranks) do ranks[i] = rank(plan, b) end
  local program_hash = #hashes == 1 and hashes[1] or require("tpl.core").hash.sha256(table.concat(hashes, "\n"))
  return { plan_hash = plan.hash, program_hash = program_hash, model = model(plan), stages = stages,
    ranks = ranks, kv = kv(plan), collectives = collectives(plan),
    cost = null, choice = { policy = "auto", where = "built-in",
      reasons = array { ("%d CPU rank%s with %d thread%s each"):format(plan.n_ranks, plan.n_ranks > 1 and "s" or "",
      plan.threads, plan.threads > 1 and "s" or "") }, excluded = array {}, alternatives = array {} },
    env = array {}, fits = true, moves = array {}, replicas = array {}, degrees = degrees(plan), emit = null,
      why_not = null, act = plan.deploy.act, threads = plan.threads }
end

return M
