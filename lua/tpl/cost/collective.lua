-- SPDX-License-Identifier: Apache-2.0
--- Price a collective by NCCL's own time model: for each algorithm and protocol a latency in hops and a bandwidth, the
--- fastest wins. Written from facts/topology.md section 5 (NCCL 2.30.7, tuning.cc); constants are NCCL's. CPU ranks use the
--- shared-memory transport of core/comm. Use it to rank, not to promise: contention and clocks are not in it. Pure.
local M = {}

local floor, max, min, huge = math.floor, math.max, math.min, math.huge

---@class tpl.cost.Group
---@field n integer             devices
---@field class string          of the weakest pair, see link.lua
---@field gb_s number           of the weakest pair, one way
---@field hosts integer?        1
---@field nvswitch boolean?     all pairs go through switches
---@field mesh boolean?         every pair has links of its own, so rings can use them all
---@field sm string?            lowest compute capability
---@field inter_gb_s number?    network bandwidth of a host, where hosts > 1
---@field cpu boolean?          ranks of one process on CPUs
---@field us number?            measured time of a small message between the weakest pair

-- Speeds per channel that NCCL's search tries, GB/s.
local speeds = {
  { 40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3 },     -- before sm90
  { 60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3 },         -- sm90
  { 90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18 },   -- sm100
}
local MOST_CHANNELS = 12

-- Generations: Volta and before, Ampere and Ada, Hopper, Blackwell.
local function generation(sm)
  local v = sm and tonumber(sm) or 8
  return v >= 10 and 4 or v >= 9 and 3 or v >= 8 and 2 or 1
end

local ll_max = { { 39, 39, 20.4 }, { 87.7, 22.5, 19 }, { 141, 45, 35 }, { 282, 90, 70 } }
local tree_channel = { { 26.5, 18.5, 10 }, { 24, 23.6, 17.8 }, { 38.7, 41.4, 36 }, { 70, 42.8, 24 } }
local tree_channel_ll128 = { { 20, 20, 20 }, { 20, 20, 20 }, { 36.7, 36.7, 29 }, { 55.6, 31.67, 20 } }
local ll128_channel = { 20, 20, 36.7, 40 }
local nvls_share = { 0, 0, 0.85, 0.74 }

local base = { tree = { ll = 6.8, ll128 = 14, simple = 8.4 }, ring = { ll = 6.6, ll128 = 14, simple = 8.4 } }
local hop = {
  nvlink = { tree = { ll = 0.6, ll128 = 1.25, simple = 4 }, ring = { ll = 0.6, ll128 = 1.9, simple = 3.4 } },
  pcie = { tree = { ll = 1, ll128 = 1.9, simple = 4 }, ring = { ll = 1, ll128 = 2.5, simple = 5.7 } },
  net = { tree = { ll = 5, ll128 = 8.5, simple = 14 }, ring = { ll = 2.7, ll128 = 4, simple = 14 } },
}
local NVLS_US, NVLS_NET_US = 25, 18

-- Factor on a tree's bandwidth by power of two from 64 B.
local tree_factor = {
  ll = { 1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1 },
  ll128 = { 1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1 },
  simple = { .9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9 },
}

local protocols = { "ll", "ll128", "simple" }

--- Give the channels and the speed of one that NCCL's search would find for a link.
---@param gb_s number
---@param gen integer
---@return integer channels
---@return number speed
local function channels(gb_s, gen)
  local best_n, best = 1, 0
  for _, speed in ipairs(speeds[min(max(gen - 1, 1), 3)]) do
    local n = min(floor(gb_s / speed + 1e-9), MOST_CHANNELS)
    if n > 0 and n * speed >= best then best_n, best = n, n * speed end
  end
  if best < 0.8 * gb_s then return 1, gb_s end -- slower than the list, or between its entries
  return best_n, best / best_n
end
M.channels = channels

local steps = {
  all_reduce = function(n) return 2 * (n - 1) end, all_gather = function(n) return n - 1 end,
  reduce_scatter = function(n) return n - 1 end, gather = function(n) return n - 1 end, broadcast = function(n) return n end,
  reduce = function(n) return n end, all_to_all = function(n) return n - 1 end,
}

local function is_ll128(g, gen)
  if tonumber(g.sm or "8.0") < 7 then return false end
  return g.class == "nvlink" or g.class == "pix" or g.class == "pxb" or (g.hosts or 1) > 1 and gen >= 3
end

-- What is common to all algorithms on a group.
local function facts(g)
  local gen, hosts = generation(g.sm), g.hosts or 1
  local intra = g.gb_s
  if g.mesh and g.n > 2 then intra = intra * (g.n - 1) end
  local n_channels, speed = channels(intra, gen)
  local bus = n_channels * speed
  if hosts > 1 then bus = min(bus, g.inter_gb_s or g.gb_s) end
  local is_nvlink = g.class == "nvlink" or hosts > 1 and g.inner_class == "nvlink"
  return { gen = gen, hosts = hosts, column = hosts <= 1 and 1 or hosts <= 3 and 2 or 3, bus = bus, channels = n_channels, speed = speed,
    hop = is_nvlink and hop.nvlink or hop.pcie }
end

local function ring(kind, g, f, proto, bytes)
  local n = g.n
  local all = steps[kind](n)
  local inter = f.hosts > 1 and (kind == "all_reduce" and 2 or 1) * (f.hosts - 1) or 0
  local intra_us, net_us = f.hop.ring[proto], hop.net.ring[proto]
  if f.hosts > 1 then intra_us = max(intra_us, proto == "simple" and 3 or 1) end
  local us = base.ring[proto] + (all - inter) * intra_us + inter * net_us
  local bw = f.bus
  if proto == "ll" then bw = min(ll_max[f.gen][f.column], 0.5 * bw)
  elseif proto == "ll128" then bw = min(0.92 * bw, f.channels * ll128_channel[f.gen]) end
  return us + bytes / (1000 * bw * n / all)
end

local function tree(g, f, proto, bytes)
  local per_host = g.n / f.hosts
  local us = base.tree[proto] + 2 * ((per_host - 1) * f.hop.tree[proto] + math.log(f.hosts) / math.log(2) * hop.net.tree[proto])
  local bw = min(0.92 * f.bus, f.channels * tree_channel[f.gen][f.column])
  if proto == "ll" then bw = min(bw / 3.8, ll_max[f.gen][f.column])
  elseif proto == "ll128" then bw = min(bw * (f.hosts == 1 and 7 / 9 or 120 / 128), f.channels * tree_channel_ll128[f.gen][f.column]) end
  local factors = tree_factor[proto]
  local at = bytes > 64 and floor(math.log(bytes / 64) / math.log(2)) + 1 or 1
  bw = 0.85 * 0.5 * bw * (factors[at] or 1)
  return us + bytes / (1000 * bw)
end

local function nvls(g, f, bytes)
  if not g.nvswitch or g.n < 3 or nvls_share[f.gen] == 0 or f.channels < 2 or f.hosts > 1 and not g.inter_gb_s then return huge end
  local bw = f.channels * f.speed * nvls_share[f.gen] * (f.channels - 1) / f.channels * 2
  bw = bw * g.n / (2 * (g.n - 1))
  if f.hosts > 1 then bw = min(bw, g.inter_gb_s) end
  return NVLS_US + (f.hosts > 1 and NVLS_NET_US or 0) + bytes / (1000 * bw)
end

-- Every rank reads every other's part: one barrier, then (n - 1) parts. facts/perf.md: 256 B 0.31, 4 KB 1.2, 16 KB 3.4, 64 KB 11.5 us on two.
local function shared_memory(kind, g, bytes)
  local start = g.us and min(g.us, 20) or 0.3
  local part = (kind == "all_reduce" or kind == "all_gather" or kind == "gather") and (g.n - 1) or 1
  return start * (1 + 0.5 * (g.n - 2)) + bytes * part / (1000 * g.gb_s)
end

--- Give the time of one collective in us. `bytes` is what one rank brings to an all_reduce, and what one rank holds
--- afterwards of an all_gather.
---@param kind "all_reduce"|"all_gather"|"reduce_scatter"|"gather"|"broadcast"|"reduce"|"all_to_all"
---@param g tpl.cost.Group
---@param bytes number
---@param only? {algo: string?, proto: string?}   price one algorithm or protocol
---@return number us
function M.time(kind, g, bytes, only)
  if g.n < 2 then return 0 end
  if g.cpu then return shared_memory(kind, g, bytes) end
  local f, best = facts(g), huge
  local algo, proto = only and only.algo, only and only.proto
  for _, p in ipairs(protocols) do
    if (not proto or proto == p) and (p ~= "ll128" or is_ll128(g, f.gen)) then
      if not algo or algo == "ring" then best = min(best, ring(kind, g, f, p, bytes)) end
      if kind == "all_reduce" and (not algo or algo == "tree") then best = min(best, tree(g, f, p, bytes)) end
    end
  end
  if kind == "all_reduce" and (not algo or algo == "nvls") and (not proto or proto == "simple") then best = min(best, nvls(g, f, bytes)) end
  if g.us and g.measured then best = max(best, g.us) end -- no collective is faster than one message
  return best
end

return M
