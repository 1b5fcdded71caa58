-- SPDX-License-Identifier: Apache-2.0
--- What any sane placement policy satisfies on any machine. `check` looks for the first property that a case breaks.
-- A refusal (nil and a reason) is an answer: nothing was chosen, so only errors, determinism and indices are looked at. Ties: a changed choice is
-- accepted where the groups are worth the same by the ranking of data/topologies/INDEX.md, points 2 to 5; which of two equal groups is taken, what
-- is left over and NICs are the policy's taste.
local groups = require("tpl.topo.groups")
local guard = require("tpl.policy.guard")
local models = require("tpl.policy.models")
local permute = require("tpl.policy.permute")
local policy = require("tpl.policy")
local random = require("tpl.fuzz.draw").random
local topo = require("tpl.topo")
local util = require("tpl.util")

local M = {}

M.LIMIT_S = 5 -- an imagined machine has few devices: the soft limit of the hook is a hard one here

--- The properties, in the order in which they are looked at: {name, in words}.
M.list = {
  { "runs", "ends without an error, within " .. M.LIMIT_S .. " s" },
  { "well_formed", "returns a placement: types, known devices, layers 0..n-1 once, meshes and shares that match" },
  { "device_once", "takes no device twice" },
  { "no_mig_parent", "takes no GPU that is cut into slices" },
  { "no_slice_in_group", "lets MIG slices work alone" },
  { "usable_only", "takes no lost, unhealthy or unready device" },
  { "respects_excluded", "takes no device that was excluded" },
  { "input_unchanged", "leaves the machine, the model and the want as they are" },
  { "deterministic", "gives the same answer twice" },
  { "one_model_in_group", "mixes models in a group only with shares" },
  { "weights_fit", "puts no more weights on a device than its free memory holds" },
  { "index_free", "chooses the same devices whatever their indices" },
  { "unchosen_free", "chooses the same devices when one that it did not choose is gone" },
  { "worse_link", "puts no pair into a group because its link got worse" },
}

--- Properties that are a matter of taste: a policy's file may say that it breaks one on purpose, as `except = { unchosen_free = "why" }`.
M.optional = { unchosen_free = true, one_model_in_group = true, worse_link = true }

local property_of = { device_twice = "device_once", mig_parent = "no_mig_parent", mig_in_group = "no_slice_in_group", unusable_device = "usable_only",
  device_excluded = "respects_excluded" }

-- -- Running -----------------------------------------------------------------------------------------------------

---@class tpl.policy.Failure
---@field property string
---@field message string
---@field where string?     file:line of the policy
---@field rule string?      of tpl.policy.check
---@field stopped boolean?  it ran into the time limit
---@field record table?     the machine on which it fails, where that is not the case's

local function failed(property, message, more)
  local out = { property = property, message = message }
  for k, v in pairs(more or {}) do out[k] = v end
  return out
end

--- Run the policy on a record: an answer {topo, placement} or {topo, refused = reason}; or nil and the failure.
local function answer(p, record, case, seen)
  local t = assert(topo.from_record(guard.copy(record)))
  local placement, e = policy.run(p, t, models.get(case.model), case.want, { hard_s = M.LIMIT_S, quick = true, seen = seen and function(s) seen(s, t) end })
  if placement then return { topo = t, placement = placement } end
  if e.code == "no_fit" or e.exit == 4 then return { topo = t, refused = e.message } end
  return nil, failed(property_of[e.rule] or e.rule and "well_formed" or "runs", e.message, { where = e.where, rule = e.rule,
    stopped = e.message:find("^it ran for more than") ~= nil or nil })
end

local function each_stage(a)
  local list, i = {}, 0
  for _, r in ipairs(a.placement and a.placement.replicas or {}) do for _, s in ipairs(r.stages) do list[#list + 1] = s end end
  return function()
    i = i + 1
    return list[i]
  end
end

local function chosen(a)
  local out = {}
  for s in each_stage(a) do for _, uid in ipairs(s.devices or {}) do out[#out + 1] = a.topo:dev(uid).uuid or uid end end
  table.sort(out)
  return out
end

local function show(list)
  if #list == 0 then return "nothing" end
  if #list > 4 then return ("%s and %d more"):format(table.concat(list, ", ", 1, 3), #list - 3) end
  return table.concat(list, ", ")
end

-- -- Ties --------------------------------------------------------------------------------------------------------

local facts = { "models", "joined", "full", "weakest", "total", "worst", "sockets", "nodes" }

-- Which cards they are counts where only indices changed: the ranking knows no better card, and an index must not decide it. When a device is gone,
-- the ranking's own point 7, the most useful remainder, may take other cards.
local function worth(t, uids, with_cards)
  local words, what = {}, {}
  if #uids > 1 then
    local f = groups.describe(t, uids)
    for i, key in ipairs(facts) do words[i] = tostring(f[key]) end
  end
  for i, uid in ipairs(uids) do
    local d = t:dev(uid)
    what[i] = with_cards and ("%s %s %s %s"):format(d.kind, tostring(d.name), tostring(d.mem_bytes), tostring(d.mig and d.mig.profile)) or d.kind
  end
  table.sort(what)
  return table.concat(words, " ") .. " | " .. table.concat(what, ", ")
end

--- Say what a placement is worth, in a text that is equal for equal groups.
local function worth_of(a, with_cards)
  local replicas = {}
  for i, r in ipairs(a.placement and a.placement.replicas or {}) do
    local stages = util.map(r.stages, function(s) return worth(a.topo, s.devices or {}, with_cards) end)
    table.sort(stages)
    replicas[i] = table.concat(stages, "\n")
  end
  table.sort(replicas)
  return table.concat(replicas, "\n\n")
end

--- Say how two answers differ, nil where they are the same or a tie.
local function difference(a, b, with_cards)
  if (a.refused ~= nil) ~= (b.refused ~= nil) then
    local other = b.refused or a.refused
    return b.refused and ("refuses (%s) instead of taking %s"):format(other, show(chosen(a)))
      or ("takes %s instead of refusing (%s)"):format(show(chosen(b)), other)
  end
  local x, y = chosen(a), chosen(b)
  if util.same(x, y) or worth_of(a, with_cards) == worth_of(b, with_cards) then return nil end
  return ("takes %s instead of %s, and these are not equal"):format(show(y), show(x))
end

-- -- The properties that need more than one run ------------------------------------------------------------------

local function mixed_group(a)
  for s in each_stage(a) do
    for _, uid in ipairs(s.devices or {}) do
      local first, d = a.topo:dev(s.devices[1]), a.topo:dev(uid)
      if d.name ~= first.name and not s.shares then
        return ("puts %s (%s) and %s (%s) into one group of equal shares"):format(first.uid, tostring(first.name), uid, tostring(d.name))
      end
    end
  end
end

-- The least that a stage's weights take on each of its devices: layers cut evenly or by shares, the embedding on the first and the head on the
-- last stage; what is not cut, and all else that needs memory, is left out.
local function too_heavy(a, model, usable)
  for _, r in ipairs(a.placement.replicas) do
    for i, s in ipairs(r.stages) do
      local bytes = (i == 1 and model.embed_bytes or 0) + (i == #r.stages and not (i == 1 and model.tied) and model.head_bytes or 0)
      for l = s.layers[1], s.layers[2] do bytes = bytes + model.layers[l + 1].weight_bytes end
      local shares, sum = s.shares and (s.shares.tp or s.shares), 0
      if shares and #shares ~= #(s.devices or {}) then shares = nil end
      for k in ipairs(s.devices or {}) do sum = sum + (shares and shares[k] or 1) end
      for k, uid in ipairs(s.devices or {}) do
        local d, part = a.topo:dev(uid), bytes * (shares and shares[k] or 1) / sum
        local holds = math.min(d.mem_bytes and d.mem_bytes * usable or math.huge, d.free_bytes or math.huge)
        if part > holds * 1.001 then
          return ("puts %.1f GiB of weights on %s, which has %.1f GiB free of %.1f"):format(part / 2 ^ 30, uid, (d.free_bytes or holds) / 2 ^ 30,
            (d.mem_bytes or holds) / 2 ^ 30)
        end
      end
    end
  end
end

local input_fields = { "hosts", "networks", "devices", "links", "nics", "islands", "suggest", "doubts" }

local function changed(s, t, case)
  for _, f in ipairs(input_fields) do if not util.same(s.topo[f], t[f]) then return "it changes topo." .. f end end
  if not util.same(s.model, models.get(case.model)) then return "it changes the model" end
  if not util.same(s.want, case.want) then return "it changes want" end
end

local function orders(case, count)
  local r = random(case.seed + 7, case.number)
  local out = { function(n)
    local list = {}
    for i = 1, n do list[i] = n + 1 - i end
    return list
  end }
  for k = 2, count do
    out[k] = function(n)
      local list = {}
      for i = 1, n do list[i] = i end
      for i = n, 2, -1 do
        local j = r:below(i) + 1
        list[i], list[j] = list[j], list[i]
      end
      return list
    end
  end
  return out
end

-- A changed machine is a machine of its own: what already fails there alone is shown there.
local function on(record, failure)
  failure.record = record
  return failure
end

local function index_free(p, case, first, thorough)
  for _, order in ipairs(orders(case, thorough and 6 or 1 + case.number % 2)) do
    local record = permute.indices(case.record, order)
    local other, failure = answer(p, record, case)
    if not other then return on(record, failure) end
    local how = difference(first, other, true)
    if how then return failed("index_free", "with other device indices it " .. how) end
  end
end

local function unchosen(a)
  local used, bad, good = {}, {}, {}
  for s in each_stage(a) do
    for _, uid in ipairs(s.devices or {}) do
      used[uid] = true
      local d = a.topo:dev(uid)
      if d.mig and d.mig.parent then used[d.mig.parent] = true end
    end
  end
  for _, d in ipairs(a.topo.devices) do
    if not used[d.uid] then table.insert(d.usable and good or bad, d.uid) end
  end
  return bad, good
end

local function unchosen_free(p, case, first, thorough)
  if first.refused or p.except.unchosen_free then return nil end
  local bad, good = unchosen(first)
  local r, tries = random(case.seed + 8, case.number), {}
  if thorough then
    for _, list in ipairs { bad, good } do for _, uid in ipairs(list) do tries[#tries + 1] = uid end end
  else
    if #bad > 0 then tries[1] = r:pick(bad) end
    if #good > 0 and (#bad == 0 or r:chance(50)) then tries[#tries + 1] = r:pick(good) end
  end
  for _, uid in ipairs(tries) do
    local record = permute.without(case.record, { [uid] = true })
    local other, failure = answer(p, record, case)
    if not other then return on(record, failure) end
    local how = difference(first, other)
    if how then return failed("unchosen_free", ("without %s, which it did not choose, it %s"):format(uid, how)) end
  end
end

-- Gives "a b" -> true for the pairs that share a stage.
local function grouped(a)
  local out = {}
  for s in each_stage(a) do
    for _, x in ipairs(s.devices or {}) do for _, y in ipairs(s.devices or {}) do out[x .. " " .. y] = true end end
  end
  return out
end

local function worse_link(p, case, first, thorough)
  if first.refused or p.except.worse_link then return nil end
  local together, candidates, tries = grouped(first), {}, {}
  for i, l in ipairs(case.record.links or {}) do
    if permute.can_worsen(l) and not together[l.a .. " " .. l.b] then candidates[#candidates + 1] = i end
  end
  if thorough and #candidates <= 30 then tries = candidates
  elseif #candidates > 0 then tries[1] = random(case.seed + 9, case.number):pick(candidates)
  end
  for _, i in ipairs(tries) do
    local record, l = permute.worsened(case.record, i), case.record.links[i]
    local other, failure = answer(p, record, case)
    if not other then return on(record, failure) end
    if grouped(other)[l.a .. " " .. l.b] and difference(first, other) then
      return failed("worse_link", ("when the link of %s and %s falls from %s to %s, it puts them into a group"):format(l.a, l.b, l.kind, record.links[i].kind))
    end
  end
end

local function deterministic(p, case, first)
  local again, failure = answer(p, case.record, case)
  if failure then return failure end
  if not util.same(first.placement, again.placement) or first.refused ~= again.refused then
    return failed("deterministic", "on the same machine it " .. (difference(first, again, true) or "gives another placement"))
  end
end

local function one_model(p, _, first)
  local message = not p.except.one_model_in_group and mixed_group(first)
  return message and failed("one_model_in_group", "it " .. message) or nil
end

local function weights_fit(_, case, first)
  local message = first.placement and too_heavy(first, models.get(case.model), case.want.usable or 0.9)
  return message and failed("weights_fit", "it " .. message) or nil
end

-- What is looked at once the policy has answered on the machine as it is.
local further = { { "deterministic", deterministic }, { "one_model_in_group", one_model }, { "weights_fit", weights_fit }, { "index_free", index_free },
  { "unchosen_free", unchosen_free }, { "worse_link", worse_link } }

--- Check a policy on a case.
---@param p tpl.Policy
---@param case tpl.policy.Case
---@param o? {thorough: boolean?, only: string?}   thorough: more permutations, every device taken away, every link worsened; only: of the properties
--- that need further runs look at this one (for shrinking)
---@return tpl.policy.Failure?  nil: every property holds
---@return string? how          "placed" | "refused"
function M.check(p, case, o)
  o = o or {}
  local wrong
  local first, failure = answer(p, case.record, case, function(s, t) wrong = changed(s, t, case) end)
  if wrong and first then return failed("input_unchanged", wrong) end
  if failure then return failure end
  for _, property in ipairs(further) do
    if not o.only or o.only == property[1] then failure = property[2](p, case, first, o.thorough) end
    if failure then return failure end
  end
  return nil, first.refused and "refused" or "placed"
end

return M
