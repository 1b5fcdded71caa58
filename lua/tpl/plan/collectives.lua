-- SPDX-License-Identifier: Apache-2.0
--- List the collectives of a plan with what they move, and their price where the devices' links are known. Pure.
local json = require "tpl.json"

local M = {}

local PREFILL_TOKENS = 512 -- the mixed bucket of one chunk

-- Payload of a collective on the member that brings most: rows of the step times its local columns, and those columns.
local function payload(op, tokens)
  local v, most = op.ins[1], 0
  for _, c in ipairs(v.cols) do most = math.max(most, c) end
  local rows = v.sym == "tok" and tokens or 1
  return math.ceil(rows / v.div) * most * 4, most
end

-- What links a group: asked once for each group of a stage.
local function link_facts(plan, s)
  local known = {}
  return function(group)
    local uids = {}
    for i, r in ipairs(group) do uids[i] = s.devices[r + 1] end
    local key = table.concat(uids, "+")
    if known[key] == nil then
      known[key] = plan.topo:dev(uids[1]).kind ~= "cpu" and require("tpl.cost").group(plan.topo, uids) or false
    end
    return known[key] or nil
  end
end

local function microseconds(kind, facts, bytes)
  return facts and require("tpl.cost").collective(kind, facts, bytes) or json.null
end

--- List the collectives of all stages, one entry for each group.
---@param plan table
---@return table[]   as in `tpl plan`
function M.of(plan)
  local out = json.array {}
  for _, s in ipairs(plan.stages) do
    local facts_of = link_facts(plan, s)
    for _, op in ipairs(s.lowered and s.lowered.ops or {}) do
      for _, g in ipairs(op.axes and s.mesh:groups(op.axes) or {}) do
        local members = json.array {}
        for i, r in ipairs(g) do members[i] = s.first_rank + r end
        local decode, cols = payload(op, 1)
        local prefill = payload(op, PREFILL_TOKENS)
        local facts = facts_of(g)
        out[#out + 1] = { i = #out, kind = op.kind, stage = s.i, axes = json.array { unpack(op.axes) }, group = members,
          mark = op.mark, op = op.name, dtype = "f32", count = cols, bytes = { decode = decode, prefill = prefill },
          us = { decode = microseconds(op.kind, facts, decode), prefill = microseconds(op.kind, facts, prefill) } }
      end
    end
  end
  return out
end

return M
