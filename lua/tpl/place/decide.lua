-- SPDX-License-Identifier: Apache-2.0
--- Turn priced candidates into a placement with its reasons: what was taken, the best alternatives and their price, what was
--- left out and why. Shared by the placement policies. Pure.
local candidates = require "tpl.place.candidates"
local cost = require "tpl.cost"
local groups = require "tpl.topo.groups"
local order = require "tpl.place.order"
local pools = require "tpl.place.pools"

local M = {}

local MOST_ALTERNATIVES = 12

local function labelled(device) return #(device.labels or {}) > 0 end

--- Give the sets of devices to try, in order: one kind of quiet devices after the other, all quiet ones together, then those that
--- a process uses as well. Labelled devices are in none.
---@param own table<string, boolean>?   as pools.quiet takes them
---@return {uids: string[], what: string, excluded: table[]}[]
function M.attempts(topo, uids, own)
  local quiet, occupied = pools.quiet(topo, uids, own)
  local out, kinds = {}, pools.alike(topo, quiet)
  for _, pool in ipairs(kinds) do
    local excluded = {}
    for _, x in ipairs(occupied) do excluded[#excluded + 1] = x end
    for _, other in ipairs(kinds) do
      if other ~= pool then
        for _, uid in ipairs(other.uids) do excluded[#excluded + 1] = { uid = uid, why = ("another model (%s)"):format(other.name) } end
      end
    end
    out[#out + 1] = { uids = pool.uids, what = pool.name, excluded = excluded }
  end
  if #kinds > 1 then out[#out + 1] = { uids = quiet, what = "mixed models", excluded = occupied } end
  local rest, never = {}, {}
  for _, uid in ipairs(quiet) do rest[#rest + 1] = uid end
  for _, x in ipairs(occupied) do
    if labelled(topo:dev(x.uid)) then never[#never + 1] = x else rest[#rest + 1] = x.uid end
  end
  if #rest > #quiet then out[#out + 1] = { uids = rest, what = "busy devices too", excluded = never } end
  return out
end

local function devices_text(replica)
  local out = {}
  for i, s in ipairs(replica.stages) do out[i] = table.concat(s.devices, "+") end
  return table.concat(out, " | ")
end

local function reasons_for(topo, model, want, best, attempt, extra)
  local out = { ("%s on %s: %s"):format(best.name, attempt.what, best.why) }
  for i, replica in ipairs(best.replicas) do
    if i <= 8 then out[#out + 1] = ("replica %d: %s"):format(i - 1, devices_text(replica)) end
  end
  if #best.replicas > 8 then out[#out + 1] = ("and %d more replicas like these"):format(#best.replicas - 8) end
  local first = best.replicas[1].stages[1]
  if #first.devices > 1 then
    local link = groups.weakest(topo, first.devices)
    if link then out[#out + 1] = ("the weakest link of its first group is %s%s"):format(link.kind, link.nvlinks and (" x%d"):format(link.nvlinks) or "") end
  end
  if first.shares then out[#out + 1] = ("shares of the first group, in KV head groups: %s"):format(table.concat(first.shares, "/")) end
  local larger = best.instead_of
  if larger then
    out[#out + 1] = ("%s is priced %.0f %% higher, less than estimates may be off: smaller replicas were taken"):format(larger.name,
      100 * (larger.score / best.score - 1))
  end
  if not best.fits then
    out[#out + 1] = ("nothing holds want.context %d x want.concurrency %d; this holds most"):format(want.context, want.concurrency)
  end
  for _, line in ipairs(extra or {}) do out[#out + 1] = line end
  if not model.has_definition then out[#out + 1] = "the model has no definition here: its prices are estimates of its config" end
  return out
end

local function alternatives_of(list, best, refused)
  local out = {}
  for _, c in ipairs(list) do
    if c ~= best and #out < MOST_ALTERNATIVES then out[#out + 1] = { name = c.name, score = c.score, why = c.why } end
  end
  for _, x in ipairs(refused) do
    if #out < MOST_ALTERNATIVES then out[#out + 1] = { name = x.name, why = x.why } end
  end
  return out
end

-- The gain of an uneven cut over the even one it was chosen before.
local function uneven_gain(list, best)
  if not best.uneven then return nil end
  for _, c in ipairs(list) do
    if c.tp == best.tp and c.pp == best.pp and not c.uneven and c.holds_one then
      local gain = best.estimate.kv_tokens - c.estimate.kv_tokens
      return ("uneven shares by memory: +%d KV tokens (%+.0f %%)"):format(gain, 100 * gain / math.max(1, c.estimate.kv_tokens))
    end
  end
  return "uneven shares by memory: an even cut does not fit"
end

-- The gain of layers cut by memory over as many layers on every stage; nothing where that is the same cut.
local function layers_gain(topo, model, want, best)
  local stages, uneven = {}, false
  local given = best.replicas[1].stages
  if #given < 2 or not given[1].layers then return nil end
  for i, s in ipairs(given) do
    local first, last = math.floor(model.n_layer * (i - 1) / #given), math.floor(model.n_layer * i / #given) - 1
    stages[i] = { devices = s.devices, shares = s.shares, mesh = s.mesh, layers = { first, last } }
    uneven = uneven or first ~= s.layers[1] or last ~= s.layers[2]
  end
  local even = uneven and cost.estimate(topo, model, { stages = stages }, want)
  local gain = even and best.estimate.kv_tokens - even.kv_tokens or 0
  if gain < 0.01 * best.estimate.kv_tokens then return nil end
  if even.kv_tokens == 0 then return "layers cut by memory: an even cut does not fit" end
  return ("layers cut by memory: +%d KV tokens (%+.0f %%) over an even cut"):format(gain, 100 * gain / even.kv_tokens)
end

-- Bytes that the fullest rank lacks for one request.
local function lacking(c, context)
  local most = 0
  for _, r in ipairs(c.estimate.ranks) do
    local needed = r.weights + r.arena + r.comm + r.other + r.kv_full_per_token * context + r.kv_window_bytes
    most = math.max(most, needed - r.capacity)
  end
  return most
end

-- Of candidates that all hold too little: the one that comes closest.
local function closest_of(list, context)
  local closest, least
  for _, c in ipairs(list) do
    local bytes = lacking(c, context)
    if not closest or bytes < least then closest, least = c, bytes end
  end
  return closest
end

--- Make a placement of the best of some candidates.
---@param list tpl.Candidate[]
---@param attempt {what: string, excluded: table[]}   the devices they are on
---@param refused? {name: string, why: string}[]
---@param others? tpl.Candidate[]   what the best is held against, where a policy takes only some of it
---@return table? placement
---@return string? message    when none fits
function M.among(topo, model, want, list, attempt, refused, others)
  order.sort(list, want.goal)
  local best = list[1]
  if not best then return nil, refused and #refused > 0 and refused[1].why or "no device may be used" end
  if not best.holds_one then
    local closest = closest_of(list, want.context)
    return nil, ("%s: %s"):format(closest.name, closest.why)
  end
  local gain = uneven_gain(others or list, best) or layers_gain(topo, model, want, best)
  return { replicas = best.replicas, excluded = attempt.excluded, alternatives = alternatives_of(others or list, best, refused or {}),
    reasons = reasons_for(topo, model, want, best, attempt, gain and { gain }) }
end

--- Choose among sets of devices: the first whose best candidate holds what is wanted, else the best of all.
---@param topo tpl.Topo
---@param model tpl.Shape
---@param want table          completed by candidates.want
---@param attempts table[]    as M.attempts gives them
---@param filter? fun(c: tpl.Candidate): boolean   candidates to look at
---@return table? placement
---@return string? message    when nothing fits
function M.choose(topo, model, want, attempts, filter)
  local all, refused, of = {}, {}, {}
  for _, attempt in ipairs(attempts) do
    local list, bad = candidates.enumerate(topo, model, want, attempt.uids)
    for _, x in ipairs(bad) do refused[#refused + 1] = x end
    local kept = {}
    for _, c in ipairs(list) do
      if not filter or filter(c) then kept[#kept + 1], all[#all + 1], of[c] = c, c, attempt end
    end
    order.sort(kept, want.goal)
    if kept[1] and kept[1].fits and kept[1].unmet == 0 then return M.among(topo, model, want, kept, attempt, refused) end
  end
  order.sort(all, want.goal)
  return M.among(topo, model, want, all, of[all[1]], refused)
end

-- Say which of some devices has less free than its part of the weights; a rank's memory lies on its own node.
local function short_of_memory(topo, list, bytes)
  for _, group in ipairs(list) do
    for _, uid in ipairs(group) do
      local d = topo:dev(uid)
      local free = d.free_bytes or d.mem_bytes
      if free and bytes > free then
        return ("weights need %.1f GiB on %s, %.1f GiB are free"):format(bytes / 2 ^ 30, uid, free / 2 ^ 30)
      end
    end
  end
end

--- Place ranks on the cores of a CPU-only machine: as many as are asked for, else one for each NUMA node where the model's heads
--- allow it.
function M.cpus(topo, model, want)
  local uids, pp, n = want.uids, want.pp or 1, want.replicas or 1
  local tp = want.tp or (pp * n == 1 and #uids <= (model.n_kv or 1) and #uids or 1)
  if tp * pp * n > #uids then
    return nil, ("tp=%d pp=%d x%d need %d CPU ranks, the machine has %d groups of cores"):format(tp, pp, n, tp * pp * n, #uids)
  end
  local list, replicas = groups.partition(topo, uids, tp), {}
  for i = #list, pp * n + 1, -1 do list[i] = nil end
  local short = short_of_memory(topo, list, model.weight_bytes / (tp * pp))
  if short then return nil, short end
  for r = 1, n do
    local stages = {}
    for i = 1, pp do stages[i] = { devices = list[(r - 1) * pp + i] } end
    replicas[r] = { stages = stages }
  end
  local why = want.tp and "as the deployment asks" or tp > 1 and "one rank for each NUMA node" or "one rank on the machine's cores"
  return { replicas = replicas, excluded = {}, alternatives = {},
    reasons = { ("tp=%d pp=%d%s on CPUs: %s"):format(tp, pp, n > 1 and (" x%d"):format(n) or "", why) } }
end

--- Say whether all devices are CPUs.
function M.is_cpus(topo, uids)
  for _, uid in ipairs(uids) do if topo:dev(uid).kind ~= "cpu" then return false end end
  return #uids > 0
end

return M
