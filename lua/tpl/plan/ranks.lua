-- SPDX-License-Identifier: Apache-2.0
--- Price the ranks of a typed plan in bytes, and size the KV cache: what each rank holds, what its device has, and how many
--- tokens fit the fullest of them. Throws "no_fit" (exit 4) with the numbers.
local budget = require "tpl.plan.budget"
local cost = require "tpl.cost"
local storage = require "tpl.plan.storage"

local M = {}

local POOL_PER_SEQUENCE = 1024 -- two words for each of 512 biases
local MOST_TOP = 20            -- log probabilities a request may ask for

local function core() return require("tpl.core") end

-- CPU kernels keep weights in panels; other devices keep them as the file has them.
local function weight_size(device)
  return device.kind == "cpu" and core().kernels.pack_bytes or function(dtype, rows, cols) return storage.bytes(dtype, rows * cols) end
end

local function group_class(plan, s)
  return #s.devices > 1 and cost.group(plan.topo, s.devices).class or nil
end

local function rank_bytes(plan, s, r, device, replica)
  local weights, file = budget.weight_bytes(s.lowered, r, weight_size(device), storage.bytes)
  return { rank = replica * plan.n_ranks + s.first_rank + r - 1, local_rank = r - 1, replica = replica, stage = s, device = device,
    weights = weights, read = file, arena = s.memory.arena,
    kv_per_token = budget.kv_bytes_per_token(s.lowered, r, plan.kv.dtype == "f16" and 2 or 4),
    kv_slack = (s.last - s.first + 1) * budget.LAYER_SLACK, comm = 0, io = 0,
    other = budget.other_bytes(device, device.kind ~= "cpu" and group_class(plan, s), #plan.stages > 1) }
end

-- Bytes of a stage channel: a ring of slots of one step's activations for every rank of the next stage.
local function add_cuts(plan)
  for i = 1, #plan.stages - 1 do
    local slot = plan.caps.tok * plan.config.hidden * 4
    for _, b in ipairs(plan.ranks) do
      if b.stage == plan.stages[i + 1] then b.comm = b.comm + slot * (#plan.stages + 1) end
    end
  end
end

--- Capacities of a step slot, as core.engine.open wants them.
function M.slot_caps(plan)
  local c = plan.caps
  return { tok = c.tok, seq = c.seq, out = c.out, vocab = c.vocab, top = MOST_TOP, logit_rows = c.out,
    pages = plan.kv.pages + c.seq,
    pool = plan.kv.pages * plan.kv.page + c.seq * POOL_PER_SEQUENCE }
end

-- The bytes that came with the step's slots are known after the KV cache is sized; CPU ranks leave room for them in `other`.
local function finish(plan)
  local io = core().engine.step_bytes(M.slot_caps(plan)) * (#plan.stages + 1)
  for _, b in ipairs(plan.ranks) do
    if b.rank % plan.n_ranks == 0 and b.device.kind == "cpu" then b.io = io end -- a GPU's lie in the host's memory
    b.kv = budget.kv_bytes(b.stage.lowered, b.local_rank + 1, plan.kv.dtype == "f16" and 2 or 4, plan.kv.pages, plan.kv.page)
    b.total = b.weights + b.arena + b.comm + b.kv + b.io + b.other
  end
end

--- Bytes of each layer's weights on a rank (0-based layer -> bytes).
---@param b table   of plan.ranks
---@return table<integer, number>
function M.layer_bytes(b)
  local size, out = weight_size(b.device), {}
  for _, w in ipairs(b.stage.lowered.weights) do
    local layer = tonumber(w.name:match("^blk%.(%d+)%."))
    if layer then
      out[layer] = (out[layer] or 0) + budget.weight_bytes({ weights = { w } }, b.local_rank + 1, size, storage.bytes)
    end
  end
  return out
end

--- Make plan.ranks of a typed plan, without KV: those of every replica, replica 0 first.
function M.make(plan)
  plan.ranks = {}
  for i, replica in ipairs(plan.placed.replicas) do
    for k, s in ipairs(plan.stages) do
      for r = 1, s.mesh.n do
        plan.ranks[#plan.ranks + 1] = rank_bytes(plan, s, r, plan.topo:dev(replica.stages[k].devices[r]), i - 1)
      end
    end
  end
  add_cuts(plan)
end

--- Size the KV cache of plan.ranks and fill in their totals.
function M.size(plan)
  local d = plan.deploy
  plan.pools = budget.pools(plan.ranks, d.devices.usable)
  plan.wish = { tokens = d.kv.tokens, page = d.kv.page, context = plan.context, concurrency = d.want.concurrency,
    least = d.require.kv_tokens }
  plan.kv.tokens, plan.kv.pages = budget.kv(plan.wish, plan.pools)
  plan.limiting = budget.limiting(plan.ranks, plan.pools, plan.kv.page)
  budget.strand(plan.pools, plan.kv.page)
  finish(plan)
end

return M
