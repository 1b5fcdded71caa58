-- SPDX-License-Identifier: Apache-2.0
--- Enumerate and price the ways to place a model: TP of some size, PP of some depth, replicas of that. Policies choose among
--- them; `tpl plan --why-not` asks for one. Pure: machine and model in, priced candidates out.
local cost = require "tpl.cost"
local err = require "tpl.err"
local groups = require "tpl.topo.groups"
local pools = require "tpl.place.pools"
local requirements = require "tpl.place.requirements"

local M = {}

local MOST_TP, MOST_STAGES = 16, 16
local UNEVEN = 0.05 -- capacities that differ by more are worth uneven cuts

---@class tpl.Candidate
---@field name string          "tp=2 pp=1 x2"
---@field tp integer           ranks of a stage
---@field pp integer
---@field n integer            replicas
---@field replicas table[]     as a placement has them
---@field estimate table?      cost.estimate of the replica with least room
---@field fits boolean         holds want.context x want.concurrency (or want.kv_tokens)
---@field holds_one boolean    holds one request of want.context
---@field score number?        higher is better
---@field why string           the price, or the rule it broke
---@field uneven boolean       shares follow memory
---@field is_ep boolean        ranks have requests and experts of their own
---@field is_wide boolean      a group lies on several hosts
---@field is_mixed boolean     devices of several models
---@field instead_of tpl.Candidate?  the better price of larger replicas, which was not better by enough
---@field unmet integer        requirements of the deployment that it breaks

local function wanted_tokens(want)
  return want.kv_tokens or math.max(want.context * want.concurrency, tonumber((want.require or {}).kv_tokens) or 0)
end

-- GPUs that may be used where there are any, else the CPUs.
local function default_uids(topo)
  local gpus = topo:ids { kind = "gpu", usable = true }
  return #gpus > 0 and gpus or topo:ids { kind = "cpu", usable = true }
end

--- Complete what a policy was asked for: the devices that may be used, and context and concurrency as `tpl plan` takes them.
---@return table
function M.want(topo, model, want)
  local out = {}
  for k, v in pairs(want or {}) do out[k] = v end
  out.context = math.min(out.context or 8192, model.context or out.context or 8192)
  out.concurrency = out.concurrency or 16
  out.goal = out.goal or "throughput"
  out.uids = out.uids or default_uids(topo)
  return out
end

--- Say which rule forbids TP of a size; nil when none does.
function M.forbids(model, tp, n_devices)
  if tp > n_devices then return ("tp=%d needs %d devices, %d may be used"):format(tp, tp, n_devices) end
  if tp > (model.n_kv or tp) and tp > 1 then
    return ("tp=%d is more than the %d groups of KV heads, the unit that is cut"):format(tp, model.n_kv)
  end
end

-- Stages of one replica over a list of groups: "even", "uneven" (shares by memory), or "ep" (each rank has requests and experts of its own).
local function stages_of(topo, model, want, list, how, cut)
  local stages, is_uneven = {}, how == "uneven"
  for i, group in ipairs(list) do
    local s = { devices = group, layers = cut and cut[i] or nil }
    if want.mesh and want.mesh ~= ("tp=%d"):format(#group) then -- the deployment says how the ranks of a stage are split
      s.mesh = want.mesh
    elseif how == "ep" then
      s.mesh = ("dp=%d:batch"):format(#group)
    elseif want.shares and #want.shares == #group then
      s.shares = want.shares
    elseif #group > 1 and (is_uneven or (model.n_kv or 0) % #group ~= 0) then
      s.shares = is_uneven and cost.shares(model, topo, group) or M.even_shares(model, #group)
    end
    stages[i] = s
  end
  return stages
end

--- Shares of n ranks in KV head groups, as even as they go: 8 over 3 is {3, 3, 2}.
function M.even_shares(model, n)
  local out, left = {}, model.n_kv
  for i = 1, n do
    out[i] = math.ceil(left / (n - i + 1))
    left = left - out[i]
  end
  return out
end

local function room_differs(topo, group)
  local least, most = math.huge, 0
  for _, uid in ipairs(group) do
    local d = topo:dev(uid)
    local room = d.free_bytes or d.mem_bytes or 0
    least, most = math.min(least, room), math.max(most, room)
  end
  return most > 0 and least < most * (1 - UNEVEN)
end

local function price(c, want)
  local e = c.estimate
  c.holds_one = e.kv_tokens >= want.context
  c.fits = e.kv_tokens >= wanted_tokens(want)
  c.score = want.goal == "latency" and 1e6 / e.itl_us or e.served_tok_s * c.n
  c.why = ("%.0f tok/s when full, %.1f ms a token at %d requests, %.0f %% of it communication"):format(e.served_tok_s * c.n, e.itl_us / 1e3,
    want.concurrency, 100 * e.decode_comm_share)
  if c.fits then return c end
  local short = e.why or ("room for %d KV tokens, %d are wanted"):format(e.kv_tokens, wanted_tokens(want))
  c.why = c.holds_one and short .. "; " .. c.why or ("%s; not even one request of %d tokens fits"):format(short, want.context)
  return c
end

local function name_of(mesh, tp, pp, n, how)
  local split = mesh or how == "ep" and ("dp=%d ep=%d"):format(tp, tp) or ("tp=%d"):format(tp)
  return ("%s pp=%d%s%s"):format(split, pp, n > 1 and (" x%d"):format(n) or "",
    how == "uneven" and " uneven" or "")
end

local function spans_hosts(topo, group)
  for _, uid in ipairs(group) do
    if topo:dev(uid).host ~= topo:dev(group[1]).host then return true end
  end
  return false
end

-- What the devices of a chain are and have free: chains that are alike are cut alike.
local function likeness(topo, chain)
  local words = {}
  for _, group in ipairs(chain) do
    for _, uid in ipairs(group) do
      local d = topo:dev(uid)
      words[#words + 1] = ("%s/%s"):format(d.name or "", d.free_bytes or d.mem_bytes or "")
    end
    words[#words + 1] = "|"
  end
  return table.concat(words)
end

local function cutter(topo, model, want)
  local known = {}
  return function(chain)
    if #chain < 2 then return nil end
    local key = likeness(topo, chain)
    known[key] = known[key] or cost.cut(model, topo, chain, want)
    return known[key]
  end
end

-- The estimate of the replica with least room: on mixed or partly filled devices replicas differ, and each must hold the model.
local function worst_estimate(topo, model, want, chains, replicas)
  local worst, seen = nil, {}
  for i, replica in ipairs(replicas) do
    local key = likeness(topo, chains[i])
    if not seen[key] then
      seen[key] = true
      local e, problem = cost.estimate(topo, model, replica, want)
      if not e then err.throw(problem) end
      if not worst or e.kv_tokens < worst.kv_tokens or e.kv_tokens == worst.kv_tokens and e.itl_us > worst.itl_us then worst = e end
    end
  end
  return worst
end

local function is_mixed(topo, chain)
  local name = topo:dev(chain[1][1]).name
  for _, group in ipairs(chain) do
    for _, uid in ipairs(group) do
      if topo:dev(uid).name ~= name then return true end
    end
  end
  return false
end

local function candidate(topo, model, want, chains, how)
  local first = chains[1]
  local tp, pp = #first[1], #first
  local replicas = {}
  local cut = cutter(topo, model, want)
  for i, chain in ipairs(chains) do replicas[i] = { stages = stages_of(topo, model, want, chain, how, cut(chain)) } end
  local c = { name = name_of(want.mesh, tp, pp, #chains, how), tp = tp, pp = pp, n = #chains, replicas = replicas, uneven = how == "uneven",
    is_ep = how == "ep", is_wide = spans_hosts(topo, first[1]),
    is_mixed = is_mixed(topo, first) }
  c.estimate = worst_estimate(topo, model, want, chains, replicas)
  price(c, want)
  local unmet = requirements.unmet(topo, replicas[1], c.estimate, want.require)
  c.unmet = #unmet
  for _, u in ipairs(unmet) do c.why = c.why .. ("; require.%s: %s"):format(u.field, u.message) end
  return c
end

-- Chains of pp groups each: the best groups when not all are used, each chain of neighbours.
local function chains_of(topo, list, pp, n)
  local used = {}
  for i = 1, pp * n do used[i] = list[i] end
  used = pools.in_line(topo, used)
  local out = {}
  for r = 1, n do
    out[r] = {}
    for s = 1, pp do out[r][s] = used[(r - 1) * pp + s] end
  end
  return out
end

-- DP attention with whole experts on each rank. A model with a definition has no layout for it in this version.
local function may_part_experts(model, want, n)
  return n > 1 and model.is_moe and not model.has_definition and not want.tp and not want.mesh and model.n_expert >= n
end

--- Price TP of one size and PP of one depth on some devices.
---@param uids string[]
---@param list string[][]?   groups of tp devices, best first, when they are known already
---@return tpl.Candidate[]   none, an even one, an uneven one where memory differs, one with parted experts for a mixture
function M.one(topo, model, want, uids, tp, pp, list)
  list = list or groups.partition(topo, uids, tp)
  local n = math.floor(#list / pp)
  if n < (want.replicas or 1) then return {} end
  n = want.replicas or n
  local chains = chains_of(topo, list, pp, n)
  local out = { candidate(topo, model, want, chains, "even") }
  local differs = false
  for _, group in ipairs(chains[1]) do differs = differs or #group > 1 and room_differs(topo, group) end
  if differs and not want.shares then out[2] = candidate(topo, model, want, chains, "uneven") end
  if may_part_experts(model, want, tp) then out[#out + 1] = candidate(topo, model, want, chains, "ep") end
  return out
end

local function sizes(want, most)
  if want.tp then return { want.tp } end
  local out = {}
  for n = 1, math.min(most, MOST_TP) do
    if n <= 8 or n == 12 or n == 16 then out[#out + 1] = n end
  end
  return out
end

local function depths(want, n_groups, n_layer)
  if want.pp then return { want.pp } end
  local out = {}
  for n = 1, math.min(n_groups, n_layer, MOST_STAGES) do
    if n <= 8 or n == n_groups or n % 4 == 0 then out[#out + 1] = n end
  end
  return out
end

-- What must be said when nothing is left to price.
local function too_few(want, uids)
  local asked, n = {}, 1
  for _, key in ipairs { "tp", "pp", "replicas" } do
    if want[key] then asked[#asked + 1], n = ("%s=%d"):format(key, want[key]), n * want[key] end
  end
  local name = table.concat(asked, " ")
  return { name = name, rule = "devices", why = ("%s needs %d devices, %d may be used"):format(name, n, #uids) }
end

--- Price everything on one pool of devices.
---@return tpl.Candidate[]
---@return {name: string, why: string, rule: string?}[] refused   sizes that a rule forbids; rule "devices": too few of them
function M.enumerate(topo, model, want, uids)
  local out, refused = {}, {}
  for _, tp in ipairs(sizes(want, #uids)) do
    local why = M.forbids(model, tp, #uids)
    if why then
      refused[#refused + 1] = { name = ("tp=%d"):format(tp), why = why }
    else
      local list = groups.partition(topo, uids, tp)
      for _, pp in ipairs(depths(want, #list, model.n_layer)) do
        for _, c in ipairs(M.one(topo, model, want, uids, tp, pp, list)) do out[#out + 1] = c end
      end
    end
  end
  if #out == 0 and #refused == 0 then refused[1] = too_few(want, uids) end
  return out, refused
end

return M
