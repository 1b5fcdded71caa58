-- SPDX-License-Identifier: Apache-2.0
--- Find the single changes of a plan that make room for more KV tokens: layers moved from one stage to another, KV head groups
--- from one rank to another. Each is priced by the bytes that the plan itself counted, so applying one yields what is printed.
local budget = require "tpl.plan.budget"
local candidates = require "tpl.place.candidates"
local ranks = require "tpl.plan.ranks"

local M = {}

local MOST_LAYERS, MOST_MOVES = 4, 3

-- Bytes that one layer costs on each rank of a stage: weights and KV of one token. Layers of a stage that differ give nil.
local function per_layer(plan, s)
  local out = {}
  for _, b in ipairs(plan.ranks) do
    if b.stage == s then
      local weights = ranks.layer_bytes(b)
      local first
      for i = s.first, s.last do
        first = first or weights[i]
        if weights[i] ~= first then return nil end
      end
      out[#out + 1] = { weights = first + budget.LAYER_SLACK, kv = b.kv_per_token / (s.last - s.first + 1) }
    end
  end
  return out
end

-- Tokens that the plan would have room for with `delta` more layers on each stage.
local function tokens_with(plan, each, delta)
  local pools = {}
  for i, pool in ipairs(plan.pools) do
    local copy = { name = pool.name, room = pool.room, fixed = pool.fixed, per_token = pool.per_token }
    for _, b in ipairs(pool.ranks) do
      local n, layer = delta[b.stage.i] or 0, each[b.stage.i][b.local_rank + 1]
      copy.fixed, copy.per_token = copy.fixed + n * layer.weights, copy.per_token + n * layer.kv
    end
    pools[i] = copy
  end
  local least
  for _, pool in ipairs(pools) do
    local n = budget.pool_tokens(pool, plan.kv.page)
    if n and (not least or n < least) then least = n end
  end
  return least and math.min(least, budget.wanted(plan.wish))
end

-- The layer runs after moving: {0-39, 40-79} and so on.
local function runs_text(plan, delta)
  local out, at = {}, 0
  for i, s in ipairs(plan.stages) do
    local n = s.last - s.first + 1 + (delta[s.i] or 0)
    out[i] = ("%d-%d"):format(at, at + n - 1)
    at = at + n
  end
  return table.concat(out, ", ")
end

local function layer_moves(plan, out)
  if #plan.stages < 2 or plan.open.refused then return end
  local each = {}
  for _, s in ipairs(plan.stages) do
    each[s.i] = per_layer(plan, s)
    if not each[s.i] then return end
  end
  for _, from in ipairs(plan.stages) do
    for _, to in ipairs(plan.stages) do
      for n = 1, from ~= to and math.min(MOST_LAYERS, from.last - from.first) or 0 do
        local delta = { [from.i] = -n, [to.i] = n }
        local tokens = tokens_with(plan, each, delta)
        local gain = tokens and tokens - plan.kv.tokens or 0
        if gain > 0 then
          out[#out + 1] = { kv_tokens_gain = gain, size = n,
            what = ("%d layer%s from stage %d to %d: %+.0f %% KV tokens (layers %s)"):format(n, n > 1 and "s" or "", from.i, to.i,
              100 * gain / math.max(1, plan.kv.tokens), runs_text(plan, delta)) }
        end
      end
    end
  end
end

-- KV head groups of each rank of a stage.
local function kv_heads(plan, s)
  if not s.lowered then return s.shares or candidates.even_shares(plan.shape, #s.devices) end
  for _, op in ipairs(s.lowered.ops) do if op.state then return op.state.kvh end end
end

-- One KV head group from the rank that is full first to the one with most room left: planned anew, so that its gain is what a plan says.
local function share_move(plan, out, with_shares)
  local s = plan.stages[1]
  if #plan.stages > 1 or #s.devices < 2 or plan.deploy.stages or plan.shape.kv_whole then return end
  local most
  for i = 1, #s.devices do
    local b = plan.ranks[i]
    if b.stranded and b.stranded > 0 and (not most or b.stranded > most.stranded) then most = b end
  end
  local from, heads = plan.limiting.local_rank + 1, kv_heads(plan, s)
  if not most or not heads or plan.limiting.replica > 0 or heads[from] < 2 then return end
  local to, shares = most.local_rank + 1, {}
  for i = 1, #heads do shares[i] = heads[i] + (i == to and 1 or i == from and -1 or 0) end
  local tokens = with_shares(plan, shares)
  local gain = tokens and tokens - plan.kv.tokens or 0
  if gain > 0 then
    out[#out + 1] = { kv_tokens_gain = gain, size = 1, what = ("1 KV head group from rank %d to %d: %+.0f %% KV tokens (shares %s)"):format(from - 1, to - 1,
      100 * gain / math.max(1, plan.kv.tokens), table.concat(shares, ",")) }
  end
end

--- List the best moves of a plan, best first; none when memory does not limit its KV cache.
---@param plan table
---@param with_shares fun(plan: table, shares: integer[]): integer?   KV tokens of the plan with other shares
---@return {what: string, kv_tokens_gain: integer}[]
function M.of(plan, with_shares)
  local out = {}
  if plan.kv.tokens >= budget.wanted(plan.wish) then return out end
  layer_moves(plan, out)
  share_move(plan, out, with_shares)
  table.sort(out, function(a, b)
    if a.kv_tokens_gain ~= b.kv_tokens_gain then return a.kv_tokens_gain > b.kv_tokens_gain end
    return a.size < b.size
  end)
  for i = #out, MOST_MOVES + 1, -1 do out[i] = nil end
  return out
end

return M
