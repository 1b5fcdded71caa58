-- SPDX-License-Identifier: Apache-2.0
--- Weigh a group of devices. The rule, in this order; a later point counts only where the earlier ones are equal:
--   1 usable devices only (the caller leaves the others out)
--   2 one model
--   3 joined by NVLink; then most links on the weakest pair; then most links in total
--   4 nearest PCIe on the worst pair that has no NVLink, or on the worst pair where all have
--   5 one socket, then one NUMA node; unknown ones count as different
--   6 nearest NICs, when asked for; then one socket as guessed from the numbers of NUMA nodes; then the slowest pair as
--     measured, where all pairs were; then near PCIe over all pairs
--   7 what is left stays useful: fewest NVLinks, then fewest PCIe switches shared with devices left behind
--   8 stable order of the devices (the first of equals wins)
-- A score is three numbers below 2^53, compared in turn; less is better.
local M = {}

local WEAKEST, TOTAL, RANK, SPREAD = 64, 2 ^ 17, 128, 32 -- one more than the largest value of each part
local PIX = require("tpl.topo.pair").rank_of.pix

-- Counts distinct values without a table for each group: a mark is a value that no earlier count used.
local marks, mark = {}, 0

local function count(list, ids)
  mark = mark + 1
  local n = 0
  for a = 1, #ids do
    local x = list[ids[a]]
    if marks[x] ~= mark then
      marks[x], n = mark, n + 1
    end
  end
  return n
end

local function joined(v, ids)
  local todo, seen, n = { ids[1] }, { [ids[1]] = true }, 1
  while todo[1] do
    local i = table.remove(todo)
    for _, j in ipairs(ids) do
      if not seen[j] and v.links[i][j] > 0 then
        seen[j], n = true, n + 1
        todo[#todo + 1] = j
      end
    end
  end
  return n == #ids
end

-- Gives weakest, total, worst rank, sum of ranks.
local function pairs_of(v, ids)
  local weakest, total, worst, worst_bare, near_sum, n = 2 ^ 30, 0, 0, 0, 0, #ids
  for a = 1, n - 1 do
    local links, rank = v.links[ids[a]], v.rank[ids[a]]
    for b = a + 1, n do
      local k, r = links[ids[b]], rank[ids[b]]
      total, near_sum = total + k, near_sum + r
      if k < weakest then weakest = k end
      if r > worst then worst = r end
      if k == 0 and r > worst_bare then worst_bare = r end
    end
  end
  if n < 2 then weakest = 0 end
  return weakest, total, weakest > 0 and worst or worst_bare, near_sum
end

local function is_joined(v, ids, weakest, total) return #ids == 1 or weakest > 0 or (total > 0 and joined(v, ids)) end

--- Give the facts of a group that points 2 to 6 compare.
---@param v tpl.topo.View
---@param ids integer[]  positions
---@return {models: integer, joined: boolean, full: boolean, weakest: integer, total: integer, worst: integer, near: integer, sockets: integer, nodes: integer}
function M.facts(v, ids)
  local weakest, total, worst, near_sum = pairs_of(v, ids)
  return {
    models = count(v.model, ids), joined = is_joined(v, ids, weakest, total), full = weakest > 0, weakest = weakest, total = total,
    worst = worst, near = near_sum, sockets = count(v.socket, ids), nodes = count(v.node, ids),
  }
end

local function slowest(v, ids)
  local least, n = 63, #ids
  for a = 1, n - 1 do
    local speed = v.speed[ids[a]]
    for b = a + 1, n do
      if speed[ids[b]] < least then least = speed[ids[b]] end
    end
  end
  return least
end

local function most(x, bound) return x < bound and x or bound - 1 end

--- Give the first two numbers of a score, points 2 to 5 and 6.
---@return number
---@return number
function M.first(v, ids)
  local weakest, total, worst, near_sum = pairs_of(v, ids)
  local key = most(count(v.model, ids) - 1, 8) * 2 + (is_joined(v, ids, weakest, total) and 0 or 1)
  key = key * WEAKEST + (WEAKEST - 1 - most(weakest, WEAKEST))
  key = key * TOTAL + (TOTAL - 1 - most(total, TOTAL))
  key = key * RANK + worst
  key = key * SPREAD + most(count(v.socket, ids), SPREAD)
  key = key * SPREAD + most(count(v.node, ids), SPREAD)
  local guess, nic = most(count(v.guess, ids), SPREAD), 0
  local rest = (63 - slowest(v, ids)) * 2 ^ 24 + most(near_sum, 2 ^ 24)
  if not v.nics then return key * SPREAD + guess, rest end
  for a = 1, #ids do nic = nic + v.nic[ids[a]] end
  return key, (most(nic, 2 ^ 17) * SPREAD + guess) * 2 ^ 30 + rest
end

--- Give the third number, point 7.
---@param v tpl.topo.View
---@param ids integer[]
function M.third(v, ids)
  local links, switches, n = 0, 0, #ids
  for j = 1, v.n do
    local inside = false
    for a = 1, n do inside = inside or ids[a] == j end
    if not inside then
      for a = 1, n do
        links = links + v.links[ids[a]][j]
        if v.rank[ids[a]][j] <= PIX then switches = switches + 1 end
      end
    end
  end
  return most(links, 2 ^ 28) * 2 ^ 24 + most(switches, 2 ^ 24)
end

--- Give a score.
---@return number[] score
function M.of(v, ids)
  local first, second = M.first(v, ids)
  return { first, second, M.third(v, ids) }
end

--- Compare two scores: below 0 when a is better.
---@param a number[]
---@param b number[]
---@return integer
function M.compare(a, b)
  for i = 1, 3 do
    if a[i] ~= b[i] then return a[i] < b[i] and -1 or 1 end
  end
  return 0
end

return M
