-- SPDX-License-Identifier: Apache-2.0
--- Keep whole NVLink pairs for the next tenant. Heuristic: one replica (want.replicas: more) on as few devices as hold it; devices
--- without an NVLink partner go first, whole pairs before halves of two. Says what stays whole.
local candidates = require "tpl.place.candidates"
local decide = require "tpl.place.decide"
local groups = require "tpl.topo.groups"
local links = require "tpl.topo.pair"
local pools = require "tpl.place.pools"

-- Equal devices in the order in which they are given away, and their NVLink pairs.
local function order(topo, uids)
  local partner, lone, whole = {}, {}, {}
  for _, pair in ipairs(groups.matching(topo, uids)) do
    if links.nvlinks(topo:link(pair[1], pair[2])) > 0 then
      whole[#whole + 1] = pair
      partner[pair[1]], partner[pair[2]] = true, true
    end
  end
  for _, uid in ipairs(uids) do if not partner[uid] then lone[#lone + 1] = { uid } end end
  local list = {}
  for _, one in ipairs(pools.in_line(topo, lone)) do list[#list + 1] = one[1] end
  for i = #whole, 1, -1 do -- the best pair is kept longest
    for _, uid in ipairs(whole[i]) do list[#list + 1] = uid end
  end
  return list, whole
end

local function first(list, n)
  local out = {}
  for i = 1, n do out[i] = list[i] end
  return out
end

local function kept(whole, placement)
  local used, out = {}, {}
  for _, replica in ipairs(placement.replicas) do
    for _, s in ipairs(replica.stages) do for _, uid in ipairs(s.devices) do used[uid] = true end end
  end
  for _, pair in ipairs(whole) do
    if not used[pair[1]] and not used[pair[2]] then out[#out + 1] = table.concat(pair, "+") end
  end
  return #out > 0 and table.concat(out, ", ") or "none"
end

-- n of a pool's devices. An even number is taken as whole pairs, so the lone devices are skipped when they do not come out even.
local function taken_of(pool, n)
  local lone = #pool.list - 2 * #pool.whole
  if n <= lone then return first(pool.list, n) end
  return n % 2 == 0 and first({ unpack(pool.list, lone + 1) }, n) or first(pool.list, n)
end

local function place(topo, model, want)
  want = candidates.want(topo, model, want)
  want.replicas = want.replicas or 1
  local quiet, excluded = pools.quiet(topo, want.uids, want.own)
  local kinds, all_whole = pools.alike(topo, quiet), {}
  for _, pool in ipairs(kinds) do
    pool.list, pool.whole = order(topo, pool.uids)
    for _, pair in ipairs(pool.whole) do all_whole[#all_whole + 1] = pair end
  end
  for n = 1, #quiet do
    for _, pool in ipairs(kinds) do
      local taken = taken_of(pool, n)
      local placement = #taken == n and decide.choose(topo, model, want, { { uids = taken, what = ("%d devices"):format(n), excluded = excluded } },
        function(c) return c.tp * c.pp * c.n == n and c.fits end)
      if placement then
        table.insert(placement.reasons, "NVLink pairs that stay whole: " .. kept(all_whole, placement))
        return placement
      end
    end
  end
  return decide.choose(topo, model, want, { { uids = quiet, what = "all devices", excluded = excluded } })
end

local why = "what is kept for others decides: a device without a partner is given away first"
return { place = place, except = { unchosen_free = why, worse_link = why } }
