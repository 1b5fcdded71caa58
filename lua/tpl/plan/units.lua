-- SPDX-License-Identifier: Apache-2.0
--- Work out in which units each dim may be cut. Hard units come from the checkpoint: a quantisation block must lie on
--- one rank. Soft units come from the model definition: tiles that kernels like. The user never gives either.
local partition = require "tpl.plan.partition"
local storage = require "tpl.plan.storage"

local M = {}

---@class tpl.Units
---@field size table<string, integer>
---@field hard table<string, integer>
---@field soft table<string, integer>
---@field whole table<string, {why: string, hint: string}>  dims that must not be cut at all
local Units = {}
Units.__index = Units

-- Blocks of B lie along the flattened row dims a.b.c. A cut of `a` at u needs u*|b|*|c| whole blocks; a cut of an inner
-- dim repeats inside every index of the outer ones, so there the length of that repeat must be whole blocks too.
local function add_blocks(units, row, block)
  local inner = 1
  for i = #row, 1, -1 do
    local dim = row[i]
    local span = units.size[dim] * inner
    if i > 1 and span % block ~= 0 then
      units.whole[dim] = {
        why = ("'%s' is cut in blocks of %d and '%s' repeats every %d: a block would lie on two ranks")
          :format(table.concat(row, "."), block, dim, span),
        hint = ("split '%s' instead, or store that tensor unquantised"):format(row[1]),
      }
    else
      units.hard[dim] = partition.lcm(units.hard[dim] or 1, block / partition.gcd(block, inner))
    end
    inner = span
  end
end

--- Collect the units of a model.
---@param trace tpl.Trace
---@param dtype (fun(weight: string): string)?  storage type of a weight; nil: nothing is quantised
---@param blocks table<string, integer>?        elements per block by type, default those of storage.lua
---@return tpl.Units
function M.collect(trace, dtype, blocks)
  local units = setmetatable({ size = trace.sizes, hard = {}, soft = trace.soft, whole = {} }, Units)
  local seen = {}
  for _, w in ipairs(trace.weight_list) do
    local type_name = dtype and dtype(w.name) or "f32"
    local block = blocks and blocks[type_name] or storage.elements(type_name)
    local row = {}
    for i = w.n_out + 1, #w.dims do row[#row + 1] = w.dims[i] end
    local key = table.concat(row, ".") .. "/" .. block
    if block > 1 and #row > 0 and not seen[key] then
      seen[key] = true
      add_blocks(units, row, block)
    end
  end
  return units
end

--- Give the number of hard units of a dim: the most ranks that one axis can feed.
function Units:count(dim)
  if not self.size[dim] then return 0 end
  if self.whole[dim] then return 1 end
  return math.ceil(self.size[dim] / (self.hard[dim] or 1))
end

return M
