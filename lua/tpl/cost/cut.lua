-- SPDX-License-Identifier: Apache-2.0
--- Cut the layers into stages for groups of devices that need not be alike: the slowest stage as fast as it can be while
--- every rank's weights and KV fit; where they cannot fit, the fullest rank as empty as it can be. Dynamic programming over
--- prefix sums. Pure.
local err = require "tpl.err"
local estimate = require "tpl.cost.estimate"
local memory = require "tpl.cost.memory"
local step = require "tpl.cost.step"
local team = require "tpl.cost.team"

local M = {}

local huge, max = math.huge, math.max

-- Sums over no layer, or over one kind of layer.
local function sums_of(layer)
  return { attn = 0, kv = 0, mlp = 0, expert = 0, norm = 0, kv_full = 0, windows = {}, n_layer = layer and 1 or 0,
    classes = { layer }, count = layer and { [layer] = 1 } or {} }
end

-- Prefix sums of a stage: us of a step, and for each kind of rank the bytes.
local function tables(t, shape, group, i, n_stages, opts)
  local stage = estimate.make_stage(t, shape, { devices = group, layers = { 0, shape.n_layer - 1 } }, i, n_stages, opts)
  local b = math.ceil(opts.concurrency / math.min(n_stages, opts.concurrency))
  local work = { tokens = b, seqs = b, pos = opts.depth, kv_pos = opts.depth, rows = b }
  team.deal({ stage }, nil, t)
  team.set({ stage }, 1, work, opts)
  local is_first, is_last = stage.is_first, stage.is_last
  local by_class = {}
  stage.is_first, stage.is_last = false, false
  for _, l in ipairs(stage.sums.classes) do
    stage.sums = sums_of(l)
    by_class[l] = step.time(stage, work, opts).us
  end
  stage.sums, stage.is_first, stage.is_last = sums_of(), is_first, is_last
  local out = { us = { [0] = 0 }, fixed_us = step.time(stage, work, opts).us, ranks = {} }
  for k, l in ipairs(shape.layers) do out.us[k] = out.us[k - 1] + by_class[l] end
  local seen = {}
  for _, rank in ipairs(stage.ranks) do
    local bytes = estimate.rank_bytes(stage, rank, i, n_stages, opts)
    local key = rank.same .. "/" .. tostring(bytes.capacity)
    if not seen[key] and bytes.room then
      seen[key] = true
      local r = { room = bytes.room, bytes = { [0] = 0 } }
      local one = {}
      for _, l in ipairs(shape.layers) do
        if not one[l] then
          local s = memory.sums({ layers = { l } }, 0, 0)
          one[l] = memory.weights(shape, s, rank.part, false, false)
            + memory.kv_bytes(memory.kv(shape, s, rank.part, opts.kv_element), opts.context * opts.concurrency, opts.concurrency)
        end
      end
      for k, l in ipairs(shape.layers) do r.bytes[k] = r.bytes[k - 1] + one[l] end
      out.ranks[#out.ranks + 1] = r
    end
  end
  return out
end

-- Share of the room that layers from+1..to take on the fullest rank.
local function fill(s, from, to)
  local most = 0
  for _, r in ipairs(s.ranks) do
    most = max(most, r.room > 0 and (r.bytes[to] - r.bytes[from]) / r.room or huge)
  end
  return most
end

-- Best cut by a cost of each range; `combine` joins it to the cost of what comes before. nil when no cut is allowed.
local function best_cut(stages, n, cost, combine)
  local n_stages = #stages
  local best, from = { [0] = { [0] = 0 } }, {}
  for p = 1, n_stages do
    best[p], from[p] = {}, {}
    for i = p, n - (n_stages - p) do
      local least, at = huge, nil
      for j = p - 1, i - 1 do
        local before = best[p - 1][j]
        if before and before < least then
          local c = cost(p, j, i)
          if c < huge then
            local all = combine(before, c)
            if all <= least then least, at = all, j end
          end
        end
      end
      if at then best[p][i], from[p][i] = least, at end
    end
  end
  if not best[n_stages][n] then return nil end
  local out, stop = {}, n
  for p = n_stages, 1, -1 do
    local start = from[p][stop]
    table.insert(out, 1, { start, stop - 1 })
    stop = start
  end
  return out, best[n_stages][n]
end

local function sum(a, b) return a + b end

local function cut(shape, t, groups, want)
  local n = shape.n_layer
  if #groups > n then
    err.throw { code = "script", message = ("%d stages for %d layers"):format(#groups, n), hint = "a stage holds one layer at least" }
  end
  local first = t:dev(groups[1][1])
  local opts = estimate.options(shape, want, first and first.kind == "cpu")
  opts.probe = opts.probe or t.probe
  local stages = {}
  for i, g in ipairs(groups) do stages[i] = tables(t, shape, g, i, #groups, opts) end
  local function us(p, j, i) return stages[p].us[i] - stages[p].us[j] + stages[p].fixed_us end
  local _, least = best_cut(stages, n, function(p, j, i) return fill(stages[p], j, i) <= 1 and us(p, j, i) or huge end, max)
  if least then -- of the cuts with that slowest stage, the most even one
    local limit = least * (1 + 1e-9)
    return (best_cut(stages, n, function(p, j, i)
      local x = us(p, j, i)
      return x <= limit and fill(stages[p], j, i) <= 1 and x * x or huge
    end, sum))
  end
  return (best_cut(stages, n, function(p, j, i) return fill(stages[p], j, i) end, max))
    or (best_cut(stages, n, us, max))
end

--- Cut a model into one run of layers per group.
---@param shape tpl.Shape
---@param t table               topology
---@param groups string[][]     devices of each stage, in order
---@param want table            as for estimate
---@return integer[][]? ranges  {first, last}, 0-based
---@return tpl.Err?
function M.of(shape, t, groups, want) return err.try(cut, shape, t, groups, want or {}) end

return M
