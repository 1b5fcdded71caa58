-- SPDX-License-Identifier: Apache-2.0
--- Search for groups inside one view: exact by trying all where that is quick, greedy with exchanges beyond.
-- Loops over combinations keep their positions in one table that is reused; callers copy what they keep.
local score = require("tpl.topo.groups.score")

local M = {}

M.MOST_TRIED = 13000   -- C(16, 8) = 12870 groups are tried one by one
M.MOST_EXACT = 16      -- devices in an exact partition

local function choose(n, k)
  local c = 1
  for i = 1, k do c = c * (n - k + i) / i end
  return c
end

--- Call visit(ids) for each group of k out of the positions in `pool`, in stable order. `ids` is reused.
local function combinations(pool, k, visit)
  local ids, n = {}, #pool
  local function rec(depth, from)
    if depth > k then return visit(ids) end
    for i = from, n - (k - depth) do
      ids[depth] = pool[i]
      rec(depth + 1, i + 1)
    end
  end
  rec(1, 1)
end

local function copy(ids)
  local out = {}
  for i, x in ipairs(ids) do out[i] = x end
  return out
end

local function best_exact(v, pool, k)
  local best, b1, b2, b3
  combinations(pool, k, function(ids)
    local f = score.facts(v, ids)
    local k1 = score.first(f)
    if best and k1 > b1 then return end
    local k2 = score.second(f)
    if best and k1 == b1 and k2 > b2 then return end
    local k3 = score.third(v, ids)
    if best and k1 == b1 and k2 == b2 and k3 >= b3 then return end
    best, b1, b2, b3 = copy(ids), k1, k2, k3
  end)
  return best, best and { b1, b2, b3 }
end

local function grow(v, pool, k, seed)
  local ids, inside = { seed }, { [seed] = true }
  while #ids < k do
    local best, best_score
    for _, i in ipairs(pool) do
      if not inside[i] then
        ids[#ids + 1] = i
        local s = score.of(v, ids)
        ids[#ids] = nil
        if not best or score.compare(s, best_score) < 0 then best, best_score = i, s end
      end
    end
    ids[#ids + 1], inside[best] = best, true
  end
  table.sort(ids)
  return ids
end

--- Exchange single devices while that helps.
local function improve(v, pool, ids)
  local best = score.of(v, ids)
  local better = true
  while better do
    better = false
    local inside = {}
    for _, i in ipairs(ids) do inside[i] = true end
    for at = 1, #ids do
      for _, i in ipairs(pool) do
        if not inside[i] then
          local tried = copy(ids)
          tried[at] = i
          local s = score.of(v, tried)
          if score.compare(s, best) < 0 then ids, best, better = tried, s, true break end
        end
      end
      if better then break end
    end
  end
  table.sort(ids)
  return ids, best
end

local function best_greedy(v, pool, k)
  local best, best_score
  local step = math.max(1, math.floor(#pool / 16)) -- at most 16 beginnings
  for at = 1, #pool, step do
    local ids = grow(v, pool, k, pool[at])
    local s
    if #pool <= 32 then ids, s = improve(v, pool, ids) else s = score.of(v, ids) end
    if not best or score.compare(s, best_score) < 0 then best, best_score = ids, s end
  end
  return best, best_score
end

--- Find the best group of k among positions.
---@param v tpl.topo.View
---@param pool integer[]  positions, ascending
---@param k integer
---@return integer[]? ids  nil when there are fewer than k
---@return number[]? score
function M.best(v, pool, k)
  if #pool < k or k < 1 then return nil end
  if choose(#pool, k) <= M.MOST_TRIED then return best_exact(v, pool, k) end
  return best_greedy(v, pool, k)
end

-- -- Partition -------------------------------------------------------------------------------------------------------

local function partition_exact(v, pool, k)
  local n, bit_of = #pool, {}
  for i = 1, n do bit_of[pool[i]] = 2 ^ (i - 1) end
  local share_of, memo = {}, {}
  local function share(ids, mask)
    local s = share_of[mask]
    if not s then
      s = score.share(score.facts(v, ids))
      share_of[mask] = s
    end
    return s
  end
  -- Cost and first group of the best partition of the devices in `left`; `spare` of them may stay alone.
  local function solve(left, mask, spare)
    if #left < k then return 0 end
    local known = memo[mask]
    if known then return known.cost end
    local first, rest, best, group = left[1], {}, nil, nil
    for i = 2, #left do rest[i - 1] = left[i] end
    combinations(rest, k - 1, function(others)
      local ids, taken = { first }, bit_of[first]
      for _, i in ipairs(others) do
        ids[#ids + 1] = i
        taken = taken + bit_of[i]
      end
      local cost = share(ids, taken)
      if best and cost >= best then return end -- costs are never negative
      local inside, after = {}, {}
      for _, i in ipairs(ids) do inside[i] = true end
      for _, i in ipairs(rest) do
        if not inside[i] then after[#after + 1] = i end
      end
      cost = cost + solve(after, mask - taken, spare)
      if not best or cost < best then best, group = cost, { ids = ids, mask = mask - taken } end
    end)
    if spare > 0 then
      local cost = solve(rest, mask - bit_of[first], spare - 1)
      if not best or cost < best then best, group = cost, { mask = mask - bit_of[first], alone = true } end
    end
    memo[mask] = { cost = best or 0, group = group }
    return best or 0
  end
  local mask = 2 ^ n - 1
  solve(pool, mask, n % k)
  local out = {}
  while memo[mask] and memo[mask].group do
    local group = memo[mask].group
    if group.ids then out[#out + 1] = group.ids end
    mask = group.mask
  end
  return out
end

local function partition_greedy(v, pool, k)
  local out, left = {}, pool
  while #left >= k do
    local ids = M.best(v, left, k)
    out[#out + 1] = ids
    local inside, after = {}, {}
    for _, i in ipairs(ids) do inside[i] = true end
    for _, i in ipairs(left) do
      if not inside[i] then after[#after + 1] = i end
    end
    left = after
  end
  return out
end

--- Tell whether all partitions can be looked at: 16 devices where none is left over, 10 with.
local function can_be_exact(n, k)
  if n > M.MOST_EXACT then return false end
  return n % k == 0 or n <= 10 or k == 2
end

--- Cut positions into groups of k; what is left over stays out. One group only is the best one.
---@param v tpl.topo.View
---@param pool integer[]
---@param k integer
---@return integer[][]
function M.partition(v, pool, k)
  if #pool < k or k < 1 then return {} end
  if #pool < 2 * k then return { (M.best(v, pool, k)) } end
  if can_be_exact(#pool, k) then return partition_exact(v, pool, k) end
  return partition_greedy(v, pool, k)
end

return M
