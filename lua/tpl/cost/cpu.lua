-- SPDX-License-Identifier: Apache-2.0
--- Price a step of a CPU rank as tpl's own kernels run it. What is physical comes from the probe: read bandwidth by bytes and threads, the
--- arithmetic of a core, the barrier of a team. What tpl makes of it are the few constants below. Pure.
local M = {}

local max, min, log = math.max, math.min, math.log

-- Fitted to the calibration cases of spec/bench/predict.sh (`sh spec/bench/predict.sh --fit`), Xeon with AMX, 2 cores of a guest. "Vector
-- operations" count as the probe's f32 peak does: two for each multiply-add lane.
M.constants = {
  bandwidth = 1.0,  -- share of the probe's read bandwidth that streaming weights reaches
  overlap = 2.1,       -- reading and computing overlap: (mem^n + math^n)^(1/n)
  unpack = 0.77,      -- vector operations to unpack a quantised weight for integer products, once a step
  row = 2.2,         -- vector operations for a weight and a row in integer products of few rows
  expand = 17,      -- vector operations to expand a weight to bf16, once a step of many rows
  matrix = 0.30,     -- share of the matrix peak
  attend_few = 12,  -- attention of few rows: times what its operations take at the vector peak
  attend_many = 1.1, -- attention of many rows
  element = 73,      -- vector operations for an element of a row beside the products: norms, sums, rotation, activation, conversion
  op_us = 0.44,       -- an op of a thread, whatever it does
  sync = 3.0,          -- barriers' worth of waiting where a team meets once: the threads do not end together
  meet = 11,          -- the same where ranks meet for a collective
  collective = 1.4,  -- times what the bytes of a collective take by the probe of core/comm (collective.lua)
  hand_us = 10,      -- a stage wakes the next one
  step_us = 5,       -- between two steps; more where the scheduler must see a token before it goes on
  turn_us = 30,      -- that
}
local C = M.constants

local FEW_ROWS = 8         -- below: integer products that stream the weights (kernels/ops.h, TPL_BF16_ROWS)
local TILE_ROWS = 16       -- rows that a matrix product takes at a time
local OPS, SYNCS = 12, 8   -- of a layer: ops, and meetings of the team (`tpl bench` prints them)
-- A team on a share of the cores draws more than that share of the bandwidth: one of two cores read 16 to 19 of 34 GB/s on one machine
-- and 42 of 50 on another (facts/perf.md sections 0a, 0b). Used where the probe did not measure it.
local ALONE = 1.4
-- Where nothing was probed: about one memory channel and a quarter TFLOP/s for each 8 cores of a server.
local unprobed = { read_gb_s = 40, matrix_gflop_s = { f32 = 400, bf16 = 400, i8 = 800 }, barrier_us = 0.2 }

---@class tpl.cost.Probe   as tpl.rates keeps it
---@field read_gb_s number
---@field read {threads: integer, bytes: integer, gb_s: number}[]?   by threads and bytes that are read over and over
---@field matrix_gflop_s table<string, number>
---@field core_gflop_s table<string, number>?     of one thread
---@field barrier_us number
---@field isa string?
---@field cores integer?

local function number(x) return type(x) == "number" and x or nil end

local devices = setmetatable({}, { __mode = "k" })

--- Make a device of what was probed on a machine: all its cores together.
---@param probe tpl.cost.Probe?
---@return tpl.cost.Device
function M.device(probe)
  local p = probe or unprobed
  if devices[p] then return devices[p] end
  local rates, one = p.matrix_gflop_s or {}, p.core_gflop_s or {}
  local cores = number(p.cores)
  local function rate(k)
    local all = number(rates[k])
    return all and cores and number(one[k]) and max(all, one[k]) or all -- cores that were busy with something else show less
  end
  local f32 = rate("f32") or unprobed.matrix_gflop_s.f32
  local d = { name = type(p.cpu) == "string" and p.cpu or "cpu", kind = "cpu", mem_gb_s = number(p.read_gb_s) or unprobed.read_gb_s,
    flops = { f32 = f32 * 1e9, bf16 = (rate("bf16") or f32) * 1e9, i8 = (rate("i8") or f32) * 1e9 }, cores = cores,
    read = type(p.read) == "table" and #p.read > 0 and p.read or nil, barrier_us = number(p.barrier_us) or unprobed.barrier_us,
    efficiency = { mem = { bf16 = C.bandwidth }, flops = C.matrix }, roof = 1, step_us = C.step_us,
    auto = p.isa == "amx" and "bf16" or "i8", source = probe and "probe" or "table" }
  d.launch_us = 2 * d.barrier_us
  d.flops.f16 = d.flops.f32
  devices[p] = d
  return d
end

-- -- Bandwidth ---------------------------------------------------------------------------------------------------------

-- GB/s of exactly so many threads, by the logarithm of the bytes between two measured sizes.
local function at_bytes(read, threads, bytes)
  local below, above
  for _, r in ipairs(read) do
    if r.threads == threads then
      if r.bytes <= bytes and (not below or r.bytes > below.bytes) then below = r end
      if r.bytes >= bytes and (not above or r.bytes < above.bytes) then above = r end
    end
  end
  if not below or not above or below == above then return (below or above).gb_s end
  local part = log(bytes / below.bytes) / log(above.bytes / below.bytes)
  return below.gb_s + part * (above.gb_s - below.gb_s)
end

--- Give what so many threads of a machine read together of so many bytes, over and over.
---@param d tpl.cost.Device   the whole machine
---@param threads number
---@param bytes number        0: much
---@return number gb_s
function M.bandwidth(d, threads, bytes)
  if not d.read then
    local share = d.cores and threads / d.cores or 1
    return d.mem_gb_s * min(1, share >= 1 and 1 or ALONE * share)
  end
  if bytes <= 0 then bytes = math.huge end
  local below, above
  for _, r in ipairs(d.read) do
    if r.threads <= threads then below = max(below or 0, r.threads) end
    if r.threads >= threads then above = min(above or math.huge, r.threads) end
  end
  if not below then return at_bytes(d.read, above, bytes) * threads / above end
  local low = at_bytes(d.read, below, bytes)
  if not above or above == below then return low end
  return low + (threads - below) / (above - below) * (at_bytes(d.read, above, bytes) - low)
end

-- -- A step ------------------------------------------------------------------------------------------------------------

local function add(sum, mem, math_us)
  local us = mem == 0 and math_us or math_us == 0 and mem or (mem ^ C.overlap + math_us ^ C.overlap) ^ (1 / C.overlap)
  sum.us = sum.us + us
  if mem >= math_us then sum.mem = sum.mem + us else sum.math = sum.math + us end
end

local function mem_us(d, bytes) return bytes / (1000 * d.mem_gb_s * C.bandwidth) end

local function vector_us(d, operations) return operations / d.flops.f32 * 1e6 end

local plain = { f32 = true, f16 = true, bf16 = true }

-- A matrix of `flops` operations for a row.
local function linear(sum, d, bytes, flops, dtype, rows, act)
  if bytes <= 0 then return end
  local weights, unit = flops / 2, act == "f32" and "f32" or act == "bf16" and "bf16" or d.auto
  local us
  if act ~= "f32" and act ~= "bf16" and rows < FEW_ROWS then
    us = vector_us(d, weights * ((plain[dtype] and 0 or C.unpack) + C.row * rows))
  else
    local tiles = math.ceil(rows / TILE_ROWS) * TILE_ROWS
    us = vector_us(d, plain[dtype] and 0 or weights * C.expand) + flops * tiles / (d.flops[unit] * C.matrix) * 1e6
  end
  add(sum, mem_us(d, bytes), us)
  sum.bytes, sum.flops = sum.bytes + bytes, sum.flops + flops * rows / d.flops[unit]
end

-- Tokens and sequences of a rank that holds a share of the sequences: at least one of them whole.
local function spread(work, share)
  local seqs = max(work.seqs * share, 1)
  return seqs * work.tokens / work.seqs, seqs
end

local function layer(sum, stage, rank, l, work, opts)
  local d, part, shape = rank.device, rank.part, stage.shape
  local tokens, seqs = spread(work, part.seqs)
  local attn = l.attn_dtype or opts.dtype
  linear(sum, d, (l.attn_bytes - l.kv_proj_bytes) * part.attn, (l.attn_flops - l.kv_proj_flops) * part.attn, attn, tokens, opts.act)
  linear(sum, d, l.kv_proj_bytes * part.kv, l.kv_proj_flops * part.kv, attn, tokens, opts.act)
  linear(sum, d, l.mlp_bytes * part.ffn, l.mlp_flops * part.ffn, l.mlp_dtype or opts.dtype, tokens, opts.act)
  if l.n_expert > 0 then
    local hit = 1 - (1 - shape.n_expert_used / l.n_expert) ^ work.tokens
    local share = l.expert_bytes * hit * part.expert
    linear(sum, d, share, l.expert_flops * part.expert, l.expert_dtype or opts.dtype, work.tokens, opts.act)
  end
  add(sum, mem_us(d, l.norm_bytes), vector_us(d, l.norm_flops * tokens))
  local seen, read = min(work.pos, l.window or work.pos), min(work.kv_pos, l.window and l.window + work.tokens / work.seqs or work.kv_pos)
  local kv = seqs * read * l.kv_bytes * (shape.kv_whole and 1 or part.kv) * opts.kv_element / 2
  local few = tokens < FEW_ROWS * seqs
  add(sum, mem_us(d, kv), vector_us(d, (few and C.attend_few or C.attend_many) * tokens * l.pos_flops * seen * part.attn))
  sum.bytes = sum.bytes + kv
  local elements = 6 * shape.hidden + (shape.n_head + 2 * shape.n_kv) * shape.head_dim * part.attn + 3 * (shape.ffn or 0) * part.ffn
  add(sum, 0, vector_us(d, C.element * tokens * elements))
  sum.launch = sum.launch + OPS * C.op_us + (d.threads > 1 and SYNCS * C.sync * d.barrier_us or 0)
end

--- Price a step of one rank; fields as step.lua adds them up.
---@param stage table
---@param rank table
---@param work tpl.cost.Work
---@param opts table
---@return table
function M.rank_time(stage, rank, work, opts)
  local total = { us = 0, mem = 0, math = 0, launch = 0, bytes = 0, flops = 0 }
  for _, l in ipairs(stage.sums.classes) do
    local one, n = { us = 0, mem = 0, math = 0, launch = 0, bytes = 0, flops = 0 }, stage.sums.count[l]
    layer(one, stage, rank, l, work, opts)
    for k, v in pairs(one) do total[k] = total[k] + n * v end
  end
  local d, shape = rank.device, stage.shape
  if stage.is_first then total.launch = total.launch + C.op_us end
  if stage.is_last and work.rows > 0 then
    local rows = max(work.rows * rank.part.seqs, 1)
    linear(total, d, shape.head_bytes * rank.part.vocab, shape.head_flops * rank.part.vocab, shape.table_dtype or opts.head_dtype, rows, opts.act)
    add(total, 0, vector_us(d, 2 * shape.vocab * rows)) -- the choice of the token
    total.launch = total.launch + 3 * C.op_us
  end
  total.us = total.us + total.launch
  return total
end

--- Give the time of a collective, with the wait of ranks for each other.
---@param us number      what its bytes take, by collective.lua
---@param d tpl.cost.Device
function M.collective(us, d) return C.collective * us + C.meet * d.barrier_us end

--- Give the time of handing rows from one stage to the next.
---@param link tpl.cost.Link
---@param bytes number
function M.send(link, bytes) return C.hand_us + link.us + bytes / (1000 * link.gb_s) end

--- Give the time between two steps; with several stages the scheduler must see each token before it goes on.
---@param n_stages integer
function M.step_us(n_stages) return n_stages > 1 and C.turn_us or C.step_us end

return M
