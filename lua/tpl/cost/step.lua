-- SPDX-License-Identifier: Apache-2.0
--- Price one step of a stage: for each kind of layer the ops of its slowest rank, its collectives, the head with the last
--- stage. The same function prices a decode step (one token of each sequence) and a chunk of a prompt. Pure.
local collective = require "tpl.cost.collective"
local cpu = require "tpl.cost.cpu"
local ops = require "tpl.cost.ops"

local M = {}

local max, min = math.max, math.min

---@class tpl.cost.Work
---@field tokens number   in the step
---@field seqs number     sequences whose cache is read
---@field pos number      cached positions that a token sees, on average
---@field kv_pos number   cached positions read per sequence
---@field rows number     output rows

-- Kernels of a layer: norm and qkv, rope and cache, attention and its merge, o, add and norm, gate and up, activation, down.
local GPU_OPS, MOE_OPS, MLA_OPS = 10, 5, 4
local CANDIDATES = 512 -- bytes of best tokens that a rank offers for a row
local ACT_PASSES = 12 -- times that a layer reads or writes a row of hidden size beside its products

--- Give the share of a layer's experts that n tokens reach, each choosing k of E evenly.
---@param e integer
---@param k integer
---@param n number
function M.experts_hit(e, k, n) return 1 - (1 - k / e) ^ n end

local function add(sum, d, bytes, flops, dtype, act)
  if bytes <= 0 and flops <= 0 then return end
  local us, mem, math_us = ops.time(d, bytes, flops, dtype, act)
  sum.us = sum.us + us
  if mem >= math_us then sum.mem = sum.mem + us else sum.math = sum.math + us end
  sum.bytes, sum.flops = sum.bytes + bytes, sum.flops + flops / ops.peak(d, dtype, act)
end

-- Tokens and sequences of a rank that holds a share of the sequences: at least one of them whole.
local function spread(work, share)
  local seqs = max(work.seqs * share, 1)
  return seqs * work.tokens / work.seqs, seqs
end

local function layer(sum, stage, rank, l, work, opts)
  local d, part = rank.device, rank.part
  local tokens, seqs = spread(work, part.seqs)
  add(sum, d, (l.attn_bytes - l.kv_proj_bytes) * part.attn + l.kv_proj_bytes * part.kv,
    ((l.attn_flops - l.kv_proj_flops) * part.attn + l.kv_proj_flops * part.kv) * tokens, l.attn_dtype or opts.dtype, opts.act)
  add(sum, d, l.mlp_bytes * part.ffn, l.mlp_flops * part.ffn * tokens, l.mlp_dtype or opts.dtype, opts.act)
  add(sum, d, l.norm_bytes, l.norm_flops * tokens, opts.dtype, opts.act)
  local n_ops = GPU_OPS
  if l.n_expert > 0 then
    local hit = M.experts_hit(l.n_expert, stage.shape.n_expert_used, work.tokens)
    add(sum, d, l.expert_bytes * hit * part.expert, l.expert_flops * work.tokens * part.expert, l.expert_dtype or opts.dtype, opts.act)
    n_ops = n_ops + MOE_OPS
  end
  if stage.shape.kv_whole then n_ops = n_ops + MLA_OPS end
  local seen, read = min(work.pos, l.window or work.pos), min(work.kv_pos, l.window and l.window + work.tokens / work.seqs or work.kv_pos)
  local kv_share = (stage.shape.kv_whole and 1 or part.kv) * opts.kv_element / 2
  add(sum, d, seqs * read * l.kv_bytes * kv_share, tokens * l.pos_flops * seen * part.attn, "bf16", opts.act)
  add(sum, d, ACT_PASSES * tokens * stage.shape.hidden * opts.act_bytes, 0, "bf16")
  sum.launch = sum.launch + n_ops * d.launch_us
end

-- All kinds of layers of a rank, the embedding and the head.
local function rank_time(stage, rank, work, opts)
  if rank.device.kind == "cpu" then return cpu.rank_time(stage, rank, work, opts) end
  local total = { us = 0, mem = 0, math = 0, launch = 0, bytes = 0, flops = 0 }
  for _, l in ipairs(stage.sums.classes) do
    local one, n = { us = 0, mem = 0, math = 0, launch = 0, bytes = 0, flops = 0 }, stage.sums.count[l]
    layer(one, stage, rank, l, work, opts)
    for k, v in pairs(one) do total[k] = total[k] + n * v end
  end
  local d, shape = rank.device, stage.shape
  if stage.is_first then total.launch = total.launch + d.launch_us end
  if stage.is_last and work.rows > 0 then
    local rows = max(work.rows * rank.part.seqs, 1)
    add(total, d, shape.head_bytes * rank.part.vocab, shape.head_flops * rows * rank.part.vocab, shape.tied and shape.dtype or opts.head_dtype,
      opts.act)
    total.launch = total.launch + 3 * d.launch_us -- norm, head, choice of the token
  end
  total.us = total.us + total.launch
  return total
end

-- Collectives of a step: two per layer, one behind a cut embedding, one for the candidates of a cut head; two all_to_all per
-- layer of experts where tokens are spread over the ranks. NCCL's times are those of whole calls, launch included.
local function comm_time(stage, work, opts)
  if #stage.ranks < 2 then return 0 end
  local g, us, d = stage.group, 0, stage.ranks[1].device
  local function time(kind, group, bytes)
    local n = collective.time(kind, group, bytes)
    return d.kind == "cpu" and cpu.collective(n, d) or n
  end
  local tokens = spread(work, 1 / stage.degrees.dp)
  local row = stage.shape.hidden * opts.comm_element
  if stage.degrees.tp > 1 then
    local t = stage.tp_group
    us = 2 * stage.sums.n_layer * time("all_reduce", t, tokens * row)
    if stage.cut_vocab and stage.is_first then us = us + time("all_reduce", t, tokens * row) end
    if stage.cut_vocab and stage.is_last and work.rows > 0 then us = us + time("all_gather", t, work.rows * CANDIDATES) end
  end
  if stage.degrees.dp > 1 then
    for _, l in ipairs(stage.sums.classes) do
      if l.n_expert > 0 then
        local n = #stage.ranks -- a token goes once to each rank that holds one of its experts
        local bytes = tokens * n * M.experts_hit(n, 1, stage.shape.n_expert_used) * row
        us = us + 2 * stage.sums.count[l] * time("all_to_all", g, bytes)
      end
    end
  end
  return us
end

---@class tpl.cost.StepTime
---@field us number        of the slowest rank, collectives included, without the send to the next stage
---@field comm number
---@field mem number
---@field math number
---@field launch number
---@field ideal number     what the bytes or the operations take at the roofline, spread evenly over the ranks

--- Price a step of a stage.
---@param stage table      see estimate.lua
---@param work tpl.cost.Work
---@param opts table
---@return tpl.cost.StepTime
function M.time(stage, work, opts)
  local worst, last_rank, last_time
  local bytes, flops, rate = 0, 0, 0
  for _, rank in ipairs(stage.ranks) do
    local t
    if last_rank and last_rank.device == rank.device and last_rank.same == rank.same then t = last_time
    else t = rank_time(stage, rank, work, opts) end
    last_rank, last_time = rank, t
    if not worst or t.us > worst.us then worst = t end
    bytes, flops = bytes + t.bytes, flops + t.flops
    rate = rate + rank.device.mem_gb_s * rank.device.roof
  end
  local comm = comm_time(stage, work, opts)
  local ideal = max(bytes / (1000 * rate), flops / #stage.ranks * 1e6)
  return { us = worst.us + comm, comm = comm, mem = worst.mem, math = worst.math, launch = worst.launch, ideal = ideal }
end

return M
