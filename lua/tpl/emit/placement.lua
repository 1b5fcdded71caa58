-- SPDX-License-Identifier: Apache-2.0
--- Read a plan's report as what another engine needs: replicas, their stages, and devices in the order of ranks.
-- The report is that of `tpl plan` (interface.md section 4); whatever it does not say is nil here. Engines and targets read this, not the report.
local json = require("tpl.json")

local M = {}

---@class tpl.emit.Stage
---@field i integer            from 0
---@field layers integer[]?    {first, last}, from 0, both included
---@field n_layer integer?     layers of the stage
---@field devices table[]      devices of the topology, in the order of ranks; a device that it does not list is {uid=}
---@field tp integer           ranks over which each weight is cut
---@field dp integer           ranks that take different requests; tp x dp = #devices
---@field shares integer[]?    units of KV heads, per rank; nil: unknown or not cut by heads
---@field given_shares number[]?  as the deployment or the policy gave them

---@class tpl.emit.Replica
---@field i integer            from 0
---@field stages tpl.emit.Stage[]
---@field devices table[]      of all stages, stage by stage
---@field ranks table[]        the report's ranks of these devices, in the same order; {} where the report has none
---@field hosts string[]       host ids in the order of devices

---@class tpl.emit.Placement
---@field replicas tpl.emit.Replica[]
---@field ep integer           ranks over which experts are spread
---@field n_head integer?      attention heads of the model
---@field n_kv integer?        KV heads of the model

local function known(x) if x ~= nil and x ~= json.null then return x end end

local function list(x) return type(x) == "table" and x or {} end

--- Give a device of the topology; one that it does not list stands for itself.
local function device(t, uid)
  local d = t and t.dev and t:dev(uid)
  return d or { uid = uid, kind = tostring(uid):find("^cpu") and "cpu" or "gpu" }
end

-- Ranks over which a stage cuts weights, and those that take different requests: by the axes of its mesh, else by degrees.
local function split(stage, n, degrees)
  local axes, dp = list(known(stage and stage.axes)), 1
  for _, axis in ipairs(axes) do
    if known(axis.kind) == "batch" or axis.name == "dp" then dp = dp * axis.size end
  end
  if #axes == 0 and known(degrees.tp) and n % degrees.tp == 0 then dp = n / degrees.tp end
  if n % dp ~= 0 then dp = 1 end
  return n / dp, dp
end

-- Units of a dim that a rank holds, from its shards {{first, count}, ..}, and the end of the last.
local function units(rank, dim)
  local ranges = known(list(known(rank.shards))[dim])
  if not ranges then return nil end
  local n, last = 0, 0
  for _, range in ipairs(ranges) do n, last = n + range[2], math.max(last, range[1] + range[2]) end
  return n, last
end

local function shares_of(ranks, tp)
  if tp < 2 or #ranks < tp then return nil end
  local out = {}
  for k = 1, tp do
    local n = units(ranks[k], "kvh")
    if not n then return nil end
    out[k] = n
  end
  return out
end

local function same_all(values)
  for _, v in ipairs(values) do if v ~= values[1] then return false end end
  return true
end

--- Say whether shares differ: an engine that cuts evenly cannot hold them.
function M.is_uneven(shares) return shares ~= nil and not same_all(shares) end

-- -- From ranks, else from replicas ------------------------------------------------------------------------------------

local function by_number(a, b) return a.rank < b.rank end

-- {replica -> {stage -> ranks in order}}, with the sorted numbers of both.
local function group(ranks)
  local groups, order = {}, {}
  for _, r in ipairs(ranks) do
    local replica, stage = known(r.replica) or 0, known(r.stage) or 0
    if not groups[replica] then
      groups[replica] = { order = {} }
      order[#order + 1] = replica
    end
    local g = groups[replica]
    if not g[stage] then
      g[stage] = {}
      g.order[#g.order + 1] = stage
    end
    table.insert(g[stage], r)
  end
  table.sort(order)
  for _, replica in ipairs(order) do
    table.sort(groups[replica].order)
    for _, stage in ipairs(groups[replica].order) do table.sort(groups[replica][stage], by_number) end
  end
  return groups, order
end

local function stage_entry(report, i)
  for _, s in ipairs(list(known(report.stages))) do if s.i == i then return s end end
end

local function explicit_shares(stage)
  local shares = known(stage and stage.shares)
  if type(shares) ~= "table" then return nil end
  return known(shares.tp) or (#shares > 0 and shares or nil)
end

local function add_stage(replica, t, entry, at, uids, ranks, layers, shares, degrees)
  local stage = { i = at, devices = {}, layers = layers, n_layer = layers and layers[2] - layers[1] + 1 }
  for k, uid in ipairs(uids) do
    stage.devices[k] = device(t, uid)
    replica.devices[#replica.devices + 1] = stage.devices[k]
    if ranks[k] then replica.ranks[#replica.ranks + 1] = ranks[k] end
  end
  stage.tp, stage.dp = split(entry, #uids, degrees)
  stage.shares, stage.given_shares = shares or shares_of(ranks, stage.tp), shares
  replica.stages[#replica.stages + 1] = stage
end

local function finish(replica)
  replica.hosts = {}
  local seen = {}
  for _, d in ipairs(replica.devices) do
    local host = known(d.host) or "host0"
    if not seen[host] then
      seen[host] = true
      replica.hosts[#replica.hosts + 1] = host
    end
  end
  return replica
end

local function from_ranks(report, t, degrees)
  local out, groups, order = {}, group(report.ranks)
  for at, number in ipairs(order) do
    local replica, g = { i = at - 1, stages = {}, devices = {}, ranks = {} }, groups[number]
    local placed = list(known(list(known(report.replicas))[at]))
    for k, s in ipairs(g.order) do
      local entry, uids = stage_entry(report, s), {}
      for i, r in ipairs(g[s]) do uids[i] = r.uid end
      local given = list(known(placed.stages))[k]
      add_stage(replica, t, entry, k - 1, uids, g[s], known(entry and entry.layers), explicit_shares(given) or explicit_shares(entry), degrees)
    end
    out[at] = finish(replica)
  end
  return out
end

local function from_replicas(report, t, degrees)
  local out = {}
  for at, placed in ipairs(list(known(report.replicas))) do
    local replica = { i = at - 1, stages = {}, devices = {}, ranks = {} }
    for k, s in ipairs(known(placed.stages) or { placed }) do
      local entry = stage_entry(report, k - 1)
      add_stage(replica, t, entry, k - 1, list(s.devices), {}, known(s.layers) or known(entry and entry.layers),
        explicit_shares(s) or explicit_shares(entry), degrees)
    end
    out[at] = finish(replica)
  end
  return out
end

-- Shards count from 0, so the last end is the model's number; explicit shares add up to it.
local function kv_heads(replicas)
  local most, sum = 0, 0
  for _, replica in ipairs(replicas) do
    for _, rank in ipairs(replica.ranks) do
      local _, last = units(rank, "kvh")
      most = math.max(most, last or 0)
    end
  end
  if most > 0 then return most end
  for _, n in ipairs(replicas[1] and replicas[1].stages[1].shares or {}) do sum = sum + n end
  return sum > 0 and sum or nil
end

--- Read the report of a plan.
---@param report table       result of `tpl plan`
---@param t table?           topology with dev(uid); nil: devices are known by uid only
---@param shape table?       {n_head, n_kv} of the model where the report's `model` has none
---@return tpl.emit.Placement
function M.read(report, t, shape)
  local degrees = list(known(report.degrees))
  local replicas = #list(known(report.ranks)) > 0 and from_ranks(report, t, degrees) or from_replicas(report, t, degrees)
  local model, facts = list(known(report.model)), shape or {}
  return { replicas = replicas, ep = known(degrees.ep) or 1, n_head = known(model.n_head) or known(facts.n_head),
    n_kv = known(model.n_kv) or known(facts.n_kv) or kv_heads(replicas) }
end

--- List a replica's devices as an engine numbers its ranks: data-parallel group by group when `dp_first`, else stage by stage.
---@param replica tpl.emit.Replica
---@param dp_first boolean?
---@return table[]
function M.order(replica, dp_first)
  local dp = replica.stages[1] and replica.stages[1].dp or 1
  if not dp_first or dp == 1 then return replica.devices end
  local out = {}
  for d = 0, dp - 1 do
    for _, stage in ipairs(replica.stages) do
      for k = 1, stage.tp do out[#out + 1] = stage.devices[d * stage.tp + k] end
    end
  end
  return out
end

--- Give the layers of each stage, nil where a stage's are not known.
---@return integer[]?
function M.layer_counts(replica)
  local out = {}
  for i, stage in ipairs(replica.stages) do
    if not stage.n_layer then return nil end
    out[i] = stage.n_layer
  end
  return out
end

--- Say whether the stages hold different numbers of layers.
function M.has_unequal_stages(replica)
  local counts = M.layer_counts(replica)
  return counts ~= nil and not same_all(counts)
end

--- Give the NUMA node of every device, in order, or nil where one is not known.
---@param devices table[]
---@return integer[]? nodes
---@return boolean is_one  all the same
function M.numa(devices)
  local nodes = {}
  for i, d in ipairs(devices) do
    if not known(d.numa) then return nil, false end
    nodes[i] = d.numa
  end
  return #nodes > 0 and nodes or nil, same_all(nodes)
end

M.known = known

return M
