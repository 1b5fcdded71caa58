-- SPDX-License-Identifier: Apache-2.0
--- Give a deployment's `stages` function what it decides by: the machine, the model, the wish, and the costs of layers and devices.
local candidates = require "tpl.place.candidates"
local cost = require "tpl.cost"
local groups = require "tpl.topo.groups"

local M = {}

---@class tpl.StagesContext
---@field topo tpl.Topo        the machine
---@field model table          the normalised config
---@field shape tpl.Shape      bytes and operations of the model
---@field want table           `want` of the deployment
local Context = {}
Context.__index = Context

--- Bytes of weights of each layer (1-based); the head's with the last, the embedding's with the first.
---@return number[] cost   read for a token
---@return number[] bytes  held
function Context:layer_costs()
  local read, held = {}, {}
  for i, bytes in ipairs(self.costs) do read[i], held[i] = bytes, bytes end
  local last = #read
  read[last], held[last] = read[last] + self.head_cost, held[last] + self.head_cost
  held[1] = held[1] + (self.shape.tied and 0 or self.shape.embed_bytes)
  return read, held
end

--- The best groups of n devices, best first.
---@return string[][]
function Context:groups(n) return groups.partition(self.topo, self.topo:ids { kind = "gpu", usable = true }, n) end

--- Cut the layers over groups of devices by time and memory.
---@param list string[][]
---@return integer[][]   {first, last}, one for each group
function Context:cut(list) return cost.cut(self.shape, self.topo, list, candidates.want(self.topo, self.shape, self.want)) end

--- Memory that each group has free, in bytes.
---@param list string[][]
---@return number[]
function Context:capacity(list)
  local out = {}
  for i, group in ipairs(list) do
    out[i] = 0
    for _, uid in ipairs(group) do
      local d = self.topo:dev(uid)
      out[i] = out[i] + (d.free_bytes or d.mem_bytes or 0)
    end
  end
  return out
end

--- Bytes a second that each group reads.
---@param list string[][]
---@return number[]
function Context:speeds(list)
  local out = {}
  for i, group in ipairs(list) do
    local least = math.huge
    for _, uid in ipairs(group) do
      local device = cost.device(self.topo:dev(uid))
      least = math.min(least, device and device.mem_gb_s or 1)
    end
    out[i] = least * #group * 1e9
  end
  return out
end

--- Shares of a TP group by memory, in groups of KV heads.
---@param uids string[]
---@return number[]
function Context:shares(uids) return cost.shares(self.shape, self.topo, uids) end

--- Make the context of a plan.
---@param fields {topo: tpl.Topo, model: table, shape: tpl.Shape, want: table, costs: number[], head_cost: number}
---@return tpl.StagesContext
function M.new(fields) return setmetatable(fields, Context) end

return M
