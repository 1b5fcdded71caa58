-- SPDX-License-Identifier: Apache-2.0
--- Compare two plans and say what going from one to the other takes: nothing, new policies, new programs at a step boundary, or
--- a reload, since weights or KV cache would lie elsewhere. Pure.
local util = require "tpl.util"

local M = {}

local function ranges_text(list)
  if type(list) ~= "table" then return tostring(list) end
  local out = {}
  for i, r in ipairs(list) do out[i] = type(r) == "table" and ranges_text(r) or tostring(r) end
  return "{" .. table.concat(out, ",") .. "}"
end

-- Where a rank's state lies: its device, and what it holds of each weight.
local function state_of(plan, b)
  local out = { b.device.uid, plan.kv.dtype, tostring(plan.kv.page) }
  for _, w in ipairs(b.stage.lowered and b.stage.lowered.weights or {}) do
    out[#out + 1] = ("%s %s %s"):format(w.name, ranges_text(w.row_index[b.local_rank + 1]), ranges_text(w.col_index[b.local_rank + 1]))
  end
  if not b.stage.lowered then out[#out + 1] = ("%d-%d of %d"):format(b.stage.first, b.stage.last, #b.stage.devices) end
  return table.concat(out, "\n")
end

local function line(out, what, was, now)
  if was ~= now then out[#out + 1] = ("%s: %s -> %s"):format(what, tostring(was), tostring(now)) end
  return was ~= now
end

local function layers_text(plan)
  return table.concat(util.map(plan.stages, function(s) return ("%d-%d on %s"):format(s.first, s.last, table.concat(s.devices, "+")) end), " | ")
end

local function state_changes(a, b, out)
  local moved = line(out, "model", a.open.path, b.open.path)
  moved = line(out, "replicas", #a.placed.replicas, #b.placed.replicas) or moved
  moved = line(out, "stages", layers_text(a), layers_text(b)) or moved
  moved = line(out, "KV tokens", a.kv.tokens, b.kv.tokens) or moved
  moved = line(out, "KV page", a.kv.page, b.kv.page) or moved
  moved = line(out, "KV dtype", a.kv.dtype, b.kv.dtype) or moved
  if #a.ranks ~= #b.ranks then return line(out, "ranks", #a.ranks, #b.ranks) end
  for i, rank in ipairs(a.ranks) do
    if state_of(a, rank) ~= state_of(b, b.ranks[i]) then
      out[#out + 1] = ("rank %d holds other weights"):format(rank.rank)
      moved = true
    end
  end
  return moved
end

local function program_changes(a, b, out)
  local changed = line(out, "act", a.deploy.act, b.deploy.act)
  for i, s in ipairs(a.stages) do
    local other = b.stages[i]
    if other and s.hash ~= other.hash then
      out[#out + 1] = ("stage %d has another program: %d ops -> %d"):format(s.i, s.lowered and #s.lowered.ops or 0, other.lowered and #other.lowered.ops or 0)
      changed = true
    end
  end
  return changed
end

local function text_of(value)
  if type(value) ~= "table" then return tostring(value) end
  local out = {}
  for k, v in util.pairs(value) do out[#out + 1] = ("%s=%s"):format(tostring(k), text_of(v)) end
  return "{" .. table.concat(out, ", ") .. "}"
end

local function policy_changes(a, b, out)
  local changed = false
  for _, field in ipairs { "want", "require", "serve", "threads" } do
    changed = line(out, field, text_of(a.deploy[field]), text_of(b.deploy[field])) or changed
  end
  return line(out, "policy", a.placed.policy, b.placed.policy) or changed
end

--- Compare.
---@param a table   the plan that runs
---@param b table   the plan that is to run
---@return {kind: "none"|"policy"|"program"|"reload", changes: string[]}
function M.of(a, b)
  local changes = {}
  local is_moved = state_changes(a, b, changes)
  local is_program = program_changes(a, b, changes)
  local is_policy = policy_changes(a, b, changes)
  return { kind = is_moved and "reload" or is_program and "program" or is_policy and "policy" or "none", changes = changes }
end

return M
