-- SPDX-License-Identifier: Apache-2.0
--- Share a model among devices that are not alike, in whole KV heads: by the memory that each may use, or by its bandwidth.
--- Pure.
local device = require "tpl.cost.device"
local memory = require "tpl.cost.memory"
local partition = require "tpl.plan.partition"

local M = {}

-- Every rank needs one unit; it is taken from who has most.
local function feed(counts)
  for i, n in ipairs(counts) do
    if n == 0 then
      local from = 1
      for k, m in ipairs(counts) do if m > counts[from] then from = k end end
      counts[from], counts[i] = counts[from] - 1, 1
    end
  end
  return counts
end

--- Give the KV heads of each rank; nil where there are more ranks than KV heads, which are then repeated evenly.
---@param shape tpl.Shape
---@param t table           topology
---@param uids string[]
---@param how? {by: "memory"|"speed"?, usable: number?, probe: table?}
---@return integer[]?
function M.of(shape, t, uids, how)
  local n, units, weights = #uids, shape.units.kvh, {}
  if n > units then return nil end
  for i, uid in ipairs(uids) do
    local dev = t:dev(uid)
    local d = device.at(t, dev, how)
    if how and how.by == "speed" then weights[i] = d and d.mem_gb_s or 1
    else
      local room = memory.capacity(dev, d, how and how.usable or 0.90)
      weights[i] = room and math.max(1, room - memory.other(dev.kind, n > 1 and "nvlink" or nil, false)) or 1
    end
  end
  return feed(partition.apportion(units, n, weights))
end

return M
