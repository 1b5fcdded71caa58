-- SPDX-License-Identifier: Apache-2.0
--- Pack weighted items onto ranks: largest first, each onto the rank with the least weight that still has room.
local M = {}

---@class tpl.PackItem
---@field w number     weight, 0 or more

-- The least loaded rank that has room and none of the item's kind; the lowest index on ties.
local function choose(state, item, capacity, apart)
  local best
  for i, s in ipairs(state) do
    local is_taken = apart and s.has[item[apart]]
    if #s.items < capacity and not is_taken and (not best or s.w < state[best].w) then best = i end
  end
  return best
end

--- Pack items.
---@param items tpl.PackItem[]
---@param ranks any[]           only their number counts
---@param capacity integer      most items per rank
---@param opts {apart: string?}?  apart: items with an equal field of this name go to different ranks
---@return table[][]? packed    the items of each rank, in the order they came to lie there
---@return string? why          which item found no place
function M.pack(items, ranks, capacity, opts)
  local apart, order, state = opts and opts.apart, {}, {}
  for i, item in ipairs(items) do order[i] = { item = item, at = i } end
  table.sort(order, function(a, b)
    if a.item.w ~= b.item.w then return a.item.w > b.item.w end
    return a.at < b.at
  end)
  for i = 1, #ranks do state[i] = { w = 0, items = {}, has = {} } end
  for _, o in ipairs(order) do
    local i = choose(state, o.item, capacity, apart)
    if not i then return nil, ("item %d finds no rank with room"):format(o.at) end
    local s = state[i]
    s.w = s.w + o.item.w
    s.items[#s.items + 1] = o.item
    if apart then s.has[o.item[apart]] = true end
  end
  local out = {}
  for i, s in ipairs(state) do out[i] = s.items end
  return out
end

return setmetatable(M, { __call = function(_, ...) return M.pack(...) end })
