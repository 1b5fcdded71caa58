-- SPDX-License-Identifier: Apache-2.0
--- Check that all members of every group of ranks issue the same collectives in the same order (layout.md 2.8). A group
--- whose members disagree would wait for ever; here that is an error before anything runs.
local err = require "tpl.err"
local util = require "tpl.util"

local M = {}

local function signature(op)
  local a = op.attrs
  local shape = op.ins[1] and table.concat(op.ins[1].dims, ",") or table.concat(op.outs[1].dims, ",")
  return ("%s %s [%s] %s>%s %s"):format(op.kind, op.name, shape, a.from or "", a.dim or "", a.op or "")
end

--- List, for each rank of a stage, the collectives it takes part in: {group, signature}, in order.
---@param graph tpl.Graph
---@param skip (fun(rank: integer, op: table): boolean)?  ops that a rank leaves out, for faults
---@return table[][] by_rank  index rank + 1
function M.by_rank(graph, skip)
  local out = {}
  for r = 0, graph.mesh.n - 1 do out[r + 1] = {} end
  for _, op in ipairs(graph.ops) do
    local axes = op.kind == "norm" and op.attrs.stats or op.kind ~= "norm" and op.attrs.axes
    if axes then
      local sig = signature(op)
      for _, group in ipairs(graph.mesh:groups(axes)) do
        local key = table.concat(group, ",")
        for _, r in ipairs(group) do
          if not (skip and skip(r, op)) then table.insert(out[r + 1], { group = key, signature = sig }) end
        end
      end
    end
  end
  return out
end

--- Compare what the members of each group issue; raises where two differ.
---@param by_rank table[][]  as M.by_rank gives it
---@return table<string, integer> groups  group "0,1" -> number of collectives
function M.check(by_rank)
  local seqs = {}
  for i, list in ipairs(by_rank) do
    for _, c in ipairs(list) do
      seqs[c.group] = seqs[c.group] or {}
      local mine = seqs[c.group][i - 1] or {}
      mine[#mine + 1], seqs[c.group][i - 1] = c.signature, mine
    end
  end
  local counts = {}
  for group, by in util.pairs(seqs) do
    local first
    for member in group:gmatch("%d+") do
      local mine = by[tonumber(member)] or {}
      first = first or { rank = member, list = mine }
      for i = 1, math.max(#mine, #first.list) do
        if mine[i] ~= first.list[i] then
          err.throw { code = "internal", message = ("order: in group %s collective %d is '%s' on rank %s and '%s' on rank %s"):format(
            group, i, tostring(first.list[i]), first.rank, tostring(mine[i]), member) }
        end
      end
    end
    counts[group] = #first.list
  end
  return counts
end

return M
