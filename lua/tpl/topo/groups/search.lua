-- SPDX-License-Identifier: Apache-2.0
--- Search for groups inside one view: exact by trying all where that is quick, greedy with exchanges beyond.
-- Loops over combinations keep their positions in one table that is reused; callers copy what they keep.
local score = require("tpl.topo.groups.score")

local M = {}

M.MOST_TRIED = 13000   -- C(16, 8) = 12870 groups are tried one by one
M.MOST_EXACT = 16      -- devices in an exact partition
M.MOST_WEIGHED = 2000  -- groups whose ties are weighed by point 7 when partitions are built

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
    local k1, k2 = score.first(v, ids)
    if best and (k1 > b1 or (k1 == b1 and k2 > b2)) then return end
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

--- Turn ranks into costs whose sum compares partitions by their best groups, then by the next best: one more group of a better rank outweighs
-- whatever the others are. Doubles hold so many ranks exactly; beyond, the worst ones count as equal.
local function set_costs(list, n_groups)
  local base = n_groups + 1
  local most_ranks, ranks = math.floor(52 / (math.log(base) / math.log(2))) - 1, 0
  for i = 2, #list do
    if list[i].key ~= list[i - 1].key then ranks = ranks + 1 end
  end
  ranks = math.min(ranks, most_ranks)
  local top, rank = base ^ ranks, 0
  for i, group in ipairs(list) do
    if i > 1 and group.key ~= list[i - 1].key then rank = rank + 1 end
    group.cost = top - base ^ (ranks - math.min(rank, ranks))
  end
end

--- List all groups of k, best first by all points. Masks have one bit for each position in the pool.
local function all_groups(v, pool, k)
  local list, bit_of = {}, {}
  for i, x in ipairs(pool) do bit_of[x] = bit.lshift(1, i - 1) end
  local weigh_ties = choose(#pool, k) <= M.MOST_WEIGHED
  combinations(pool, k, function(ids)
    local mask = 0
    for a = 1, k do mask = mask + bit_of[ids[a]] end
    local key, near = score.first(v, ids)
    list[#list + 1] = { mask = mask, key = key, near = near, rest = weigh_ties and score.third(v, ids) or 0, i = #list }
  end)
  table.sort(list, function(a, b)
    if a.key ~= b.key then return a.key < b.key end
    if a.near ~= b.near then return a.near < b.near end
    if a.rest ~= b.rest then return a.rest < b.rest end
    return a.i < b.i
  end)
  set_costs(list, math.floor(#pool / k))
  return list
end

local function by_first_bit(list, n)
  local lists = {}
  for i = 1, n do lists[i] = {} end
  for _, group in ipairs(list) do
    local first = 1
    while bit.band(group.mask, bit.lshift(1, first - 1)) == 0 do first = first + 1 end
    table.insert(lists[first], group)
  end
  return lists
end

--- Make the function that gives the least cost of cutting the devices of a mask. The first device joins each group that is still whole, or stays
--- alone if there are more devices than groups need. A branch ends where even the cheapest groups for the rest could not win.
local function solver(list, n, k)
  local lists, cheapest, cost_of = by_first_bit(list, n), list[1].cost, {}
  local function solve(mask, count)
    if count < k then return 0 end
    if cost_of[mask] then return cost_of[mask] end
    local first, best = 1, nil
    while bit.band(mask, bit.lshift(1, first - 1)) == 0 do first = first + 1 end
    local mine, rest = lists[first], cheapest * (math.floor(count / k) - 1)
    for a = 1, #mine do
      local group = mine[a]
      if best and group.cost + rest >= best then break end
      if bit.band(mask, group.mask) == group.mask then
        local cost = group.cost + solve(mask - group.mask, count - k)
        if not best or cost < best then best = cost end
      end
    end
    if count % k > 0 then
      local cost = solve(mask - bit.lshift(1, first - 1), count - 1)
      if not best or cost < best then best = cost end
    end
    cost_of[mask] = best
    return best
  end
  return solve
end

local function positions(pool, mask)
  local ids = {}
  for i, x in ipairs(pool) do
    if bit.band(mask, bit.lshift(1, i - 1)) ~= 0 then ids[#ids + 1] = x end
  end
  return ids
end

--- Find the partition whose best group is best, then whose next is, and so on; of equal ones the one whose groups win by points 6 to 8 in turn.
local function partition_exact(v, pool, k)
  local list, n = all_groups(v, pool, k), #pool
  local solve, mask, out, at = solver(list, n, k), bit.lshift(1, n) - 1, {}, 1
  while n >= k do
    local group, cost = list[at], solve(mask, n)
    if bit.band(mask, group.mask) == group.mask and group.cost + solve(mask - group.mask, n - k) == cost then
      out[#out + 1] = positions(pool, group.mask)
      mask, n = mask - group.mask, n - k
    end
    at = at + 1
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

--- Tell whether all partitions can be looked at: of 16 devices where none is left over, of 12 with.
local function can_be_exact(n, k)
  if n > M.MOST_EXACT then return false end
  return n % k == 0 or n <= 12 or k == 2
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
