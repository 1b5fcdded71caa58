-- SPDX-License-Identifier: Apache-2.0
--- Order priced candidates: what holds the wish comes before what does not, a better price before a worse one, and the simpler of two that
-- are nearly equal. Pure.
local M = {}

-- Prices are estimates: what is this close to the best is as good. Then more and smaller replicas win (they fail alone). Throughput rests
-- on a guess of the load, so it is told apart less finely than the time of a token.
local NEAR = { throughput = 0.20, latency = 0.05 }
-- Of replicas of one size the one with fewer cuts wins where prices are this close; on unequal devices one group with uneven shares, whose
-- tokens come sooner, unless a pipeline is clearly better.
local NEAR_CUT, NEAR_MIXED = 0.05, 0.20
local MOST_COMM = 0.30 -- of a token; a group that talks more is no better for being one
-- Where none holds what is wanted, the better price among caches this close.
local NEAR_KV = 0.10

local function simpler(a, b)
  if a.is_wide ~= b.is_wide then return b.is_wide end
  if a.pp ~= b.pp then return a.pp < b.pp end
  if a.is_ep ~= b.is_ep then return b.is_ep end
  if a.uneven ~= b.uneven then
    if a.estimate.kv_tokens ~= b.estimate.kv_tokens and not (a.fits and b.fits) then return a.estimate.kv_tokens > b.estimate.kv_tokens end
    return b.uneven
  end
  return a.score > b.score
end

-- The items of a list that are nearly as good as the first by `value`: how many.
local function n_near(list, value, near)
  local n, best = 0, value(list[1])
  while list[n + 1] and value(list[n + 1]) >= best * (1 - near) do n = n + 1 end
  return n
end

-- Sort the first n of a list by another order.
local function resort(list, n, before)
  local head = {}
  for i = 1, n do head[i] = list[i] end
  table.sort(head, before)
  for i, c in ipairs(head) do list[i] = c end
end

local function kv_of(c) return c.estimate.kv_tokens end
local function score_of(c) return c.score end

local function by_score(a, b)
  if a.score ~= b.score then return a.score > b.score end
  return simpler(a, b)
end

local function by_kv(a, b)
  if kv_of(a) ~= kv_of(b) then return kv_of(a) > kv_of(b) end
  return by_score(a, b)
end

local function by_replicas(a, b)
  if a.n ~= b.n then return a.n > b.n end
  return by_score(a, b)
end

-- Candidates that all hold what is wanted: the best price, or more replicas if they are nearly as good; of that size the simplest of
-- what is very near.
local function sort_fitting(list, goal)
  table.sort(list, by_score)
  local n, best = n_near(list, score_of, NEAR[goal]), list[1]
  resort(list, n, by_replicas)
  local first = list[1]
  local near = first.is_mixed and NEAR_MIXED or NEAR_CUT
  local same, rest = {}, {}
  for i = 1, n do
    local c = list[i]
    local far = c.estimate.decode_comm_share > MOST_COMM and NEAR_CUT or near
    local is_near = c.n == first.n and c.tp * c.pp == first.tp * first.pp and c.score >= first.score * (1 - far)
    table.insert(is_near and same or rest, c)
  end
  table.sort(same, simpler)
  for i, c in ipairs(same) do list[i] = c end
  for i, c in ipairs(rest) do list[#same + i] = c end
  if list[1].n > best.n then list[1].instead_of = best end
end

local function sort_short(list)
  table.sort(list, by_kv)
  resort(list, n_near(list, kv_of, NEAR_KV), by_score)
end

-- What stands above all prices: it holds what is wanted, or one request at least, and keeps the requirements.
local function rank(c) return (c.fits and 0 or c.holds_one and 1e6 or 2e6) + c.unmet end

--- Order candidates, best first: those that hold what is wanted, then the better score, then the simpler.
---@param list tpl.Candidate[]
---@param goal "throughput"|"latency"
function M.sort(list, goal)
  local by_rank, ranks = {}, {}
  for _, c in ipairs(list) do
    c.instead_of = nil
    local r = rank(c)
    if not by_rank[r] then
      by_rank[r] = {}
      ranks[#ranks + 1] = r
    end
    table.insert(by_rank[r], c)
  end
  table.sort(ranks)
  local n = 0
  for _, r in ipairs(ranks) do
    local part = by_rank[r]
    if part[1].fits then sort_fitting(part, goal) else sort_short(part) end
    for _, c in ipairs(part) do
      n = n + 1
      list[n] = c
    end
  end
  return list
end

return M
