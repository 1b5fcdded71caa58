-- SPDX-License-Identifier: Apache-2.0
--- Find the NVLink islands: sets of devices joined by usable NVLinks, directly, over other GPUs or over switches.
-- Connected is not full: in a cube mesh some pairs have no NVLink. What the input does not say about a pair leaves `full` unknown.
local pair = require("tpl.topo.pair")

local M = {}

local function may_use_nvlink(d) return d.kind == "gpu" and d.usable ~= false end

local function neighbours(t)
  local next_to = {}
  local function join(a, b)
    next_to[a], next_to[b] = next_to[a] or {}, next_to[b] or {}
    table.insert(next_to[a], b)
    table.insert(next_to[b], a)
  end
  for _, link in ipairs(t.links) do
    local a, b = t:dev(link.a), t:dev(link.b)
    if a and b and link.a ~= link.b and may_use_nvlink(a) and may_use_nvlink(b) and pair.nvlinks(link) > 0 then join(link.a, link.b) end
  end
  local last = {} -- one chain joins a fabric that spans hosts
  for _, d in ipairs(t.devices) do
    local fabric = may_use_nvlink(d) and t:fabric(d.uid)
    if fabric then
      if last[fabric] then join(last[fabric], d.uid) end
      last[fabric] = d.uid
    end
  end
  return next_to
end

local function reach(start, next_to, seen)
  local found, todo = {}, { start }
  seen[start] = true
  while todo[1] do
    local uid = table.remove(todo)
    found[uid] = true
    for _, other in ipairs(next_to[uid] or {}) do
      if not seen[other] then
        seen[other] = true
        todo[#todo + 1] = other
      end
    end
  end
  return found
end

--- Say whether every pair is joined directly or by a switch: false where one is known not to be, nil where one is not told.
local function is_full(t, uids, fabric)
  if fabric then return true end
  local full = true
  for i, a in ipairs(uids) do
    for j = i + 1, #uids do
      local link = t:either(a, uids[j])
      if not link then
        full = nil
      elseif pair.nvlinks(link) == 0 then
        return false
      end
    end
  end
  return full
end

local function one_fabric(t, uids)
  local fabric = t:fabric(uids[1])
  for _, uid in ipairs(uids) do
    if t:fabric(uid) ~= fabric then return nil end
  end
  return fabric
end

--- List the islands of two or more devices, in device order.
---@param t tpl.Topo  devices judged (`usable`)
---@return {devices: string[], full: boolean?, fabric: string?}[]
function M.find(t)
  local next_to, seen, out = neighbours(t), {}, {}
  for _, d in ipairs(t.devices) do
    if next_to[d.uid] and not seen[d.uid] then
      local found, uids = reach(d.uid, next_to, seen), {}
      for _, other in ipairs(t.devices) do
        if found[other.uid] then uids[#uids + 1] = other.uid end
      end
      local fabric = one_fabric(t, uids)
      out[#out + 1] = { devices = uids, full = is_full(t, uids, fabric), fabric = fabric }
    end
  end
  return out
end

return M
